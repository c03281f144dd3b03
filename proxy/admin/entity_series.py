"""Series of quota entities.

The engine's counters live as long as the engine needs them; Prometheus's counters have to live longer. So each counter
hands over its counts, exactly once, also when it is dropped, and totals are kept here: a series never decreases because
its counter expired, was recreated, or moved between ``other`` and its own name.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

from proxy.admin.named_series import OTHER, NamedSeries, Names
from proxy.runtime.names import label
from quotas.engine import Counted, CounterState, Gone
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind


class ShownEntity:
    """Series of one kind at one broker, of one entity or of ``other``. For ``other``: the sum of rates, the highest
    ratio, the fewest tokens, no limit.
    """

    __slots__ = ("has_shadow", "limit", "live", "rate", "ratio", "rule", "shadow_limit", "tokens", "totals")

    def __init__(self) -> None:
        self.totals = Counted()
        self.has_shadow = False
        """A limit in shadow has been seen: its counters are shown from then on."""
        self.forget()

    def forget(self) -> None:
        """Reset the gauges, which hold for one snapshot only."""
        self.live = False
        self.rate = 0.0
        self.ratio: float | None = None
        self.limit: float | None = None
        self.shadow_limit: float | None = None
        self.rule: Entity | None = None
        self.tokens: float | None = None

    def show(self, usage: CounterState) -> None:
        """Set the gauges."""
        self.live = True
        self.rate += usage.rate
        # A limit of 0 comes from ZooKeeper only; any usage of it is an infinite ratio.
        if usage.limit is not None:
            ratio = usage.rate / usage.limit if usage.limit else float("inf") if usage.rate else 0.0
            if usage.tokens is not None:  # a token bucket: above 1 it is overdrawn, whatever the rate is
                self.tokens = usage.tokens if self.tokens is None else min(self.tokens, usage.tokens)
                ratio = 1 - usage.tokens / usage.burst if usage.burst else ratio
            self.ratio = ratio if self.ratio is None else max(self.ratio, ratio)
        self.limit = usage.limit
        self.shadow_limit = usage.shadow_limit
        self.has_shadow = self.has_shadow or usage.shadow_limit is not None
        self.rule = usage.entity


class EntitySeries:
    """The series of all quota entities, at most ``max_entities`` by name: those with a quota by name, then, of
    newcomers in one snapshot, the most throttled and the busiest.
    """

    def __init__(self, max_entities: int) -> None:
        self._series: NamedSeries[Names, dict[tuple[QuotaKind, int], ShownEntity]] = NamedSeries(
            max_entities, dict, lambda _: OTHER
        )

    @property
    def folded(self) -> int:
        """Entities in the last snapshot that are part of ``other``."""
        return self._series.folded

    def update(self, taken: Iterable[tuple[CounterState, Counted]], gone: Iterable[Gone] = ()) -> None:
        """Take the state and new counts of the engine's counters, and the counts of dropped ones."""
        for _, by_kind in self._series:
            for series in by_kind.values():
                series.forget()
        live = [(_names(usage.user, usage.client_id, usage.entity), usage, counted) for usage, counted in taken]
        late = [(_names(each.key.user, each.key.client_id, each.entity), each, each.counted) for each in gone]
        demand: dict[Names, tuple[int, float]] = {}
        by_name: set[Names] = set()
        limited = chain(
            ((names, usage.entity, counted) for names, usage, counted in live),
            ((names, each.entity, counted) for names, each, counted in late),
        )
        for names, entity, counted in limited:
            throttle_ms, charged = demand.get(names, (0, 0.0))
            demand[names] = (throttle_ms + counted.throttle_ms, charged + counted.charged)
            if Default.DEFAULT not in (entity.user, entity.client_id):
                by_name.add(names)
        self._series.assign(demand, by_name)
        for names, usage, counted in live:
            self._count(names, usage.kind, usage.broker, counted).show(usage)
        for names, each, counted in late:
            self._count(names, each.key.kind, each.key.broker, counted)

    def _count(self, names: Names, kind: QuotaKind, broker: int, counted: Counted) -> ShownEntity:
        series = self._series[names].setdefault((kind, broker), ShownEntity())
        series.totals = series.totals.plus(counted)
        series.has_shadow = series.has_shadow or counted.shadow_throttled > 0
        return series

    def __iter__(self) -> Iterator[tuple[Names, QuotaKind, int, ShownEntity]]:
        """Yield every series: entity, quota kind, broker; ``other`` comes last, if it was ever used."""
        for names, by_kind in self._series:
            for (kind, broker), series in by_kind.items():
                yield names, kind, broker, series


def _names(user: str, client_id: str, rule: Entity) -> Names:
    """Return the labels of a counter; a cap has others than a quota for the same clients."""
    if rule.cap and user:
        user = f"cap:{user}"
    elif rule.cap:
        client_id = f"cap:{client_id}"
    return Names(label(user), label(client_id))
