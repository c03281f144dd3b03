"""Builds metric families from rows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from quotas.counted import CLUSTER

SUMMED: Final = -3
"""The ``broker`` of series that sum up all brokers, because there are too many for series of their own."""

StrT = TypeVar("StrT", bound=str)

Row = tuple[tuple[str, ...], float]
"""A series: its label values, in the order of its family's labels, and its value."""


def number(name: str, documentation: str, value: float) -> Metric:
    return GaugeMetricFamily(name, documentation, value=value)


def total(name: str, documentation: str, value: float) -> Metric:
    return CounterMetricFamily(name, documentation, value=value)


def gauge(name: str, documentation: str, labels: Sequence[str], rows: Iterable[Row]) -> Metric:
    family = GaugeMetricFamily(name, documentation, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def counter(name: str, documentation: str, labels: Sequence[str], rows: Iterable[Row]) -> Metric:
    family = CounterMetricFamily(name, documentation, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def by_label(values: Mapping[StrT, float]) -> Iterator[Row]:
    return (((label,), value) for label, value in values.items())


def broker_label(node_id: int) -> str:
    """Return a broker's label: bootstrap connections have no node id, and some counters are shared by all brokers."""
    if node_id == CLUSTER:
        return "all"
    if node_id == SUMMED:
        return "sum"
    return str(node_id) if node_id >= 0 else "bootstrap"
