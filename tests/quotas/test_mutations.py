"""The counters of controller_mutation_rate: token buckets for the whole cluster, kept as long as they hold anything."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.counted import CLUSTER
from quotas.engine import Engine, Window
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.mutations import Ruling, TokenBound
from quotas.policy import Policy, Terms
from quotas.precedence import rules_of
from quotas.throttle import INT32_MAX
from quotas.token_bucket import TokenBucket

MUTATION = QuotaKind.CONTROLLER_MUTATION_RATE
APP = Entity(client_id="app")


def policy(limits: Mapping[Entity, float]) -> Policy:
    return Policy({entity: {MUTATION: limit} for entity, limit in limits.items()})


def engine_with(limit: float, controller_window: Window | None = None) -> Engine:
    return Engine(policy({APP: limit}), controller_window=controller_window or Window())


def bound_of(engine: Engine, user: str = "u", client_id: str = "app", broker: int = 1) -> TokenBound:
    bound = engine.resolve(user, client_id, MUTATION, broker)
    assert isinstance(bound, TokenBound)
    return bound


def test_mutation_counter_is_cluster_wide_with_its_own_window() -> None:
    engine = engine_with(2, controller_window=Window(5, 2000))
    bound = bound_of(engine)
    assert bound_of(engine, broker=2) is bound
    assert bound.key.broker == CLUSTER
    assert bound.tokens(0) == 20


def test_every_level_of_precedence_holds_as_for_other_kinds() -> None:
    default = Default.DEFAULT
    engine = Engine(policy({Entity(user="u"): 1, Entity(user=default, client_id=default): 2, Entity(client_id="x"): 3}))
    (own, _), (other, _) = (rules_of(engine.policy, user, "app", MUTATION) for user in ("u", "other"))
    assert own is not None
    assert (own.limit, own.entity) == (1, Entity(user="u"))
    assert other is not None
    assert other.limit == 2
    assert bound_of(engine, client_id="a") is bound_of(engine, client_id="b")
    assert bound_of(engine, "other", "a") is not bound_of(engine, "other", "b")


def test_an_overdraft_is_owed_to_the_millisecond_and_shown() -> None:
    engine = engine_with(4)
    bound = bound_of(engine)
    assert bound.charge(50, 1000) == 1500
    assert (bound.owed_ms(2499), bound.may_go(2499)) == (1, 2500)
    assert (bound.owed_ms(2500), bound.may_go(2500)) == (0, 2500)
    (state,) = engine.usage(1000)
    assert (state.tokens, state.burst, state.rate, state.charged_total, state.limit) == (-6, 44, 5, 50, 4)


def test_a_changed_limit_keeps_the_tokens_and_a_removed_one_forgets_them() -> None:
    engine = engine_with(10)
    bound = bound_of(engine)
    bound.charge(120, 0)
    assert bound.tokens(0) == -10
    engine.apply(policy({APP: 2}), 0)
    assert bound.owed_ms(0) == 5000
    engine.apply(policy({APP: 1000}), 0)
    assert bound.owed_ms(0) == 10
    engine.apply(policy({}), 0)
    assert (bound.owed_ms(0), bound.throttle_ms(0)) == (0, 0)
    engine.apply(policy({APP: 3}), 0)
    assert bound.tokens(0) == 33


@pytest.mark.parametrize(("used", "full_s"), [(1, 11), (33, 11), (63, 21)])
def test_mutation_bucket_is_dropped_once_full_and_idle(used: int, full_s: int) -> None:
    engine = engine_with(3)
    bound_of(engine).charge(used, 0)
    gone_at_s = next(second for second in range(100) if (engine.expire(second * 1000), not engine.usage(0))[1])
    assert full_s <= gone_at_s <= full_s + 2
    assert bound_of(engine).tokens(gone_at_s * 1000) == 33


def test_mutation_bucket_that_has_rested_is_the_same_one() -> None:
    engine = engine_with(3)
    held = bound_of(engine)
    held.hold()
    held.charge(1, 0)
    engine.expire(100_000)
    engine.expire(200_000)
    assert held.rests
    assert bound_of(engine) is held
    held.record(40, 200_000)
    held.count(5, 200_000)
    assert held.tokens(200_000) == -7
    assert held.recorded_total == 46
    assert held.check(200_000) == held.owed_ms(200_000) == 2333


def test_returned_tokens_are_uncounted_and_never_overfill_the_bucket() -> None:
    engine = engine_with(3)
    bound = bound_of(engine)
    bound.record(10, 0)
    list(engine.take(0))
    bound.record(-10, 100)
    bound.record(-5, 100)
    assert bound.tokens(100) == 33
    (taken,) = engine.take(100)
    assert (taken[0].rate, taken[1].charged) == (0, 0)


def test_a_limit_of_zero_is_owed_for_ever() -> None:
    bound = bound_of(engine_with(0.0))
    assert bound.charge(1, 0) == INT32_MAX


def test_client_without_mutation_quota_has_no_bucket() -> None:
    engine = Engine(Policy())
    assert not isinstance(engine.resolve("u", "app", MUTATION, 1), TokenBound)
    assert Ruling([], strict=True).accepts(1e9, 0)


@given(limit=st.floats(0.1, 1000), spent=st.integers(1, 20_000), late_ms=st.integers(0, 5000))
def test_client_that_waits_for_throttle_time_is_not_refused_again(limit: float, spent: int, late_ms: int) -> None:
    """A throttle is told in whole milliseconds: what is left of the overdraft then is owed by rounding alone."""
    bucket = bound_of(engine_with(limit))
    bucket.charge(bucket.tokens(0) + spent, 0)
    refused = Ruling([bucket], strict=True)
    if refused.accepts(1, late_ms):
        return
    told_ms = refused.throttle_ms(late_ms)
    assert told_ms > 0, "who is refused is told for how long"
    assert Ruling([bucket], strict=True).accepts(1, late_ms + told_ms)


@given(
    limit=st.floats(0.1, 1000),
    steps=st.lists(st.tuples(st.integers(0, 30_000), st.booleans(), st.lists(st.integers(1, 500), max_size=5))),
)
def test_the_counter_judges_as_the_bucket_alone(limit: float, steps: list[tuple[int, bool, list[int]]]) -> None:
    engine = engine_with(limit)
    counter, bucket = bound_of(engine), TokenBucket(Window(), limit)
    counter.hold()
    now_ms = 0
    for pause_ms, strict, topics in steps:
        now_ms += pause_ms
        engine.expire(now_ms)
        ours, alone = Ruling([counter], strict=strict), Ruling([bucket], strict=strict)
        assert [ours.accepts(each, now_ms) for each in topics] == [alone.accepts(each, now_ms) for each in topics]
        assert ours.throttle_ms(now_ms) == alone.throttle_ms(now_ms)


@pytest.mark.parametrize("burst_ms", [500, 2000, 30_000])
def test_a_burst_is_what_the_bucket_holds(burst_ms: int) -> None:
    entity = Entity(user="alice")
    limits = {entity: {MUTATION: 10.0}}
    engine = Engine(Policy(limits, {entity: Terms(burst_ms=burst_ms)}))
    bound = engine.resolve("alice", "", MUTATION, 1)
    assert isinstance(bound, TokenBound)
    assert bound.tokens(0) == burst_ms / 100
    bound.charge(burst_ms / 100 + 10, 0)
    assert bound.check(0) == 1000
    (state,) = engine.usage(0)
    assert state.burst == burst_ms / 100
    engine.apply(Policy(limits), 0)
    assert bound.tokens(1000) == 0
    assert bound.tokens(11_500) == 105
    engine.apply(Policy(limits, {entity: Terms(burst_ms=1000)}), 11_500)
    assert bound.tokens(11_500) == 10
    assert bound.tokens(60_000) == 10
