"""Kafka's own quota metrics, under the names that two established exporters use.

Dashboards made for brokers work with them. Units are those of JMX: bytes per second, percent, milliseconds. Kafka's
``throttle-time`` is the average throttle in the last two samples of 30 s, and NaN without any
(org.apache.kafka.common.metrics.stats.Avg).
"""

from collections.abc import Callable, Iterable, Iterator
from math import nan
from typing import Final, NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric

from config.settings import Dialect
from proxy.admin.entity_series import EntitySeries
from proxy.admin.exposition import broker_label
from proxy.admin.named_series import Names
from quotas.counted import Counted
from quotas.kinds import METERED, QuotaKind

_SAMPLE_S: Final = 30.0
_SAMPLES: Final = 2


class _MBean(NamedTuple):
    type: str
    rate: str


_MBEANS: Final = {
    QuotaKind.PRODUCER_BYTE_RATE: _MBean("Produce", "byte-rate"),
    QuotaKind.CONSUMER_BYTE_RATE: _MBean("Fetch", "byte-rate"),
    QuotaKind.REQUEST_PERCENTAGE: _MBean("Request", "request-time"),
    QuotaKind.CONTROLLER_MUTATION_RATE: _MBean("ControllerMutation", "mutation-rate"),
}
"""Kind → type in ``kafka.server:type=<type>,user=…,client-id=…``, and the rate attribute."""

_Key = tuple[QuotaKind, Names, int]


class _Dialect(NamedTuple):
    family: Callable[[str, str], str]
    """(MBean type, attribute) → family name."""
    labels: tuple[str, ...]
    resource: bool
    """The first label is the MBean's type."""


_DIALECTS: Final[dict[Dialect, _Dialect]] = {
    # prometheus/jmx_exporter, examples/kafka-2_0_0.yml
    "jmx_exporter": _Dialect(
        lambda _, attribute: f"kafka_server_quota_{attribute}",
        ("resource", "user", "clientId", "broker"),
        resource=True,
    ),
    # confluentinc/jmx-monitoring-stacks, the dashboard "Kafka Quotas"
    "confluent": _Dialect(
        lambda of, attribute: f"kafka_server_{of.lower()}_{attribute}", ("user", "client_id", "broker"), resource=False
    ),
}


class Dialects:
    """The families of the configured dialects; to be called once per snapshot."""

    def __init__(self, names: Iterable[Dialect]) -> None:
        self._dialects = [_DIALECTS[name] for name in dict.fromkeys(names)]
        self._throttles: dict[_Key, _RecentThrottles] = {}

    def families(self, entities: EntitySeries, now_s: float) -> Iterator[Metric]:
        """Yield the series of ``entities``, including ``other``, at ``now_s`` on a monotonic clock."""
        if not self._dialects:
            return
        rates: list[tuple[_Key, float]] = []
        delays: list[tuple[_Key, float]] = []
        recent: dict[_Key, _RecentThrottles] = {}
        for names, kind, broker, series in entities:
            if kind not in _MBEANS:
                continue
            key = (kind, names, broker)
            recent[key] = self._throttles.get(key) or _RecentThrottles()
            delays.append((key, recent[key].average_ms(series.totals, now_s)))
            if series.live:
                rates.append((key, series.rate))
        self._throttles = recent
        for dialect in self._dialects:
            yield from _families(dialect, rates, lambda mbean: mbean.rate)
            yield from _families(dialect, delays, lambda _: "throttle-time")


def _families(
    dialect: _Dialect, values: Iterable[tuple[_Key, float]], attribute: Callable[[_MBean], str]
) -> Iterable[Metric]:
    families: dict[str, GaugeMetricFamily] = {}
    for kind in METERED:
        if (mbean := _MBEANS.get(kind)) is not None:
            name = dialect.family(mbean.type, attribute(mbean).replace("-", "_"))
            families.setdefault(
                name, GaugeMetricFamily(name, f"As Kafka's {attribute(mbean)} of quotas.", labels=dialect.labels)
            )
    for (kind, names, broker), value in values:
        mbean = _MBEANS[kind]
        family = families[dialect.family(mbean.type, attribute(mbean).replace("-", "_"))]
        labels = (names.user, names.client_id, broker_label(broker))
        family.add_metric((mbean.type, *labels) if dialect.resource else labels, value)
    return families.values()


class _RecentThrottles:
    """The recent throttles of one counter."""

    __slots__ = ("_before", "_samples")

    def __init__(self) -> None:
        self._before = Counted()
        self._samples: list[tuple[float, int, int]] = []
        """(begin, number of throttles, their milliseconds) of each sample, oldest first."""

    def average_ms(self, totals: Counted, now_s: float) -> float:
        """Add the throttles counted since the last call, and return the average of the last samples."""
        throttled = totals.throttled - self._before.throttled
        throttle_ms = totals.throttle_ms - self._before.throttle_ms
        self._before = totals
        self._samples = [each for each in self._samples if now_s - each[0] < _SAMPLES * _SAMPLE_S]
        if throttled:
            if self._samples and now_s - self._samples[-1][0] < _SAMPLE_S:
                began_s, of_sample, ms_of_sample = self._samples.pop()
                throttled, throttle_ms = throttled + of_sample, throttle_ms + ms_of_sample
            else:
                began_s = now_s
            self._samples.append((began_s, throttled, throttle_ms))
        number = sum(each[1] for each in self._samples)
        return sum(each[2] for each in self._samples) / number if number else nan
