"""Which quota entities are shown by name, what their series say, and what is summed up as ``other``.

Counters of the engine live as long as the engine needs them; what Prometheus reads has to live longer. So only
their growth is taken over, into totals kept here: a series never goes backwards because the counter behind it
expired, was made anew, or changed between ``other`` and a place of its own. A counter that comes back after a pause
either goes on with its totals (a session still held it) or begins anew; which of them is told by the totals alone.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from proxy.names import label
from quotas.engine import CounterKey, Usage
from quotas.entities import Entity
from quotas.kinds import QuotaKind

MAX_REMEMBERED = 10_000
"""Counters that are gone, whose totals are kept to compare with when they come back."""


class Names(NamedTuple):
    """An entity as its labels say it; what the quota does not distinguish by is empty."""

    user: str
    client_id: str


OTHER = Names("other", "other")
"""Everybody without a place. A client that is called so is counted here too, so no series is ever there twice."""


class Totals(NamedTuple):
    """What only grows: the charged units (bytes for byte rates), throttled responses, milliseconds of throttle."""

    charged: float = 0.0
    throttled: int = 0
    throttle_ms: int = 0

    def plus(self, other: "Totals") -> "Totals":
        return Totals(
            self.charged + other.charged, self.throttled + other.throttled, self.throttle_ms + other.throttle_ms
        )

    def since(self, before: "Totals") -> "Totals":
        """Return the growth from ``before``; a counter that shrank was made anew and counts whole."""
        if self.charged < before.charged or self.throttled < before.throttled or self.throttle_ms < before.throttle_ms:
            return self
        return Totals(
            self.charged - before.charged, self.throttled - before.throttled, self.throttle_ms - before.throttle_ms
        )


class Series:
    """One kind at one broker, of one entity or of ``other``. Where several are summed up: the sum of their rates,
    the highest ratio, no limit.
    """

    __slots__ = ("limit", "live", "rate", "ratio", "rule", "totals")

    def __init__(self) -> None:
        self.totals = Totals()
        self.forget()

    def forget(self) -> None:
        """Empty the gauges: they hold for one snapshot only."""
        self.live = False
        self.rate = 0.0
        self.ratio = 0.0
        self.limit = 0.0
        self.rule: Entity | None = None

    def add(self, usage: Usage, grown: Totals) -> None:
        self.totals = self.totals.plus(grown)
        self.live = True
        self.rate += usage.rate
        # A limit of 0 comes from ZooKeeper only; any use of it is infinitely much.
        ratio = usage.rate / usage.limit if usage.limit else float("inf") if usage.rate else 0.0
        self.ratio = max(self.ratio, ratio)
        self.limit = usage.limit
        self.rule = usage.entity


class Place:
    """An entity shown by name, with a series for each kind and broker it was seen at."""

    __slots__ = ("seen", "series")

    def __init__(self) -> None:
        self.seen = 0
        self.series: dict[tuple[QuotaKind, int], Series] = {}


class EntitySeries:
    """The series of all quota entities, at most ``max_entities`` of them by name.

    First come, first shown; of those that come in one snapshot the most throttled, then the busiest. A place is
    kept, with its totals, until the entity has no live counter any more *and* a newcomer needs the place.
    """

    def __init__(self, max_entities: int) -> None:
        self._max_entities = max_entities
        self._updates = 0
        self._places: dict[Names, Place] = {}
        self._other = Place()
        self._live: dict[CounterKey, Totals] = {}
        self._gone: dict[CounterKey, Totals] = {}
        self.folded = 0
        """Entities of the last snapshot that are shown as ``other``."""

    def update(self, usage: Iterable[Usage]) -> None:
        """Take over one snapshot of the engine's counters."""
        self._updates += 1
        for _, place in self._every_place():
            for series in place.series.values():
                series.forget()
        named = [(Names(label(one.user), label(one.client_id)), one) for one in usage]
        self._seat(named)
        live: dict[CounterKey, Totals] = {}
        for names, one in named:
            counter = CounterKey(one.kind, one.user, one.client_id, one.broker)
            totals = Totals(one.charged_total, one.throttled_total, one.throttle_ms_total)
            live[counter] = totals
            before = self._live.pop(counter, None) or self._gone.pop(counter, Totals())
            place = self._places.get(names, self._other)
            series = place.series.setdefault((one.kind, one.broker), Series())
            series.add(one, totals.since(before))
        self._gone.update(self._live)  # what has not been taken out
        for counter in list(islice(self._gone, max(0, len(self._gone) - MAX_REMEMBERED))):
            del self._gone[counter]
        self._live = live

    def __iter__(self) -> Iterator[tuple[Names, QuotaKind, int, Series]]:
        """Every series: its entity, quota kind and broker; ``other`` comes last, once there was need of it."""
        for names, place in self._every_place():
            for (kind, broker), series in place.series.items():
                yield names, kind, broker, series

    def _every_place(self) -> Iterator[tuple[Names, Place]]:
        yield from self._places.items()
        yield OTHER, self._other

    def _seat(self, named: list[tuple[Names, Usage]]) -> None:
        demand: dict[Names, tuple[int, float]] = {}
        for names, one in named:
            if (place := self._places.get(names)) is not None:
                place.seen = self._updates
            else:
                throttle_ms, charged = demand.get(names, (0, 0.0))
                demand[names] = (throttle_ms + one.throttle_ms_total, charged + one.charged_total)
        self.folded = len(demand)
        demand.pop(OTHER, None)
        newcomers = sorted(demand, key=lambda names: demand[names], reverse=True)[: self._vacate(len(demand))]
        for names in newcomers:
            self._places[names] = place = Place()
            place.seen = self._updates
        self.folded -= len(newcomers)

    def _vacate(self, wanted: int) -> int:
        """Free up to ``wanted`` places of entities that are gone, longest gone first; return how many are free."""
        free = self._max_entities - len(self._places)
        if free < wanted:
            gone = [names for names, place in self._places.items() if place.seen != self._updates]
            gone.sort(key=lambda names: self._places[names].seen)
            for names in gone[: wanted - free]:
                del self._places[names]
        return self._max_entities - len(self._places)
