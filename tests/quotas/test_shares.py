"""The shares of one limit that several processes count, and the rates that come of them."""

from collections import deque
from collections.abc import Generator
from heapq import heappop, heappush
from itertools import count
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.counted import CLUSTER, CounterKey
from quotas.engine import Engine
from quotas.entities import Entity, Group, Prefix
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms
from quotas.shares import FRESH_MS, MOST_TOLD, Demand, grown_late, shares, told

PRODUCE = QuotaKind.PRODUCER_BYTE_RATE
MUTATIONS = QuotaKind.CONTROLLER_MUTATION_RATE
BATCH = Entity(client_id="batch")
LIMIT = 1_000_000.0

demands = st.lists(
    st.builds(Demand, st.floats(0, 3, allow_nan=False), st.integers(0, 1000) | st.just(0)), min_size=1, max_size=16
)


def engine(limit: float = LIMIT, entity: Entity = BATCH, **terms: object) -> Engine:
    return Engine(Policy({entity: {PRODUCE: limit}}, {entity: Terms(of_cluster=True, **terms)}))  # type: ignore[arg-type]


class TestShares:
    @given(demands)
    def test_shares_add_up_to_the_limit_and_none_is_zero(self, told: list[Demand]) -> None:
        found = shares(told)
        assert sum(found) == pytest.approx(1)
        assert min(found) >= 0.01 / len(told)

    @given(demands)
    def test_instance_without_waiting_clients_keeps_what_it_uses(self, told: list[Demand]) -> None:
        if sum(each.used for each in told if not each.waiting) > 0.4:
            return
        for each, part in zip(told, shares(told), strict=True):
            assert each.waiting or part >= each.used * 0.98

    @given(st.lists(st.integers(1, 50), min_size=1, max_size=16))
    def test_instances_with_waiting_clients_share_by_their_number(self, waiting: list[int]) -> None:
        for number, part in zip(waiting, shares([Demand(1.0, number) for number in waiting]), strict=True):
            assert part == pytest.approx(number / sum(waiting), rel=0.03, abs=0.02)

    def test_idle_instances_leave_nearly_the_whole_limit_to_others(self) -> None:
        assert shares([Demand(1.0, 1), Demand(), Demand(), Demand()])[0] > 0.97

    def test_share_grows_one_turn_after_it_was_found(self) -> None:
        key = CounterKey(PRODUCE, "", "batch", CLUSTER)
        before: dict[CounterKey, float] = {}
        in_force = []
        for part in (0.5, 0.9, 0.6, 0.2, None, 0.6):
            found = {} if part is None else {key: part}
            in_force.append(grown_late(found, 0.5, before, 0.5).get(key))
            before = found
        assert in_force == [0.5, 0.5, 0.6, 0.2, 0.2, 0.5]

    def test_free_limit_without_waiting_clients_is_shared_equally(self) -> None:
        assert shares([Demand(), Demand()]) == [0.5, 0.5]
        first, second = shares([Demand(0.4), Demand()])
        assert first > 0.65
        assert second > 0.25


class TestCountersOfTheCluster:
    def test_cluster_scope_counter_is_one_for_all_brokers(self) -> None:
        of = engine()
        first, second = (of.resolve("u", "batch", PRODUCE, node_id) for node_id in (1, 2))
        assert first is second
        assert first.key.broker == CLUSTER
        assert of.resolve("u", "other", PRODUCE, 1) is not of.resolve("u", "other", PRODUCE, 2)

    @pytest.mark.parametrize(
        ("entity", "client"),
        [
            (Entity(user="u"), ("u", "x")),
            (Entity(user="u", client_id="x"), ("u", "x")),
            (Entity(client_id=Prefix("team-")), ("u", "team-a")),
            (Entity(user=Group("g")), ("u", "x")),
            (Entity(client_id="x", cap=True), ("u", "x")),
        ],
    )
    def test_cluster_scope_rule_has_one_counter_for_all_brokers(self, entity: Entity, client: tuple[str, str]) -> None:
        policy = Policy({entity: {PRODUCE: LIMIT}}, {entity: Terms(of_cluster=True)}, {"g": ["u"]})
        of = Engine(policy)
        resolve = of.resolve_caps if entity.cap else lambda *asked: (of.resolve(*asked),)
        ((first,), (second,)) = (resolve(*client, PRODUCE, node_id) for node_id in (1, 2))
        assert first is second
        assert first.limit == LIMIT

    def test_changed_scope_of_a_rule_is_in_force_at_once(self) -> None:
        of = engine()
        before, generation = of.resolve("u", "batch", PRODUCE, 1), of.generation
        of.apply(Policy({BATCH: {PRODUCE: LIMIT}}), 0)
        assert of.generation > generation
        assert of.resolve("u", "batch", PRODUCE, 1).key.broker == 1
        of.apply(Policy({BATCH: {PRODUCE: LIMIT}}, {BATCH: Terms(of_cluster=True)}), 0)
        assert of.resolve("u", "batch", PRODUCE, 1) is before

    def test_a_share_is_enforced_and_the_limit_is_shown(self) -> None:
        of = engine()
        bound = of.resolve("u", "batch", PRODUCE, 1)
        assert list(of.share({bound.key: 0.25}, 0.5, 0)) == [bound]
        assert bound.limit == LIMIT / 4
        (state,) = of.usage(0)
        assert state.limit == LIMIT
        assert list(of.share({bound.key: 0.2501}, 0.5, 0)) == [None]

    def test_a_counter_that_is_new_has_the_share_that_was_told_before(self) -> None:
        of = engine()
        list(of.share({}, 0.5, 0))
        assert of.resolve("u", "batch", PRODUCE, 1).limit == LIMIT / 2

    def test_a_share_that_rises_ends_a_debt(self) -> None:
        of = engine()
        bound = of.resolve("u", "batch", PRODUCE, 1)
        list(of.share({bound.key: 0.01}, 0.5, 0))
        bound.owe(bound.charge(LIMIT, 0), 0)
        assert bound.owed_ms(0) > 60_000
        list(of.share({bound.key: 1.0}, 0.5, 0))
        assert bound.owed_ms(0) == 0

    @pytest.mark.parametrize("used", [0.4, 1.0, 1.2])
    def test_share_that_shrinks_brings_no_longer_wait(self, used: float) -> None:
        of = engine()
        bound = of.resolve("u", "batch", PRODUCE, 1)
        bound.owe(bound.charge(used * 10 * LIMIT, 0), 0)
        owed_ms = bound.owed_ms(0)
        list(of.share({bound.key: 0.1}, 0.5, 0))
        assert bound.owed_ms(0) == pytest.approx(owed_ms, abs=1)

    def test_share_that_grows_brings_no_burst(self) -> None:
        of = engine()
        bound = of.resolve("u", "batch", PRODUCE, 1)
        list(of.share({}, 0.1, 0))
        assert bound.charge(LIMIT, 0) == 0
        list(of.share({bound.key: 0.9}, 0.1, 0))
        assert bound.charge(LIMIT * 0.9, 0) == pytest.approx(1000, abs=1)

    def test_limits_in_shadow_are_shared_too(self) -> None:
        of = engine(shadow=True)
        bound = of.resolve("u", "batch", PRODUCE, 1)
        bound.charge(LIMIT, 0)
        list(of.share({bound.key: 0.25}, 0.5, 0))
        assert (bound.limit, bound.shadow_limit) == (None, LIMIT / 4)
        assert dict(of.demands(0))[bound.key].used == pytest.approx(0.1)

    def test_demand_is_sent_when_clients_wait_or_use_much(self) -> None:
        of = engine()
        bound = of.resolve("u", "batch", PRODUCE, 1)
        assert told(of.demands(0)) == {}
        bound.charge(LIMIT / 20, 0)
        assert told(of.demands(0)) == {}
        list(of.share({bound.key: 0.5}, 0.5, 0))
        bound.charge(LIMIT * 1.95, 0)
        for client_id in ("a", "b"):  # one address: one client
            bound.hold_back(("u", "10.0.0.1", client_id), 100)
        bound.hold_back(("u", "10.0.0.2", "a"), 200)
        assert told(of.demands(0)) == {bound.key: Demand(0.2, 2)}
        assert dict(of.demands(150))[bound.key].waiting == 1

    def test_greatest_demand_is_sent_when_names_are_too_many(self) -> None:
        made_up = [(CounterKey(PRODUCE, "", f"name-{number}", CLUSTER), Demand(0.02)) for number in range(MOST_TOLD)]
        waits, uses = (CounterKey(PRODUCE, "", name, CLUSTER) for name in ("waits", "uses"))
        found = told([*made_up, (waits, Demand(0.0, 1)), (uses, Demand(0.9))])
        assert len(found) == MOST_TOLD
        assert {waits, uses} <= found.keys()

    def test_mutation_quota_with_cluster_scope_has_no_shares(self) -> None:
        of = Engine(Policy({BATCH: {MUTATIONS: 5.0}}, {BATCH: Terms(of_cluster=True)}))
        bound = of.resolve("u", "batch", MUTATIONS, 1)
        assert bound.key.broker == CLUSTER
        assert list(of.share({bound.key: 0.5}, 0.5, 0)) == []


def simulate(
    connections: tuple[int, ...], size: float, *, late_ms: int = 500, last_s: int = 150
) -> tuple[list[float], float]:
    """Let greedy connections at each process produce under one limit, all from the same moment on; return the bytes
    that went in each second, and the longest wait of a request in seconds.

    Each process looks every half second at what all told last, and enforces its share ``late_ms`` later.
    """
    random, numbers = Random(1), count()
    engines = [engine() for _ in connections]
    bounds = [each.resolve("u", "batch", PRODUCE, 1) for each in engines]
    told = [Demand()] * len(connections)
    queues: list[deque[str]] = [deque() for _ in connections]
    went = [0.0] * last_s
    waits = [0.0]
    events: list[tuple[float, int, Generator[float, float, None]]] = []

    def exchange(number: int) -> Generator[float, float, None]:
        bound, now, even = bounds[number], 500.0 * number / len(connections), 1 / len(connections)
        before = {bound.key: even}
        while True:
            now_ms = yield now
            told[number] = dict(engines[number].demands(int(now_ms)))[bound.key]
            found = {bound.key: shares(told)[number]}
            now_ms = yield now_ms + late_ms
            list(engines[number].share(grown_late(found, even, before, even), even, int(now_ms)))
            before = found
            now = max(now + 500, now_ms)

    def produce(number: int, name: str) -> Generator[float, float, None]:
        bound, client, queue, now = bounds[number], ("u", name, "batch"), queues[number], random.random() * 20
        while True:
            now_ms = began = yield now
            queue.append(name)
            while bound.owed_ms(int(now_ms)) or queue[0] != name:
                bound.hold_back(client, int(now_ms) + 2 * FRESH_MS)
                now_ms = yield now_ms + 10 + random.random()
            queue.popleft()
            waits.append((now_ms - began) / 1000)
            throttle_ms = bound.charge(size, int(now_ms))
            went[int(now_ms / 1000)] += size
            if throttle_ms:
                bound.owe(throttle_ms, int(now_ms))
                bound.hold_back(client, int(now_ms) + 2 * FRESH_MS)
            now = now_ms + 1 + min(throttle_ms, FRESH_MS) + random.random()

    for of in engines:
        list(of.share({}, 1 / len(connections), 0))
    parties = [exchange(number) for number in range(len(connections))]
    parties += [produce(n, f"{n}-{each}") for n, several in enumerate(connections) for each in range(several)]
    for party in parties:
        heappush(events, (next(party), next(numbers), party))
    while events and events[0][0] < last_s * 1000:
        now, _, party = heappop(events)
        heappush(events, (party.send(now), next(numbers), party))
    return went, max(waits)


def best(went: list[float], begin: int = 0) -> float:
    """Return the most that went in any ten seconds, as a part of the limit."""
    return max(sum(went[at : at + 10]) for at in range(begin, len(went) - 9)) / 10 / LIMIT


@pytest.mark.parametrize("size", [16_000.0, 50_000.0])
@pytest.mark.parametrize("connections", [(1, 1), (4, 4), (6, 1), (2, 2, 2, 2)])
def test_demand_that_begins_everywhere_at_once_has_one_burst_and_short_waits(
    connections: tuple[int, ...], size: float
) -> None:
    went, longest_s = simulate(connections, size, late_ms=100, last_s=40)
    assert best(went) <= 1.25
    assert longest_s <= 8


@pytest.mark.long
@pytest.mark.parametrize("size", [16_000.0, 100_000.0])
@pytest.mark.parametrize("connections", [(1, 0), (1, 1), (4, 4), (6, 1), (1, 0, 0, 0), (2, 2, 2, 2), (8, 0, 0, 0)])
def test_processes_sharing_a_limit_reach_it_together(connections: tuple[int, ...], size: float) -> None:
    went, _ = simulate(connections, size)
    assert 0.95 < sum(went[22:]) / (len(went) - 22) / LIMIT < 1.05
    assert best(went, 22) < 1.25
