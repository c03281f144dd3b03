"""What rules say beside their limits, in the engine: shadow, what is proposed, bursts."""

import pickle

import pytest

from quotas.engine import Engine, Window
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms
from quotas.precedence import rules_of
from quotas.rate import Rate

PRODUCE, FETCH = QuotaKind.PRODUCER_BYTE_RATE, QuotaKind.CONSUMER_BYTE_RATE
ALICE = Entity(user="alice")
ALL = Entity(user=Default.DEFAULT)


def policy(terms: Terms, limit: float = 100.0) -> Policy:
    return Policy({ALICE: {PRODUCE: limit, FETCH: limit}, ALL: {PRODUCE: 10.0}}, {ALICE: terms})


def test_a_policy_with_terms_crosses_processes() -> None:
    sent = policy(Terms(proposed={PRODUCE: 50.0}, burst_ms=5000, max_delay_ms=100))
    arrived = pickle.loads(pickle.dumps(sent))  # noqa: S301  our own
    assert (arrived, arrived.book(PRODUCE).terms) == (sent, sent.book(PRODUCE).terms)


@pytest.mark.parametrize(
    "terms",
    [
        {Entity(user="bob"): Terms(proposed={PRODUCE: 1.0})},
        {ALICE: Terms(shadow=True, proposed={PRODUCE: 1.0})},
        {ALICE: Terms(proposed={QuotaKind.REQUEST_PERCENTAGE: 1.0})},
    ],
)
def test_terms_of_no_limit_are_refused(terms: dict[Entity, Terms]) -> None:
    with pytest.raises(ValueError, match="about no limit"):
        Policy({ALICE: {PRODUCE: 1.0}}, terms)


def test_a_rule_in_shadow_limits_nobody_and_hides_those_below_it() -> None:
    engine = Engine(policy(Terms(shadow=True)))
    bound = engine.resolve("alice", "", PRODUCE, 1)
    assert (bound.limit, bound.shadow_limit, bound.rule) == (None, 100.0, ALICE)
    assert bound.charge(10**9, 0) == 0
    assert bound.may_go(0) == 0
    quota, _ = rules_of(engine.policy, "alice", "", PRODUCE)
    assert quota is not None
    assert (quota.enforced, quota.shadow) == (None, 100.0)
    other, _ = rules_of(engine.policy, "bob", "", PRODUCE)
    assert other is not None
    assert other.shadow is None
    (usage,) = engine.usage(0)
    assert (usage.limit, usage.shadow_limit, usage.rate) == (None, 100.0, 1e8)


def test_quota_leaving_shadow_owes_one_window_at_most() -> None:
    engine = Engine(policy(Terms(shadow=True)))
    bound = engine.resolve("alice", "", PRODUCE, 1)
    for second in range(100):
        bound.charge(10_000, second * 1000)
    generation = engine.generation
    engine.apply(policy(Terms()), 99_000)
    assert engine.generation > generation
    assert bound.owed_ms(99_000) == 11_000  # no longer than a window, where a broker's law says eighteen minutes
    engine.apply(policy(Terms(shadow=True)), 99_000)
    assert bound.owed_ms(99_000) == 0


def test_proposed_limit_is_kept_beside_the_one_in_force() -> None:
    engine = Engine(policy(Terms(proposed={PRODUCE: 50.0})))
    bound = engine.resolve("alice", "", PRODUCE, 1)
    assert (bound.limit, bound.shadow_limit) == (100.0, 50.0)
    assert engine.resolve("alice", "", FETCH, 1).shadow_limit is None
    quota, _ = rules_of(engine.policy, "alice", "", PRODUCE)
    assert quota is not None
    assert (quota.enforced, quota.shadow) == (100.0, 50.0)
    engine.apply(policy(Terms()), 0)
    assert (bound.limit, bound.shadow_limit) == (100.0, None)


@pytest.mark.parametrize(("burst_ms", "worth"), [(5000, 500.0), (500, 50.0), (2500, 249.9), (60_000, 6000.0)])
def test_burst_admits_that_many_seconds_of_the_limit(burst_ms: int, worth: float) -> None:
    bound = Engine(policy(Terms(burst_ms=burst_ms))).resolve("alice", "", PRODUCE, 1)
    assert bound.window.allowance(100.0) == pytest.approx(worth)
    assert bound.charge(worth, 0) == 0
    assert bound.charge(10, 0) > 0


def test_burst_leaves_the_long_term_rate_at_the_limit() -> None:
    for burst_ms in (500, 2000, 30_000):
        bound = Engine(policy(Terms(burst_ms=burst_ms))).resolve("alice", "", PRODUCE, 1)
        charged, now_ms = 0, 0
        while now_ms < 600_000:
            if bound.owed_ms(now_ms):
                now_ms += bound.owed_ms(now_ms)
                continue
            charged += 20
            if throttle_ms := bound.charge(20, now_ms):
                bound.owe(throttle_ms, now_ms)
            now_ms += 10
        assert charged / 600 == pytest.approx(100, rel=0.07), burst_ms


@pytest.mark.parametrize("burst_ms", [1000, 5000, 20_000])
@pytest.mark.parametrize("used_s", [3, 11, 25, 40])
def test_changed_burst_judges_bytes_charged_before(burst_ms: int, used_s: int) -> None:
    engine = Engine(policy(Terms()))
    bound = engine.resolve("alice", "", PRODUCE, 1)
    for second in range(used_s):
        bound.charge(90, second * 1000)
    engine.apply(policy(Terms(burst_ms=burst_ms)), used_s * 1000)
    same = Rate(Window().of_burst(burst_ms), 100.0)
    for second in range(max(0, used_s - 12), used_s):
        same.record(90, second * 1000)
    assert bound.rate(used_s * 1000) == pytest.approx(same.rate(used_s * 1000), rel=0.35)
    for second in range(used_s, used_s + 50):  # and goes on like one that was always measured so
        bound.charge(90, second * 1000)
        same.record(90, second * 1000)
    assert bound.rate((used_s + 50) * 1000) == same.rate((used_s + 50) * 1000)


def test_a_counter_with_a_long_burst_is_kept_as_long_as_it_counts() -> None:
    engine = Engine(policy(Terms(burst_ms=60_000)))
    bound = engine.resolve("alice", "", PRODUCE, 1)
    bound.charge(6000, 0)
    for second in range(1, 60):
        assert engine.expire(second * 1000) == 0
    assert engine.resolve("alice", "", PRODUCE, 1) is bound
    assert engine.expire(200_000) == 1
