from collections.abc import Sequence
from dataclasses import replace
from math import isnan

import pytest
from prometheus_client.parser import text_string_to_metric_families

from config.settings import Dialect
from proxy.admin import metrics
from proxy.admin.metrics import Renderer
from proxy.admin.series_limits import divide
from quotas.engine import CounterState
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from tests.proxy.snapshots import EMPTY, PRODUCE, counted, shows

FETCH = PRODUCE._replace(kind=QuotaKind.CONSUMER_BYTE_RATE, user="alice", entity=Entity(user="alice"), broker=-1)
# What the dashboard asks for.
CONFLUENT = [f"kafka_server_{of}_{what}" for of in ("produce", "fetch") for what in ("byte_rate", "throttle_time")]

Series = tuple[dict[str, str], float]


class Scrapes:
    """One scrape after another, at moments of the test's own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *dialects: Dialect) -> None:
        self.now_s = 1000.0
        self._renderer = Renderer(divide(20_000), dialects)
        monkeypatch.setattr(metrics, "monotonic_s", lambda: self.now_s)

    def look(
        self, *usage: CounterState, throttled: int = 0, throttle_ms: int = 0
    ) -> dict[str, list[tuple[dict[str, str], float]]]:
        """Return labels and value of each series of brokers, by name; so much was throttled since the last scrape."""
        taken = [(one, counted(one)._replace(throttled=throttled, throttle_ms=throttle_ms)) for one in usage]
        text = self._renderer.render(replace(EMPTY, usage=taken)).decode()
        return {
            family.name: [(sample.labels, sample.value) for sample in family.samples]
            for family in text_string_to_metric_families(text)
            if family.name.startswith("kafka_")
        }


def test_kafka_metrics_are_absent_unless_dialect_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Scrapes(monkeypatch).look(PRODUCE) == {}
    assert b"kafka_server" not in Renderer(divide(20_000)).render(shows(PRODUCE))


def test_jmx_exporter_dialect_has_its_metric_names_and_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Scrapes(monkeypatch, "jmx_exporter").look(PRODUCE, FETCH, throttled=2, throttle_ms=1500)
    assert shown["kafka_server_quota_byte_rate"] == [
        ({"resource": "Produce", "user": "", "clientId": "greedy", "broker": "1"}, 500.0),
        ({"resource": "Fetch", "user": "alice", "clientId": "greedy", "broker": "bootstrap"}, 500.0),
    ]
    assert [value for _, value in shown["kafka_server_quota_throttle_time"]] == [750.0, 750.0]


def test_confluent_dialect_has_its_metric_names_and_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Scrapes(monkeypatch, "confluent").look(PRODUCE, FETCH)
    assert set(CONFLUENT) <= set(shown)
    assert shown["kafka_server_produce_byte_rate"] == [({"user": "", "client_id": "greedy", "broker": "1"}, 500.0)]
    assert shown["kafka_server_fetch_byte_rate"][0][0] == {
        "user": "alice",
        "client_id": "greedy",
        "broker": "bootstrap",
    }


def test_two_dialects_configured_at_once_are_both_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Scrapes(monkeypatch, "jmx_exporter", "confluent").look(PRODUCE)
    assert {"kafka_server_quota_byte_rate", "kafka_server_produce_byte_rate"} <= set(shown)


def averages(scrapes: Scrapes, steps: Sequence[tuple[float, int, int]]) -> list[float]:
    """Return the throttle time shown at each scrape: (seconds after the one before, throttled since, for so long)."""
    shown = []
    for after_s, throttled, throttle_ms in steps:
        scrapes.now_s += after_s
        look = scrapes.look(PRODUCE, throttled=throttled, throttle_ms=throttle_ms)
        shown.append(look["kafka_server_produce_throttle_time"][0][1])
    return shown


def test_throttle_time_is_the_average_of_the_last_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    scrapes = Scrapes(monkeypatch, "confluent")
    shown = averages(scrapes, [(0, 0, 0), (15, 2, 1000), (15, 1, 2000), (15, 0, 0), (15, 1, 4000), (15, 0, 0)])
    assert isnan(shown[0])
    assert shown[1:4] == [500.0, 1000.0, 1000.0]
    assert shown[4] == pytest.approx(7000 / 4)
    assert shown[5] == 4000.0


def test_throttle_time_is_nan_again_when_nothing_was_throttled_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = averages(Scrapes(monkeypatch, "confluent"), [(0, 1, 700), (59, 0, 0), (1, 0, 0)])
    assert shown[:2] == [700.0, 700.0]
    assert isnan(shown[2])


def test_a_counter_that_is_gone_keeps_no_average(monkeypatch: pytest.MonkeyPatch) -> None:
    scrapes = Scrapes(monkeypatch, "confluent")
    assert averages(scrapes, [(0, 3, 300)]) == [100.0]
    scrapes.now_s += 1
    assert scrapes.look()["kafka_server_produce_byte_rate"] == []
