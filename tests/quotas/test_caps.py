"""Caps: rules that hold besides the quota that wins. What requests make of them: tests/proxy/session/test_caps.py."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.counted import CAP, GROUP, PREFIX
from quotas.engine import Engine
from quotas.entities import Default, Entity, Group, Prefix
from quotas.kinds import QuotaKind
from quotas.policy import Key, Policy, Terms
from quotas.precedence import caps_at_once, rules_of
from tests.quotas.test_patterns import ANALYTICS, DEFAULT, FIFTEEN, GROUPS, TEAM, TEAM_A

RATE = QuotaKind.PRODUCER_BYTE_RATE


def cap(user: object = None, client_id: object = None) -> Entity:
    return Entity(user, client_id, cap=True)  # type: ignore[arg-type]  # any name


def caps(*keys: Key, shared: bool = True) -> Policy:
    """The limit of each is its place, from 1 on; alice's quota is 100."""
    limits = {cap(*key): {RATE: float(place)} for place, key in enumerate(keys, 1)}
    terms = {entity: Terms(shared=shared) for entity in limits if isinstance(entity.client_id, Prefix)}
    return Policy({Entity("alice"): {RATE: 100.0}, **limits}, terms, GROUPS)


def limits_of(engine: Engine, user: str, client_id: str) -> list[float | None]:
    return [bound.limit for bound in engine.resolve_caps(user, client_id, RATE, 1)]


def test_matching_caps_all_hold_and_quota_precedence_is_unchanged() -> None:
    engine = Engine(caps((None, TEAM), ("alice", None), (ANALYTICS, None), (None, TEAM_A)))
    assert limits_of(engine, "alice", "team-a-1") == [2, 3, 4, 1]
    assert limits_of(engine, "bob", "team-1") == [3, 1]
    assert limits_of(engine, "carol", "other") == []
    assert engine.resolve("alice", "team-a-1", RATE, 1).limit == 100
    assert rules_of(engine.policy, "bob", "team-a-1", RATE)[0] is None


def test_narrowest_of_several_default_and_named_caps_holds() -> None:
    engine = Engine(caps((DEFAULT, None), ("alice", None), (None, DEFAULT), (None, "app")))
    assert limits_of(engine, "alice", "app") == [2, 4]
    assert limits_of(engine, "bob", "other") == [1, 3]
    unshared = Engine(caps((None, TEAM), (None, DEFAULT), shared=False))
    assert limits_of(unshared, "bob", "team-1") == [1]
    assert limits_of(unshared, "bob", "app") == [2]


def test_members_of_a_cap_share_a_counter_apart_from_quotas() -> None:
    policy = Policy(
        {cap(ANALYTICS): {RATE: 5.0}, Entity(ANALYTICS): {RATE: 7.0}, cap("alice"): {RATE: 2.0}},
        groups=GROUPS,
    )
    engine = Engine(policy)
    (alice, tenant), (same,) = (engine.resolve_caps(user, "app", RATE, 1) for user in ("alice", "bob"))
    quota = engine.resolve("alice", "app", RATE, 1)
    assert tenant is same
    assert tenant is not quota
    assert (tenant.key.several, quota.key.several, alice.key.several) == (GROUP | CAP, GROUP, CAP)
    for bound in (alice, tenant, quota):
        bound.charge(3.0, 0)
    states = {state.entity.describe(): state.charged_total for state in engine.usage(0)}
    assert states == {"cap user-group=analytics": 3.0, "user-group=analytics": 3.0, "cap user=alice": 3.0}
    shared = Engine(caps((None, TEAM))).resolve_caps("x", "team-1", RATE, 1)[0]
    assert (shared.key.client_id, shared.key.several) == ("team-*", PREFIX | CAP)


def test_client_without_client_id_is_under_caps_of_its_user() -> None:
    engine = Engine(caps((None, DEFAULT), (ANALYTICS, None), ("alice", DEFAULT)))
    assert limits_of(engine, "alice", "") == [2]


def test_changed_or_removed_cap_is_in_force_at_once() -> None:
    engine = Engine(caps())
    assert not engine.has_caps
    generation = engine.generation
    engine.apply(caps((ANALYTICS, None)), 0)
    assert engine.has_caps
    assert engine.generation > generation
    (tenant,) = engine.resolve_caps("bob", "app", RATE, 1)
    tenant.charge(100.0, 0)
    engine.apply(Policy({cap(ANALYTICS): {RATE: 50.0}}, groups=GROUPS), 10)
    assert tenant.limit == 50
    moved = Policy({cap(ANALYTICS): {RATE: 50.0}}, groups={"analytics": ["alice"]})
    engine.apply(moved, 20)
    assert not limits_of(engine, "bob", "app")
    engine.apply(Policy(), 30)
    assert not engine.has_caps
    assert tenant.limit is None
    engine.expire(60_000)
    assert engine.expire(120_000) == 0
    assert not list(engine.usage(120_000))


def test_counters_of_caps_are_bounded_by_max_names_bytes() -> None:
    engine = Engine(caps((None, DEFAULT)), max_names_bytes=100_000)
    bounds = {engine.resolve_caps("bob", f"client-{number}", RATE, 1) for number in range(5_000)}
    assert 500 < len(bounds) < 2_000
    assert {bound.limit for (bound,) in bounds} == {1.0}


def test_rules_of_a_client_are_its_quota_and_its_caps() -> None:
    quota, found = rules_of(caps((ANALYTICS, None), (None, TEAM)), "alice", "team-1", RATE)
    assert quota is not None
    assert quota.key == ("alice", None)
    assert [(cap.key, cap.limit) for cap in found] == [((ANALYTICS, None), 1.0), ((None, TEAM), 2.0)]


def test_cap_of_an_ip_is_refused() -> None:
    with pytest.raises(ValueError, match="a cap is of users and client-ids"):
        Entity(ip="10.0.0.1", cap=True)


def test_policy_with_caps_is_pickled_for_workers() -> None:
    policy = caps((ANALYTICS, None), (None, TEAM))
    arrived = pickle.loads(pickle.dumps(policy))  # noqa: S301  our own
    assert arrived == policy
    assert limits_of(Engine(arrived), "alice", "team-1") == [1, 2]


def test_terms_are_those_of_the_cap() -> None:
    limits = {Entity("alice"): {RATE: 100.0}, cap("alice"): {RATE: 10.0}}
    terms = {cap("alice"): Terms(shadow=True, burst_ms=2000, max_delay_ms=300)}
    engine = Engine(Policy(limits, terms))
    (bound,) = engine.resolve_caps("alice", "app", RATE, 1)
    assert (bound.limit, bound.shadow_limit, bound.max_delay_ms) == (None, 10.0, 300)
    assert bound.window.allowance(10.0) == 20.0
    (in_shadow,) = rules_of(engine.policy, "alice", "app", RATE)[1]
    assert (in_shadow.enforced, in_shadow.shadow) == (None, 10.0)
    plain = engine.resolve("alice", "app", RATE, 1)
    assert (plain.limit, plain.shadow_limit) == (100.0, None)


@given(st.sets(st.sampled_from(FIFTEEN)))
def test_caps_in_force_never_exceed_their_distinct_forms(keys: set[Key]) -> None:
    engine = Engine(caps(*keys))
    held = engine.resolve_caps("alice", "team-a-1", RATE, 1)
    assert len(held) <= caps_at_once(keys)
    assert len({bound.key for bound in held}) == len(held)


def test_prefixes_that_no_client_can_have_together_count_once() -> None:
    assert caps_at_once([(None, Prefix(text)) for text in ("a", "bb", "ccc", "dddd")]) == 1
    assert caps_at_once([(None, Prefix(text)) for text in ("a", "ab", "abc", "b", "bc")]) == 3
    assert caps_at_once([("alice", None), ("bob", None), (Default.DEFAULT, None), (Group("g"), None)]) == 2
