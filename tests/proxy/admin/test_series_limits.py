"""How many series a page has at most, however many clients, brokers and addresses there are."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from protocol.error_codes import ERROR_NAMES
from protocol.errors import Cause
from protocol.table import SPECS
from proxy.admin.metrics import Renderer
from proxy.admin.series import divide
from proxy.edge.stats import ThrottleTotals
from proxy.snapshot import ProcessState, Snapshot
from proxy.usage.latencies import BOUNDS_MS, Times
from proxy.usage.meter import ClientNames, ClientState, Traffic
from quotas.connections import AcceptRate, IpRate
from quotas.engine import Counted, CounterState
from quotas.entities import Default, Entity
from quotas.kinds import CLIENT_KINDS, QuotaKind
from tests.proxy.snapshots import EMPTY, PRODUCE, rendered

LISTENERS = [f"LISTENER-{number}" for number in range(5)]
APIS = sorted({spec.api_key for spec in SPECS.values() if spec.advertised})
TIMES = Times((1,) * (len(BOUNDS_MS) + 1), 1000)
COUNTED = Counted(10.0, 1, 1000, 1, 1000)


def counters(entities: int, brokers: int) -> Iterable[tuple[CounterState, Counted]]:
    """Yield counters of every kind, each with everything that a counter can show."""
    for number, kind, broker in product(range(entities), CLIENT_KINDS, range(brokers)):
        is_bucket = kind is QuotaKind.CONTROLLER_MUTATION_RATE
        yield (
            PRODUCE._replace(
                kind=kind,
                user=f"user-{number}",
                client_id="app",
                broker=broker,
                entity=Entity(user=f"user-{number}"),
                shadow_limit=500.0,
                tokens=5.0 if is_bucket else None,
                burst=10.0,
            ),
            COUNTED,
        )


def snapshot(entities: int, brokers: int, addresses: int, apis: int = len(APIS)) -> Snapshot:
    """Return a snapshot in which nothing is missing."""
    latencies = {(api_key, broker): TIMES for api_key in APIS[:apis] for broker in range(-1, brokers)}
    return replace(
        EMPTY,
        usage=list(counters(entities, brokers)),
        clients=[
            ClientState(ClientNames(listener, f"user-{number}", "app"), Traffic(7, 3, 9, 2, 5, 2), 1, is_throttled=True)
            for number in range(entities)
            for listener in LISTENERS
        ],
        latencies=latencies,
        proxy_latencies=latencies,
        response_errors=dict.fromkeys(product((10, 17, 18, 19, 20, 36, 37), ERROR_NAMES), 1),
        internal_errors={f"place {number}": 1 for number in range(50)},
        sessions=dict.fromkeys(LISTENERS, 1),
        connections=dict.fromkeys(product(LISTENERS, map(str, range(12))), 1),
        accept_rates=[AcceptRate("", 1.0, 2.0), *(AcceptRate(listener, 1.0, 2.0) for listener in LISTENERS)],
        accept_throttles={listener: ThrottleTotals(1, 1) for listener in LISTENERS},
        ip_throttles={listener: ThrottleTotals(1, 1) for listener in LISTENERS},
        ip_rates=[
            IpRate(f"10.0.{number >> 8}.{number & 255}", broker, Entity(ip=Default.DEFAULT), 5.0, 4.5)
            for number in range(addresses)
            for broker in range(brokers)
        ],
        authentications=dict.fromkeys(product(LISTENERS, ("PLAIN", "SCRAM-SHA-256"), ("succeeded", "failed")), 1),
        rejected=dict.fromkeys(product(("client", "broker"), Cause), 1),
        certificate_expiry_s=dict.fromkeys(LISTENERS, 1.8e9),
        brokers=dict.fromkeys(range(brokers), True),
        brokers_without_port=dict.fromkeys(LISTENERS, 0),
        workers=[ProcessState(up=True, restarts=0, cpu_s=1.5)] * 8,
        unseen_users=[f"unseen-{number}" for number in range(1000)],
    )


def counts(page: bytes) -> dict[str, float]:
    """Return every counter, by its name and labels."""
    return {
        f"{sample.name} {sorted(sample.labels.items())}": sample.value
        for family in text_string_to_metric_families(page.decode())
        if family.type in ("counter", "histogram") and family.name.startswith("sluice_")
        for sample in family.samples
    }


def number_of_series(page: bytes) -> int:
    return sum(not line.startswith(b"#") for line in page.splitlines())


@pytest.fixture(scope="module")
def large() -> Snapshot:
    return snapshot(entities=2000, brokers=30, addresses=500)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("max_series", [10_000, 20_000])
def test_a_page_has_so_many_series_at_most(large: Snapshot, max_series: int) -> None:
    page = rendered(Renderer(divide(max_series)), large)
    assert 0.8 * max_series < number_of_series(page) <= max_series


def test_page_with_2000_brokers_stays_below_series_limit() -> None:
    page = rendered(Renderer(divide(20_000)), snapshot(entities=5, brokers=2000, addresses=5))
    assert number_of_series(page) <= 20_000


def test_at_three_brokers_fifty_clients_are_shown_in_full() -> None:
    page = rendered(Renderer(divide(20_000)), snapshot(entities=50, brokers=3, addresses=50, apis=25)).decode()
    assert 'broker="sum"' not in page
    assert 'user="other"' not in page
    assert "sluice_ip_accept_rates_left_out 0.0" in page


def test_no_counter_decreases_as_clients_and_brokers_come() -> None:
    renderer, before = Renderer(divide(5_000)), dict[str, float]()
    for entities, brokers, apis in ((10, 2, 5), (60, 3, 8), (100, 10, 8), (400, 10, 20), (30, 30, 20), (400, 30, 20)):
        after = counts(rendered(renderer, snapshot(entities, brokers, 3, apis)))
        assert [key for key in after if after[key] < before.get(key, 0.0)] == []
        before = after
    assert any("'sum'" in key for key in before)
    assert any("'other'" in key for key in before)


def test_the_page_of_metrics_has_the_numbers() -> None:
    page = " ".join((Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8").split())
    limits = divide(20_000)
    for said in (
        f"more than {limits.counters} series of an entity",
        f"more than {limits.latencies} pairs",
        f"{limits.clients} clients have series",
        f"address and broker beyond {limits.addresses}",
    ):
        assert said in page
