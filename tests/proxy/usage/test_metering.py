"""The load of brokers, from what meters have counted, whoever else reads the meters."""

import asyncio

import pytest

from proxy.usage.meter import MeterKey, Traffic
from proxy.usage.metering import Loads
from proxy.usage.meters import Meters
from proxy.usage.records import Recorder
from quotas.engine import Engine
from quotas.policy import Policy

EVERY_S = 15.0


def noted(*each: tuple[int, int]) -> Loads:
    """Note requests and bytes of broker 1 in intervals, one after the other."""
    loads, requests, size = Loads(), 0, 0
    loads.update({1: Traffic()}, 0.0)
    for number, (more, bytes_more) in enumerate(each, 1):
        requests, size = requests + more, size + bytes_more
        loads.update({1: Traffic(size, requests=requests)}, number * EVERY_S)
    return loads


def test_requests_and_bytes_take_cpu_time() -> None:
    assert noted((15_000, 0)).of_brokers == {1: pytest.approx(19.0)}
    assert noted((0, 15_000_000_000)).of_brokers == {1: pytest.approx(390.0)}
    assert Loads().of_brokers == {}


def test_broker_load_follows_a_change_over_minutes() -> None:
    loads = [noted((15_000, 0), *[(30_000, 0)] * minutes * 4).of_brokers[1] for minutes in (0, 1, 2, 4, 20)]
    assert loads == pytest.approx([19.0, 26.5, 31.0, 35.4, 38.0], abs=0.1)


def test_an_idle_broker_has_no_load_after_a_while() -> None:
    assert noted((15_000, 0), *[(0, 0)] * 4 * 60).of_brokers[1] == pytest.approx(0.0, abs=0.01)


def test_a_broker_that_comes_back_begins_anew() -> None:
    loads = noted((15_000, 0))
    loads.update({}, 2 * EVERY_S)
    assert loads.of_brokers == {}
    loads.update({1: Traffic(requests=15_000)}, 3 * EVERY_S)
    assert loads.of_brokers == {}
    loads.update({1: Traffic(requests=45_000)}, 4 * EVERY_S)
    assert loads.of_brokers == {1: pytest.approx(38.0)}


def test_counts_of_meters_stay_when_rows_are_taken_and_clients_have_gone() -> None:
    meters = Meters(10)
    one, two = (meters.find(MeterKey("PLAIN", 1, "user", client)) for client in ("one", "two"))
    other = meters.find(MeterKey("PLAIN", 2, "user", "one"))

    def totals() -> dict[int, tuple[int, int]]:
        found = asyncio.run(meters.totals())
        return {broker: (each.requests, each.bytes_in + each.bytes_out) for broker, each in found.items()}

    for meter in (one, two, other):
        meter.produce_requests, meter.produce_bytes, meter.bytes_out = 2, 100, 30
    assert totals() == {1: (4, 276), 2: (2, 138)}
    one.take(0)
    two.take(0)
    meters.drop_unused((one.key,))
    other.other_requests += 1
    assert totals() == {1: (4, 276), 2: (3, 138)}
    for _ in range(2):
        list(Recorder(meters, [], Engine(Policy())).take(0))
    list(meters.take_traffic(0))
    assert len(meters) == 0
    assert totals() == {1: (4, 276), 2: (3, 138)}
