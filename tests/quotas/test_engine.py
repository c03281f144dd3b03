import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.engine import CounterKey, Engine, Window
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.names import OTHER
from quotas.policy import Policy, PolicyChange, change

PRODUCE = QuotaKind.PRODUCER_BYTE_RATE
FETCH = QuotaKind.CONSUMER_BYTE_RATE
REQUEST = QuotaKind.REQUEST_PERCENTAGE
DEFAULT = Default.DEFAULT
KEEP_MS = Window().keep_ms


def produce(limits: dict[Entity, float]) -> Policy:
    return Policy({entity: {PRODUCE: limit} for entity, limit in limits.items()})


GREEDY = Entity(client_id="greedy")
EVERYBODY = Entity(client_id=DEFAULT)


def test_clients_with_the_same_tags_share_a_counter_per_broker() -> None:
    engine = Engine(produce({GREEDY: 1000}))
    bound = engine.resolve("alice", "greedy", PRODUCE, 1)
    assert engine.resolve("bob", "greedy", PRODUCE, 1) is bound
    assert engine.resolve("alice", "greedy", PRODUCE, 2) is not bound
    assert engine.resolve("alice", "other", PRODUCE, 1) is not bound
    assert (bound.kind, bound.key.user, bound.key.client_id, bound.key.broker) == (PRODUCE, "", "greedy", 1)
    assert (bound.limit, bound.rule) == (1000, GREEDY)
    assert bound.charge(10_000, 0) == 0
    assert bound.charge(1000, 0) == 1000


def test_request_time_is_throttled_one_window_at_most_and_bytes_without_end() -> None:
    engine = Engine(Policy({GREEDY: {REQUEST: 1, PRODUCE: 1}}), Window(11, 500))
    assert engine.resolve("", "greedy", REQUEST, 1).charge(1e6, 0) == 500
    assert engine.resolve("", "greedy", PRODUCE, 1).charge(1e6, 0) == 10**9 - 5000


def test_without_a_quota_of_a_kind_nothing_is_kept() -> None:
    engine = Engine(produce({GREEDY: 1000}))
    bounds = {engine.resolve("u", f"client-{number}", FETCH, 1) for number in range(100)}
    assert len(bounds) == 1
    inert = bounds.pop()
    assert inert.charge(1e15, 0) == inert.check(0) == 0
    inert.record(1e15, 0)
    inert.count_throttle(1)
    assert (inert.limit, inert.rule, inert.recorded_total) == (None, None, 0)
    assert engine.usage(0) == []


@pytest.mark.parametrize("kind", [QuotaKind.CONNECTION_CREATION_RATE])
def test_kinds_that_are_not_of_clients_are_not_resolved(kind: QuotaKind) -> None:
    with pytest.raises(KeyError):
        Engine(Policy()).resolve("u", "c", kind, 1)


def test_a_changed_limit_acts_on_what_was_recorded_already() -> None:
    engine = Engine(produce({GREEDY: 2000}))
    bound = engine.resolve("", "greedy", PRODUCE, 1)
    assert bound.charge(27_500, 0) == 3750
    engine.apply(produce({GREEDY: 3000}), 0)
    assert bound.charge(0, 0) == 0
    engine.apply(produce({GREEDY: 500}), 0)
    assert bound.charge(0, 0) == 45_000
    assert engine.resolve("", "greedy", PRODUCE, 1) is bound


def test_a_limit_that_appears_finds_what_was_used_without_one() -> None:
    engine = Engine(produce({GREEDY: 1000}))
    bound = engine.resolve("", "modest", PRODUCE, 1)
    assert bound.charge(50_000, 0) == 0
    engine.apply(produce({GREEDY: 1000, EVERYBODY: 1000}), 0)
    assert bound.charge(0, 0) == 40_000
    assert bound.rule == EVERYBODY


def test_a_removed_limit_leaves_the_next_level_for_the_same_tags() -> None:
    engine = Engine(produce({GREEDY: 1000, EVERYBODY: 7}))
    bound = engine.resolve("", "greedy", PRODUCE, 1)
    engine.apply(produce({EVERYBODY: 7}), 0)
    assert (bound.limit, bound.rule) == (7, EVERYBODY)
    engine.apply(produce({}), 0)
    assert (bound.limit, bound.rule) == (None, None)
    assert bound.charge(1e9, 0) == 0


def test_a_new_level_moves_clients_to_another_counter_and_back() -> None:
    engine = Engine(produce({GREEDY: 1000}))
    by_client = engine.resolve("alice", "greedy", PRODUCE, 1)
    by_client.charge(1, 0)
    generation = engine.generation
    alice = Entity(user="alice")
    engine.apply(produce({GREEDY: 1000, alice: 5}), 0)
    assert engine.generation > generation
    by_user = engine.resolve("alice", "greedy", PRODUCE, 1)
    assert (by_user.key.user, by_user.key.client_id, by_user.limit) == ("alice", "", 5)
    engine.apply(produce({GREEDY: 1000}), 0)
    assert engine.resolve("alice", "greedy", PRODUCE, 1) is by_client


def test_levels_stay_in_use_after_their_last_limit_has_gone() -> None:
    engine = Engine(produce({GREEDY: 1000, Entity(user="alice"): 5}))
    engine.apply(produce({Entity(user="alice"): 5}), 0)
    bound = engine.resolve("mallory", "x", PRODUCE, 1)
    assert (bound.key.user, bound.key.client_id) == ("", "x")


def test_changes_are_counted_per_limit_of_any_kind() -> None:
    address = Entity(ip="10.0.0.1")
    before = Policy({GREEDY: {PRODUCE: 1, FETCH: 1}, address: {QuotaKind.CONNECTION_CREATION_RATE: 3}})
    after = Policy({GREEDY: {PRODUCE: 2, REQUEST: 1}, EVERYBODY: {QuotaKind.CONTROLLER_MUTATION_RATE: 1}})
    assert change(before, after) == PolicyChange(added=2, changed=1, removed=2)
    assert change(after, after) == PolicyChange()


def test_every_change_makes_sessions_resolve_again_and_nothing_else_does() -> None:
    engine = Engine(produce({GREEDY: 1000}))
    seen = engine.generation
    for limits, rises in [
        ({GREEDY: 1000.0}, False),
        ({GREEDY: 5.0}, True),
        ({GREEDY: 5.0, EVERYBODY: 1.0}, True),
        ({}, True),
    ]:
        engine.apply(produce(limits), 0)
        assert (engine.generation > seen) is rises
        seen = engine.generation


def test_usage_lists_limited_counters_only() -> None:
    engine = Engine(produce({GREEDY: 1000}))
    engine.resolve("u", "modest", PRODUCE, 1).charge(5, 0)
    bound = engine.resolve("u", "greedy", PRODUCE, 1)
    throttle_ms = bound.charge(12_000, 0)
    bound.count_throttle(throttle_ms)
    (usage,) = engine.usage(0)
    assert CounterKey(usage.kind, usage.user, usage.client_id, usage.broker) == bound.key
    assert (usage.entity, usage.limit, usage.rate) == (GREEDY, 1000, 1200)
    assert (usage.charged_total, usage.throttled_total, usage.throttle_ms_total) == (12_000, 1, 2000)


class TestExpiry:
    @pytest.mark.long
    def test_a_counter_goes_when_its_last_event_has_left_the_window(self) -> None:
        engine = Engine(produce({EVERYBODY: 1000}))
        for number in range(1000):
            engine.resolve("u", f"client-{number}", PRODUCE, 1).charge(1, number)
        assert engine.expire(KEEP_MS - 1) == 0
        assert engine.expire(KEEP_MS) == 1
        assert engine.expire(KEEP_MS + 999) == 0  # whole windows at a time, never too early
        assert len(engine.usage(0)) == 999
        assert engine.expire(KEEP_MS + 1000) == 999
        assert engine.usage(0) == []

    def test_busy_counter_is_never_expired(self) -> None:
        engine = Engine(produce({EVERYBODY: 1000}))
        for now_ms in range(0, 10 * KEEP_MS, 700):
            engine.resolve("u", "busy", PRODUCE, 1).charge(1, now_ms)
            assert engine.expire(now_ms) == 0

    def test_counter_without_charge_expires_a_window_after_lookup(self) -> None:
        engine = Engine(produce({EVERYBODY: 1000}))
        engine.resolve("u", "curious", PRODUCE, 1)
        assert engine.expire(5) == 0
        assert engine.expire(1000 + KEEP_MS) == 1

    def test_held_counter_rests_with_its_totals_and_is_not_listed(self) -> None:
        engine = Engine(produce({GREEDY: 1000}))
        held = engine.resolve("u", "greedy", PRODUCE, 1)
        held.hold()
        held.charge(10, 0)
        assert len(engine.usage(0)) == 1
        for now_ms in range(0, 5 * KEEP_MS, 1000):
            assert engine.expire(now_ms) == 0
        assert held.rests
        assert held.last_ms is None, "its samples are gone"
        assert engine.usage(5 * KEEP_MS) == []
        assert [gone.counted.charged for gone in engine.take_gone()] == [10]
        engine.apply(produce({GREEDY: 10}), 5 * KEEP_MS)
        assert engine.usage(5 * KEEP_MS) == []
        assert engine.resolve("u", "greedy", PRODUCE, 1) is held
        assert held.charge(200, 5 * KEEP_MS) == 10_000
        assert held.recorded_total == 210
        ((_, counted),) = engine.take(5 * KEEP_MS)
        assert counted.charged == 200

    @pytest.mark.parametrize("rests", [True, False])
    def test_counter_is_dropped_once_it_is_idle_and_nobody_holds_it(self, rests: bool) -> None:
        engine = Engine(produce({GREEDY: 1000}))
        held = engine.resolve("u", "greedy", PRODUCE, 1)
        for _ in range(2):
            held.hold()
        held.charge(10, 0)
        held.let_go()
        assert engine.expire(0) == 0
        if rests:
            assert engine.expire(KEEP_MS) == 0
        held.let_go()
        assert engine.expire(KEEP_MS + 1000) == (not rests)
        assert engine.expire(2 * KEEP_MS + 1000) == rests
        assert engine.resolve("u", "greedy", PRODUCE, 1) is not held

    def test_throttle_counted_while_a_counter_rests_is_taken(self) -> None:
        engine = Engine(produce({GREEDY: 1000}))
        held = engine.resolve("u", "greedy", PRODUCE, 1)
        held.hold()
        for now_ms in (0, KEEP_MS):
            engine.expire(now_ms)
        held.count_shadow(7)
        ((_, counted),) = engine.take(KEEP_MS)
        assert counted.shadow_throttle_ms == 7

    @given(
        st.lists(
            st.tuples(st.integers(0, 6000), st.integers(0, 30_000), st.booleans(), st.sampled_from(["a", "b"])),
            max_size=40,
        )
    )
    def test_expiry_of_counters_changes_no_throttle(self, history: list[tuple[int, int, bool, str]]) -> None:
        swept, unswept = Engine(produce({EVERYBODY: 1000})), Engine(produce({EVERYBODY: 1000}))
        held = {name: swept.resolve("u", name, PRODUCE, 1) for name in "ab"}
        for bound in held.values():
            bound.hold()
        now_ms = 0
        for pause_ms, size, resolve_again, name in history:
            now_ms += pause_ms
            swept.expire(now_ms)
            if resolve_again:
                assert swept.resolve("u", name, PRODUCE, 1) is held[name]
            expected = unswept.resolve("u", name, PRODUCE, 1).charge(size, now_ms)
            assert held[name].charge(size, now_ms) == expected


class TestRoom:
    """The names of all counters together are bounded."""

    LONG = tuple("x" * 250 + f"{number:04d}" for number in range(1000))

    def crowded(self, limits: dict[Entity, float]) -> Engine:
        engine = Engine(produce(limits), max_names_bytes=10_000)
        for now_ms, name in enumerate(self.LONG):
            engine.resolve("u", name, PRODUCE, 1).charge(10, now_ms)
        return engine

    def test_client_ids_over_the_bound_share_their_users_counter(self) -> None:
        engine = self.crowded({Entity(user=DEFAULT, client_id=DEFAULT): 1000})
        counters = {usage.client_id: usage for usage in engine.usage(1000)}
        assert len(counters) < 40
        assert counters[OTHER].limit == 1000
        assert sum(usage.charged_total for usage in counters.values()) == 10_000
        assert engine.resolve("other", "x", PRODUCE, 1) is not engine.resolve("u", "x", PRODUCE, 1)

    @pytest.mark.parametrize(
        ("default", "entity"),
        [
            (EVERYBODY, GREEDY),
            (Entity(DEFAULT, DEFAULT), Entity("u", "greedy")),
            (Entity(DEFAULT, DEFAULT), Entity(DEFAULT, "greedy")),
        ],
    )
    def test_a_client_with_a_quota_of_its_own_has_its_counter(self, default: Entity, entity: Entity) -> None:
        engine = self.crowded({default: 1000, entity: 5})
        bound = engine.resolve("u", "greedy", PRODUCE, 1)
        assert (bound.key.client_id, bound.limit) == ("greedy", 5)

    def test_idle_connected_clients_shut_nobody_out_of_a_counter(self) -> None:
        engine = Engine(produce({EVERYBODY: 1000}), max_names_bytes=10_000)
        idle = [engine.resolve("u", name, PRODUCE, 1) for name in self.LONG[:40]]
        for bound in idle:
            bound.hold()
            bound.charge(10, 0)
        assert engine.resolve("u", "late", PRODUCE, 1).key.client_id == OTHER
        generation = engine.generation
        for now_ms in range(0, 3 * KEEP_MS, 1000):
            engine.expire(now_ms)
        assert engine.generation > generation, "who shares a counter asks again"
        assert engine.resolve("u", "late", PRODUCE, 1).key.client_id == "late"
        for bound in idle:  # all are in use again: their names count
            bound.charge(10, 3 * KEEP_MS)
        for now_ms in range(3 * KEEP_MS, 4 * KEEP_MS - 1000, 1000):
            engine.expire(now_ms)
        assert engine.resolve("u", "latest", PRODUCE, 1).key.client_id == OTHER
        for bound in set(idle):
            bound.holders = 0
        for now_ms in range(4 * KEEP_MS, 7 * KEEP_MS, 1000):
            engine.expire(now_ms)
        names = engine._names
        assert names._left == 10_000, "all of it is given back, once"

    def test_expired_counters_raise_the_generation_and_free_room(self) -> None:
        engine = self.crowded({EVERYBODY: 1000})
        shared = engine.resolve("u", "late", PRODUCE, 1)
        generation = engine.generation
        engine.expire(0)
        shared.charge(1, 2000)
        engine.expire(1000 + 2 * KEEP_MS)
        assert engine.generation > generation
        assert engine.resolve("u", "late", PRODUCE, 1).key.client_id == "late"


names = st.sampled_from(["a", "b", "<default>"])
parts = st.one_of(st.none(), st.just(DEFAULT), names)
entities = st.builds(Entity, parts.filter(bool), parts) | st.builds(Entity, parts, parts.filter(bool))
policies = st.dictionaries(entities, st.integers(1, 9).map(float), max_size=6)


@pytest.mark.long
@given(st.lists(st.tuples(policies, st.one_of(st.just(""), names), st.one_of(st.just(""), names)), max_size=8))
def test_every_counter_follows_the_policy_applied_last(history: list[tuple[dict[Entity, float], str, str]]) -> None:
    engine = Engine(Policy())
    held = []
    for limits, user, client_id in history:
        engine.apply(produce(limits), 0)
        if engine.resolve(user, client_id, PRODUCE, 1).key.broker == 1:  # not the inert one
            held += [engine.resolve(user, client_id, PRODUCE, broker) for broker in (1, 2)]
        for bound in held:
            # Levels 1, 2, 4, 5 for a pair, 3 and 6 for a user, 7 and 8 for a client-id.
            _, user_tag, client_tag, *_ = bound.key
            candidates = [
                (user_name, client_name)
                for user_name in ((user_tag, DEFAULT) if user_tag else (None,))
                for client_name in ((client_tag, DEFAULT) if client_tag else (None,))
                if (user_name, client_name) != (None, None)
            ]
            rule = next((Entity(*key) for key in candidates if Entity(*key) in limits), None)
            assert bound.rule == rule
            assert bound.limit == (None if rule is None else limits[rule])
