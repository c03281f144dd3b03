"""Metric families with series for each quota entity: limits, usage, throttles and charges."""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import Metric

from proxy.admin.entity_series import EntitySeries
from proxy.admin.exposition import broker_label, counter, gauge, number
from proxy.admin.named_series import OTHER
from proxy.runtime.names import label
from quotas.kinds import CLIENT_KINDS, QuotaKind, Unit

_ENTITY_LABELS: Final = ("kind", "user", "client_id", "broker")

# Kinds of the same unit share families.
_UNITS: Final = tuple(dict.fromkeys(kind.row.unit for kind in CLIENT_KINDS))


def entity_families(entities: EntitySeries) -> Iterator[Metric]:
    """Yield one family after the other: all at once would be many objects, and a long garbage collection."""
    for unit in _UNITS:
        yield from _rates(entities, unit)
    yield gauge(
        "sluice_quota_usage_ratio",
        "Rate over the enforcement window, divided by the quota.",
        _ENTITY_LABELS,
        (
            ((kind, *names, broker_label(broker)), series.ratio)
            for names, kind, broker, series in entities
            if series.ratio is not None
        ),
    )
    yield gauge(
        "sluice_quota_tokens",
        "Mutations that are allowed immediately; below 0, topics are refused.",
        _ENTITY_LABELS,
        (
            ((kind, *names, broker_label(broker)), series.tokens)
            for names, kind, broker, series in entities
            if series.tokens is not None
        ),
    )
    yield counter(
        "sluice_quota_throttle_seconds",
        "Throttle time of requests; in shadow, the time that they would have got.",
        _ENTITY_LABELS,
        (
            ((kind, *names, broker_label(broker)), series.totals.throttle_ms / 1000)
            for names, kind, broker, series in entities
        ),
    )
    yield counter(
        "sluice_quota_throttled_responses",
        "Throttled requests; in shadow, those that would have been throttled.",
        _ENTITY_LABELS,
        (((kind, *names, broker_label(broker)), series.totals.throttled) for names, kind, broker, series in entities),
    )
    yield counter(
        "sluice_shadow_throttle_seconds",
        "Throttle time that limits in shadow would have given.",
        _ENTITY_LABELS,
        (
            ((kind, *names, broker_label(broker)), series.totals.shadow_throttle_ms / 1000)
            for names, kind, broker, series in entities
            if series.has_shadow
        ),
    )
    yield counter(
        "sluice_shadow_throttled_responses",
        "Requests that limits in shadow would have throttled.",
        _ENTITY_LABELS,
        (
            ((kind, *names, broker_label(broker)), series.totals.shadow_throttled)
            for names, kind, broker, series in entities
            if series.has_shadow
        ),
    )
    for unit in _UNITS:
        yield _charged(entities, unit)
    said = "Entities summed up as other, each counted for each of its kinds."
    yield number("sluice_quota_entities_folded", said, entities.folded)


def _rates(entities: EntitySeries, unit: Unit) -> Iterator[Metric]:
    kinds = _kinds_of(unit)
    yield gauge(
        f"sluice_quota_limit_{unit.rate}",
        "Quota in force, and its rule.",
        (*_ENTITY_LABELS, "rule"),
        (
            ((kind, *names, broker_label(broker), label(series.rule.describe())), series.limit)
            for names, kind, broker, series in entities
            if kind in kinds and series.rule is not None and series.limit is not None and names != OTHER
        ),
    )
    yield gauge(
        f"sluice_shadow_limit_{unit.rate}",
        "Limit in shadow, which is measured but not enforced, and its rule.",
        (*_ENTITY_LABELS, "rule"),
        (
            ((kind, *names, broker_label(broker), label(series.rule.describe())), series.shadow_limit)
            for names, kind, broker, series in entities
            if kind in kinds and series.rule is not None and series.shadow_limit is not None and names != OTHER
        ),
    )
    yield gauge(
        f"sluice_quota_usage_{unit.rate}",
        "Rate over the enforcement window.",
        _ENTITY_LABELS,
        (
            ((kind, *names, broker_label(broker)), series.rate)
            for names, kind, broker, series in entities
            if kind in kinds and series.live
        ),
    )


def _charged(entities: EntitySeries, unit: Unit) -> Metric:
    told_apart = {kind: kind.row.word if unit.by_direction else kind for kind in _kinds_of(unit)}
    return counter(
        f"sluice_quota_{unit.charged}",
        unit.said,
        ("direction" if unit.by_direction else "kind", *_ENTITY_LABELS[1:]),
        (
            ((told_apart[kind], *names, broker_label(broker)), series.totals.charged)
            for names, kind, broker, series in entities
            if kind in told_apart
        ),
    )


def _kinds_of(unit: Unit) -> frozenset[QuotaKind]:
    return frozenset(kind for kind in CLIENT_KINDS if kind.row.unit is unit)
