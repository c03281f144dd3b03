"""Metrics of quota entities: limits, usage, throttles and charges.

The engine's counters live as long as the engine needs them; Prometheus's counters have to live longer. So each counter
hands over its counts, exactly once, also when it is dropped, and totals are kept here: a series never decreases because
its counter expired, was recreated, or moved between ``other`` and its own name.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from prometheus_client.core import Metric

from proxy.admin.exposition import SUMMED, Row, broker_label, counter, gauge, number
from proxy.admin.series import HIGHEST, OTHER, NamedSeries, Names
from proxy.runtime.names import label
from quotas.counted import CLUSTER
from quotas.engine import Counted, CounterKey, CounterState, Gone
from quotas.entities import Default, Entity
from quotas.kinds import CLIENT_KINDS, QuotaKind

_log: Final = logging.getLogger("sluice.admin")
_LABELS: Final = ("kind", "user", "client_id", "broker")
# Kinds of the same unit share families.
_UNITS: Final = tuple(dict.fromkeys(kind.row.unit for kind in CLIENT_KINDS))
_KINDS: Final[Mapping[QuotaKind, str]] = {kind: kind for kind in CLIENT_KINDS}


class SeriesKey(NamedTuple):
    """The series of one entity, for one kind of quota at one broker."""

    names: Names
    kind: QuotaKind
    broker: int


class ShownEntity:
    """Series of one key, or of ``other``. Where several counters are summed: the sum of rates, the highest ratio, the
    fewest tokens; ``other`` has no limit.
    """

    __slots__ = ("has_shadow", "limit", "rate", "ratio", "rule", "shadow_limit", "tokens", "totals")

    def __init__(self) -> None:
        self.totals = Counted()
        self.has_shadow = False
        """A limit in shadow has been seen: its counters are shown from then on."""
        self.forget()

    def forget(self) -> None:
        """Reset the gauges, which hold for one snapshot only."""
        self.rate: float | None = None
        self.ratio: float | None = None
        self.limit: float | None = None
        self.shadow_limit: float | None = None
        self.rule: Entity | None = None
        self.tokens: float | None = None

    def show(self, usage: CounterState) -> None:
        self.rate = (self.rate or 0.0) + usage.rate
        if (ratio := usage.ratio) is not None:
            if usage.tokens is not None:
                self.tokens = usage.tokens if self.tokens is None else min(self.tokens, usage.tokens)
            self.ratio = ratio if self.ratio is None else max(self.ratio, ratio)
        self.limit = usage.limit
        self.shadow_limit = usage.shadow_limit
        self.has_shadow = self.has_shadow or usage.shadow_limit is not None
        self.rule = usage.entity


class EntitySeries:
    """The series of all quota entities, for at most ``most`` keys by name.

    As long as all keys fit, each broker has its own. Once they do not, they are summed over brokers from then on. If
    that is not enough, those with a quota by name come first, then those throttled now, then, of newcomers in one
    snapshot, the busiest.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._is_summed = False
        self._series = self._empty()

    def _empty(self) -> NamedSeries[SeriesKey, ShownEntity]:
        return NamedSeries(self._most, ShownEntity, lambda key: SeriesKey(OTHER, key.kind, SUMMED))

    @property
    def folded(self) -> int:
        """Keys in the last snapshot that are part of ``other``."""
        return self._series.folded

    def update(self, taken: Iterable[tuple[CounterState, Counted]], gone: Iterable[Gone] = ()) -> None:
        """Take the state and new counts of the engine's counters, and the counts of dropped ones."""
        for _, series in self._series:
            series.forget()
        counters = [
            *(_Counter(_key(each, each.entity), each.entity, counted, each) for each, counted in taken),
            *(_Counter(_key(each.key, each.entity), each.entity, each.counted, None) for each in gone),
        ]
        if not self._is_summed and len({each.key for each in counters}) > self._most:
            self._sum_over_brokers()
        if self._is_summed:
            counters = [each._replace(key=_over_brokers(each.key)) for each in counters]
        demand: dict[SeriesKey, tuple[int, int, float]] = {}
        for key, entity, counted, _ in counters:
            rank, throttle_ms, charged = demand.get(key, (0, 0, 0.0))
            by_name = Default.DEFAULT not in (entity.user, entity.client_id)
            rank = HIGHEST if by_name else max(rank, counted.throttle_ms > 0)
            demand[key] = (rank, throttle_ms + counted.throttle_ms, charged + counted.charged)
        self._series.assign(demand)
        for key, _, counted, state in counters:
            series = self._series[key]
            if any(counted):  # most of many are idle; a new object for each would be work for the collector
                series.totals = series.totals.plus(counted)
                series.has_shadow = series.has_shadow or counted.shadow_throttled > 0
            if state is not None:
                series.show(state)

    def _sum_over_brokers(self) -> None:
        """Begin new series: they grow by what is counted from now on, and the old ones end."""
        self._is_summed = True
        self._series = self._empty()
        _log.warning(
            "series of quotas are summed over brokers from now on (broker=sum): more than %d do not fit into "
            "metrics.max_series",
            self._most,
        )

    def __iter__(self) -> Iterator[tuple[Names, QuotaKind, int, ShownEntity]]:
        """Yield every series: entity, quota kind, broker; ``other`` comes last, if it was ever used."""
        for key, series in self._series:
            yield (*key, series)


class _Counter(NamedTuple):
    key: SeriesKey
    entity: Entity
    counted: Counted
    state: CounterState | None
    """None if the counter was dropped."""


def _key(counter: CounterState | CounterKey, rule: Entity) -> SeriesKey:
    """Return the labels of a counter; a cap has others than a quota for the same clients."""
    user, client_id = counter.user, counter.client_id
    if rule.cap and user:
        user = f"cap:{user}"
    elif rule.cap:
        client_id = f"cap:{client_id}"
    return SeriesKey(Names(label(user), label(client_id)), counter.kind, counter.broker)


def _over_brokers(key: SeriesKey) -> SeriesKey:
    return key if key.broker == CLUSTER else key._replace(broker=SUMMED)


def entity_families(entities: EntitySeries) -> Iterator[Metric]:
    """Yield one family after the other: all at once would be many objects, and a long garbage collection."""
    for unit in _UNITS:
        kinds = {kind: kind for kind in CLIENT_KINDS if kind.row.unit is unit}
        limits = _with_rule(entities, lambda series: series.limit, kinds)
        yield gauge(f"sluice_quota_limit_{unit.rate}", "Quota in force, and its rule.", (*_LABELS, "rule"), limits)
        said = "Limit in shadow, which is measured but not enforced, and its rule."
        limits = _with_rule(entities, lambda series: series.shadow_limit, kinds)
        yield gauge(f"sluice_shadow_limit_{unit.rate}", said, (*_LABELS, "rule"), limits)
        rates = _rows(entities, lambda series: series.rate, kinds)
        yield gauge(f"sluice_quota_usage_{unit.rate}", "Rate over the enforcement window.", _LABELS, rates)
    ratios = _rows(entities, lambda series: series.ratio)
    said = "Rate over the enforcement window, divided by the quota."
    yield gauge("sluice_quota_usage_ratio", said, _LABELS, ratios)
    tokens = _rows(entities, lambda series: series.tokens)
    said = "Mutations that are allowed immediately; below 0, topics are refused."
    yield gauge("sluice_quota_tokens", said, _LABELS, tokens)
    seconds = _rows(entities, lambda series: series.totals.throttle_ms / 1000)
    said = "Throttle time of requests; in shadow, the time that they would have got."
    yield counter("sluice_quota_throttle_seconds", said, _LABELS, seconds)
    throttled = _rows(entities, lambda series: series.totals.throttled)
    said = "Throttled requests; in shadow, those that would have been throttled."
    yield counter("sluice_quota_throttled_responses", said, _LABELS, throttled)
    seconds = _rows(entities, lambda series: series.totals.shadow_throttle_ms / 1000 if series.has_shadow else None)
    said = "Throttle time that limits in shadow would have given."
    yield counter("sluice_shadow_throttle_seconds", said, _LABELS, seconds)
    throttled = _rows(entities, lambda series: series.totals.shadow_throttled if series.has_shadow else None)
    said = "Requests that limits in shadow would have throttled."
    yield counter("sluice_shadow_throttled_responses", said, _LABELS, throttled)
    for unit in _UNITS:
        first = {kind: kind.row.word if unit.by_direction else kind for kind in CLIENT_KINDS if kind.row.unit is unit}
        charged = _rows(entities, lambda series: series.totals.charged, first)
        labels = ("direction" if unit.by_direction else "kind", *_LABELS[1:])
        yield counter(f"sluice_quota_{unit.charged}", unit.said, labels, charged)
    said = "Entities summed up as other, each counted for each of its kinds."
    yield number("sluice_quota_entities_folded", said, entities.folded)


_Value = Callable[[ShownEntity], float | None]


def _rows(entities: EntitySeries, value: _Value, kinds: Mapping[QuotaKind, str] = _KINDS) -> Iterator[Row]:
    """Yield the series of ``kinds`` that have a value; each kind is shown as it is told there."""
    for names, kind, broker, series in entities:
        if kind in kinds and (shown := value(series)) is not None:
            yield (kinds[kind], *names, broker_label(broker)), shown


def _with_rule(entities: EntitySeries, value: _Value, kinds: Collection[QuotaKind]) -> Iterator[Row]:
    """Yield limits, with their rule as the last label; ``other`` has none."""
    for names, kind, broker, series in entities:
        if kind in kinds and names != OTHER and series.rule is not None and (shown := value(series)) is not None:
            yield (kind, *names, broker_label(broker), label(series.rule.describe())), shown
