"""Connection rates on a virtual clock: Kafka's figures, a reference model as oracle, strangers with many addresses."""

import tracemalloc
from collections.abc import Iterable, Iterator, Mapping
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas import connections
from quotas.connections import (
    BACKLOG,
    KIND,
    MOST_ADDRESSES,
    MOST_IN_NETWORK,
    MOST_NETWORKS,
    UNLIMITED,
    ConnectionRates,
    SimulatedAcceptor,
    counted_as,
)
from quotas.entities import Default, Entity
from quotas.names import FOLDED
from quotas.policy import Policy
from quotas.rate import Window
from tests.reference.connections import ConnectionQuotas, IpThrottled

DEFAULT = Default.DEFAULT


def policy(**limits: float) -> Policy:
    """Return limits by address, written with _ for dots; ``default`` for all others."""
    named = {Entity(ip=DEFAULT if ip == "default" else ip.strip("_").replace("_", ".")): n for ip, n in limits.items()}
    return Policy({entity: {KIND: limit} for entity, limit in named.items()})


def rates(
    rate: float | None = None,
    listener: float | None = None,
    by_ip: Policy = Policy(),  # noqa: B008  frozen
    window: Window = Window(),  # noqa: B008  frozen
) -> ConnectionRates:
    made = ConnectionRates(window, rate, {"A": listener, "B": None, "INTERNAL": None}, ["INTERNAL"])
    made.apply(by_ip)
    return made


def attempts(made: ConnectionRates, ip: str, times_ms: Iterable[int]) -> list[int]:
    """Return for how long each connection would be held."""
    return [made.admit("A", ip, 1, now_ms) for now_ms in times_ms if made.arrive("A", now_ms) == 0]


# -------------------------------------------------------------------------------------------------- Kafka's figures


def test_overloaded_listener_accepts_a_burst_and_then_waits() -> None:
    """Twenty at once at two a second; then waits, until the burst has left the window after eleven seconds."""
    made = rates(listener=2)
    assert [made.arrive("A", now_ms) for now_ms in range(0, 200, 10)] == [0] * 20
    now_ms, waits = 200, []
    while now_ms < 11_000:
        waits.append(made.arrive("A", now_ms))
        now_ms += waits[-1]
    assert waits[:3] == [300, 500, 1000]
    assert set(waits[2:]) == {1000}, "the cap of one sample: a connection a second is the least"


def test_the_longer_wait_counts_and_the_exempt_listener_neither_waits_nor_counts() -> None:
    made = rates(rate=2, listener=1, window=Window(2, 1000))
    assert made.arrive("A", 0) == 0
    assert made.arrive("A", 0) == 1000  # 2/s at the listener, where 1/s is allowed
    assert [made.arrive("INTERNAL", 0) for _ in range(100)] == [0] * 100
    assert made.arrive("B", 0) == 500  # 3/s in all, where 2/s are
    assert made.usage(0)[0] == ("", 3.0, 2)


def test_an_address_over_its_rate_leaves_no_trace_in_any_rate() -> None:
    made = rates(rate=100, listener=100, by_ip=policy(_10_0_0_1=2))
    held = attempts(made, "10.0.0.1", [0] * 100)
    assert held[:20] == [0] * 20
    assert all(throttle_ms > 0 for throttle_ms in held[20:])
    assert [each.rate for each in made.usage(0)][:2] == [2.0, 2.0]
    assert [each.rate for each in made.usage_of_addresses(0)] == [2.0]


def test_a_changed_limit_holds_at_once_and_for_what_was_used() -> None:
    made = rates(by_ip=policy(default=2))
    assert attempts(made, "10.0.0.1", range(20))[-1] == 0
    made.apply(policy(_10_0_0_1=1))
    assert attempts(made, "10.0.0.1", range(20, 21)) == [1000]
    made.apply(policy(_10_0_0_1=3))
    assert attempts(made, "10.0.0.1", range(21, 31)) == [0] * 10
    made.apply(Policy())
    assert not any(attempts(made, "10.0.0.1", range(31, 200)))
    assert list(made.usage_of_addresses(200)) == []


def test_the_largest_number_of_an_int_is_no_limit_and_exempts_from_the_default() -> None:
    made = rates(by_ip=policy(default=1, _10_0_0_1=UNLIMITED))
    assert not any(attempts(made, "10.0.0.1", range(1000)))
    assert any(attempts(made, "10.0.0.2", range(1000)))
    assert [each.ip for each in made.usage_of_addresses(1000)] == ["10.0.0.2"]


@pytest.mark.parametrize(
    ("host", "ip"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::FFFF:A00:1", "10.0.0.1"),
        ("2001:DB8:0:0:0:0:0:1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("::1.2.3.4", "::102:304"),
    ],
)
def test_ip_is_counted_alike_in_every_spelling(host: str, ip: str) -> None:
    assert counted_as(host) == ip


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1500),
            st.sampled_from(["A", "B", "INTERNAL"]),
            st.sampled_from(["10.0.0.1", "10.0.0.2", "::1"]),
            st.sampled_from([None, None, None, 1.0, 3.0, 20.0]),
        ),
        max_size=80,
    ),
    st.sampled_from([None, 1.0, 4.0]),
    st.sampled_from([None, 2.0]),
    st.sampled_from([Window(), Window(2, 1000), Window(1, 500)]),
)
def test_connection_rates_throttle_as_the_broker_model(
    steps: list[tuple[int, str, str, float | None]], rate: float | None, listener: float | None, window: Window
) -> None:
    """The reference model reproduces the numbers of Kafka's own unit tests (tests/reference)."""
    made = rates(rate, listener, window=window)
    broker = ConnectionQuotas(
        window, ["A", "B", "INTERNAL"], "INTERNAL", rate, {} if listener is None else {"A": listener}
    )
    now_ms, limits = 0, dict[Entity, float]()
    for step_ms, name, ip, limit in steps:
        now_ms += step_ms
        if limit is not None:
            broker.set_ip_rate(ip, limit)
            limits[Entity(ip=ip)] = limit
            made.apply(Policy({entity: {KIND: each} for entity, each in limits.items()}))
        expected = broker.accept(name, ip, now_ms)
        wait_ms = made.arrive(name, now_ms)
        now_ms += wait_ms
        throttle_ms = made.admit(name, ip, 1, now_ms)
        assert wait_ms == expected.wait_ms
        assert throttle_ms == (expected.ip_throttle_ms if isinstance(expected, IpThrottled) else 0)
        made.expire(now_ms)


# ------------------------------------------------------------------------------------------ strangers and their number


def ipv6(network: int, host: int) -> str:
    return counted_as(f"2001:db8:0:{network:x}::{host:x}")


def shared(made: ConnectionRates, now_ms: int = 0) -> Mapping[str, float]:
    """Return the rates of those who share a counter."""
    found = {each.ip: each.rate for each in made.usage_of_addresses(now_ms)}
    return {name: rate for name, rate in found.items() if "/" in name or name == FOLDED}


def test_without_a_limit_nothing_is_kept_of_an_address() -> None:
    made = rates(by_ip=policy(_10_0_0_1=5))
    for number in range(100_000):
        made.admit("A", f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}x", 1, 0)
    assert list(made.usage_of_addresses(0)) == []


def test_a_host_with_a_64_of_addresses_has_so_many_bursts_and_then_one_for_all_others() -> None:
    made = rates(by_ip=policy(default=1))
    served = sum(made.admit("A", ipv6(0, number), 1, 0) == 0 for number in range(5000))
    assert served == MOST_IN_NETWORK + 10
    assert shared(made) == {"2001:db8::/64": 1.0}
    assert made.admit("A", ipv6(1, 1), 1, 0) == 0, "another network notices nothing"
    assert made.admit("A", "10.0.0.1", 1, 0) == 0


def test_an_address_with_a_limit_of_its_own_is_never_thrown_together_with_others() -> None:
    known = ipv6(0, 7)
    made = rates(by_ip=Policy({Entity(ip=DEFAULT): {KIND: 1}, Entity(ip=known): {KIND: 3}}))
    for number in range(100, 2000):
        made.admit("A", ipv6(0, number), 1, 0)
    assert [made.admit("A", known, 1, 0) > 0 for _ in range(31)] == [False] * 30 + [True]


def many(number: int) -> Iterator[str]:
    addresses = (f"{one}.{two}.{three}.1" for one, two, three in product(range(1, 200), range(256), range(256)))
    return (address for _, address in zip(range(number), addresses, strict=False))


@pytest.mark.long
@pytest.mark.uncompiled("constants are replaced")
def test_a_million_addresses_take_bounded_memory_and_the_first_ones_keep_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "MOST_ADDRESSES", 2000)
    monkeypatch.setattr(connections, "MOST_NETWORKS", 200)
    made = rates(by_ip=policy(default=1))
    tracemalloc.start()
    for ip in many(3000):
        made.admit("A", ip, 1, 0)
    full, _ = tracemalloc.get_traced_memory()
    for ip in many(30_000):
        made.admit("A", ip, 1, 1)
    grown = tracemalloc.get_traced_memory()[0] - full
    tracemalloc.stop()
    assert len(list(made.usage_of_addresses(1))) == 2000 + 200 + 1
    assert grown < 100_000
    assert made.admit("A", "1.0.0.1", 1, 2) == 0
    assert FOLDED in shared(made, 2)


def test_bounds_of_address_counters_are_the_documented_ones() -> None:
    assert (MOST_ADDRESSES, MOST_IN_NETWORK, MOST_NETWORKS) == (20_000, 256, 2000)


def test_counters_go_a_window_after_their_last_event_and_leave_room() -> None:
    made = rates(by_ip=policy(default=1))
    for number in range(MOST_IN_NETWORK):
        made.admit("A", ipv6(0, number), 1, 0)
    made.admit("A", ipv6(0, 0), 1, 5000)
    made.expire(10_999)
    assert len(list(made.usage_of_addresses(10_999))) == MOST_IN_NETWORK
    made.expire(11_000)
    assert [each.ip for each in made.usage_of_addresses(11_000)] == [ipv6(0, 0)]
    for number in range(1, MOST_IN_NETWORK):
        made.admit("A", ipv6(0, number), 1, 11_000)
    assert shared(made, 11_000) == {}
    made.expire(22_000)
    assert list(made.usage_of_addresses(22_000)) == []


# ------------------------------------------------------------------------------------------------------------- brokers


def test_an_address_has_its_rate_at_each_broker() -> None:
    made = rates(by_ip=policy(default=1, _10_0_0_2=2))
    for ip, burst in (("10.0.0.1", 10), ("10.0.0.2", 20)):
        for broker in (1, 2):
            held = [made.admit("A", ip, broker, 0) for _ in range(burst + 5)]
            assert [throttle_ms > 0 for throttle_ms in held] == [False] * burst + [True] * 5
    assert {(each.ip, each.broker): each.rate for each in made.usage_of_addresses(0)} == {
        (ip, broker): rate for ip, rate in (("10.0.0.1", 1.0), ("10.0.0.2", 2.0)) for broker in (1, 2)
    }


def test_connection_assigned_to_a_broker_counts_there_alone() -> None:
    made = rates(by_ip=policy(default=1))
    for broker in (1, 2, 3):
        for _ in range(10):
            assert made.admit("A", "10.0.0.1", None, 0) == 0
            assert made.assign("10.0.0.1", broker, 0, 500) == 0
    assert {each.broker: each.rate for each in made.usage_of_addresses(500)} == {None: 0.0, 1: 1.0, 2: 1.0, 3: 1.0}


def test_ip_refused_at_its_broker_is_refused_unassigned_after_burst() -> None:
    made = rates(by_ip=policy(default=1))
    served = [made.admit("A", "10.0.0.1", None, 0) == 0 and made.assign("10.0.0.1", 1, 0, 0) == 0 for _ in range(100)]
    assert sum(served) == 10
    assert {each.broker: each.rate for each in made.usage_of_addresses(0)} == {None: 1.0, 1: 1.0}
    assert made.admit("A", "10.0.0.1", None, 0) > 0


def test_connection_assigned_after_its_sample_expired_gives_no_credit() -> None:
    made = rates(by_ip=policy(default=1))
    assert [made.admit("A", "10.0.0.1", None, 0) for _ in range(10)] == [0] * 10
    assert [made.assign("10.0.0.1", 1, 0, 11_000) for _ in range(10)] == [0] * 10
    assert [made.admit("A", "10.0.0.1", None, 11_000) > 0 for _ in range(11)] == [False] * 10 + [True]


# -------------------------------------------------------------------------------------------------------------- shadow


def test_shadow_waits_add_up_to_those_of_enforced_acceptor() -> None:
    """A hundred connections a second at ten a second for a minute: it would have waited nearly all of the time."""
    enforced, simulated = rates(listener=10), SimulatedAcceptor(rates(listener=10), "A")
    arrivals = range(0, 60_000, 10)
    waits, free_ms = list[int](), 0
    for now_ms in arrivals:
        if (free_ms := max(free_ms, now_ms)) < 59_990:
            waits.append(enforced.arrive("A", free_ms))
            free_ms += waits[-1]
    assert [wait_ms for now_ms in arrivals for wait_ms in simulated.arrive(now_ms)] == [each for each in waits if each]
    assert 40_000 < sum(waits) <= 61_000


def test_shadow_rate_below_the_limit_counts_no_wait() -> None:
    simulated = SimulatedAcceptor(rates(listener=10), "A")
    assert [simulated.arrive(now_ms) for now_ms in range(0, 60_500, 110)] == [[]] * 550


def test_shadow_backlog_after_a_storm_is_bounded_and_drains() -> None:
    simulated = SimulatedAcceptor(rates(listener=100), "A")
    for _ in range(50_000):
        simulated.arrive(0)
    assert len(simulated.settle(60_000)) <= BACKLOG
    assert simulated.settle(120_000) == []
    assert simulated.arrive(120_000) == []
