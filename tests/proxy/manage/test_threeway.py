"""What has to become of quotas, by the table of three sides and by playing it through."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.manage.threeway import Action, compare, now_applied
from quotas.entities import Default, Entity, Group, Prefix
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms

RATE, FETCH = QuotaKind.PRODUCER_BYTE_RATE, QuotaKind.CONSUMER_BYTE_RATE
ALICE = Entity("alice")
TERMS = Terms(shadow=True)


def policy(limit: float | None) -> Policy:
    return Policy({} if limit is None else {ALICE: {RATE: limit}})


TABLE: dict[tuple[float | None, float | None, float | None], Action | None] = {
    # (desired, live, applied)
    (None, None, None): None,
    (1, None, None): Action.ADD,
    (1, 1, None): None,
    (1, 2, None): Action.CONFLICT,
    (None, 2, None): Action.FOREIGN,
    (None, None, 1): None,
    (None, 1, 1): Action.REMOVE,
    (None, 2, 1): Action.CONFLICT,
    (1, None, 1): Action.CONFLICT,
    (1, 1, 1): None,
    (1, 2, 1): Action.CONFLICT,
    (2, None, 1): Action.CONFLICT,
    (2, 1, 1): Action.CHANGE,
    (2, 2, 1): None,
    (3, 2, 1): Action.CONFLICT,
}


@pytest.mark.parametrize("sides", TABLE)
def test_desired_live_and_applied_limits_give_the_tabled_action(
    sides: tuple[float | None, float | None, float | None],
) -> None:
    found = compare(*map(policy, sides)).differences
    assert [each.action for each in found] == ([] if TABLE[sides] is None else [TABLE[sides]])
    assert [(each.desired, each.live, each.applied) for each in found] == [sides] * len(found)


def test_without_a_record_nothing_is_removed_and_nothing_in_conflict() -> None:
    for (desired, live), action in {(1, 2): Action.CHANGE, (1, None): Action.ADD, (None, 2): Action.FOREIGN}.items():
        (each,) = compare(policy(desired), policy(live), None).differences
        assert each.action is action


def test_limits_of_one_entity_are_compared_per_quota_kind() -> None:
    live = Policy({ALICE: {RATE: 1.0, FETCH: 5.0}})
    found = compare(policy(2), live, policy(1)).differences
    assert [(each.kind, each.action) for each in found] == [(RATE, Action.CHANGE), (FETCH, Action.FOREIGN)]


GROUP, PREFIX, CAP = Entity(Group("g")), Entity(None, Prefix("p")), Entity("alice", cap=True)


@pytest.mark.parametrize(
    ("entity", "what"),
    [(GROUP, "a group of users"), (PREFIX, "a prefix of client-ids"), (CAP, "a cap")],
)
def test_groups_prefixes_and_caps_are_refused_unless_already_live(entity: Entity, what: str) -> None:
    groups = {"g": ("alice", "bob")}
    desired = Policy({entity: {RATE: 1.0}}, {}, groups)
    plan = compare(desired, Policy(), None)
    assert [(each.entity, each.what) for each in plan.beyond] == [(entity, what)]
    assert (plan.differences, plan.differs(), plan.differs(skip_extras=True)) == ([], True, False)
    assert not compare(desired, desired, None).differs()
    assert compare(desired, Policy({entity: {RATE: 2.0}}, {}, groups), None).beyond
    if entity == GROUP:
        assert compare(desired, Policy({entity: {RATE: 1.0}}, {}, {"g": ("alice",)}), None).beyond
        assert not compare(desired, Policy({entity: {RATE: 1.0}}, {}, {"g": ("bob", "alice")}), None).beyond
    # Live, and nobody wants it: none of ours, even if an old desired file is taken for what was applied.
    (foreign,) = compare(Policy(), desired, desired).differences
    assert foreign.action is Action.FOREIGN


def test_a_limit_in_shadow_is_never_applied_as_one_in_force() -> None:
    shadow = Policy({ALICE: {RATE: 1.0}}, {ALICE: TERMS})
    plan = compare(shadow, policy(2), policy(2))
    assert ([each.what for each in plan.beyond], plan.differences) == (["mode: shadow"], [])
    assert compare(policy(1), shadow, None).beyond[0].what == "no mode: shadow, which is live"
    said = Terms(proposed={RATE: 1.0}, burst_ms=1000, max_delay_ms=5)
    assert compare(Policy({ALICE: {RATE: 1.0}}, {ALICE: said}), policy(1), None).beyond[0].what == (
        "proposed, burst, max_delay"
    )
    # Where the target says the same beside the limit, the limit alone is changed.
    other = Policy({ALICE: {RATE: 3.0}}, {ALICE: TERMS})
    assert [each.action for each in compare(shadow, other, None).differences] == [Action.CHANGE]
    assert not compare(shadow, other, None).beyond


def test_a_name_that_is_cut_is_not_applied_as_another() -> None:
    long = Policy({Entity("x" * 300): {RATE: 1.0}})
    assert compare(long, Policy(), None).beyond[0].what.startswith("a name of more than 256 bytes")
    assert not compare(long, long, None).differs()


@pytest.mark.parametrize("limit", [0.0, float("inf"), 1.0000000001])
def test_limit_that_no_record_can_hold_is_refused(limit: float) -> None:
    plan = compare(policy(limit), policy(5), None)
    assert (len(plan.beyond), plan.differences) == (1, [])


ENTITIES = [ALICE, Entity("alice", "app"), Entity(None, Default.DEFAULT), Entity("bob")]
LIMITS = st.dictionaries(st.sampled_from([RATE, FETCH]), st.sampled_from([1.0, 2.0, 3.0]), min_size=1)
POLICIES = st.dictionaries(st.sampled_from(ENTITIES), LIMITS).map(Policy)


def carried_out(desired: Policy, live: Policy, applied: Policy | None, refused: set[Entity], force: bool) -> Policy:
    """Return what is live after an apply of which some entities were refused."""
    plan = compare(desired, live, applied)
    limits = {entity: dict(of_entity) for entity, of_entity in live.limits.items()}
    for each in plan.to_make + (plan.of(Action.CONFLICT) if force else []):
        if each.entity in refused:
            continue
        of_entity = limits.setdefault(each.entity, {})
        of_entity.pop(each.kind, None)
        if each.desired is not None:
            of_entity[each.kind] = each.desired
    return Policy({entity: of_entity for entity, of_entity in limits.items() if of_entity})


@given(POLICIES, POLICIES, st.one_of(st.none(), POLICIES), st.sets(st.sampled_from(ENTITIES)))
def test_an_apply_makes_what_is_desired_and_touches_nothing_else(
    desired: Policy, live: Policy, applied: Policy | None, refused: set[Entity]
) -> None:
    after = carried_out(desired, live, applied, refused, force=True)
    record = now_applied(desired, live, applied, refused)
    for entity, kind in product(ENTITIES, (RATE, FETCH)):
        want, have, had, now = (
            each.limits.get(entity, {}).get(kind) for each in (desired, live, applied or Policy(), after)
        )
        if entity in refused:
            assert now == have
        elif want is not None:
            assert now == want
        else:
            assert now == (None if had is not None else have)
    # The next one finds nothing to do, but for what was refused; and nobody's change is taken for a conflict.
    again = compare(desired, after, record)
    assert {each.entity for each in again.differences if each.action is not Action.FOREIGN} <= refused
    if not refused:
        assert not again.differs()
        # Rolled back: all that this apply has made and the older file has not is gone.
        back = compare(Policy(), after, record)
        assert not back.of(Action.CONFLICT)
        gone = carried_out(Policy(), after, record, set(), force=False)
        ours = {(entity, kind) for entity, of_entity in desired.limits.items() for kind in of_entity}
        assert not ours & {(entity, kind) for entity, of_entity in gone.limits.items() for kind in of_entity}


@given(POLICIES, POLICIES, POLICIES)
def test_without_force_nothing_that_somebody_else_has_made_is_lost(
    desired: Policy, live: Policy, applied: Policy
) -> None:
    after = carried_out(desired, live, applied, set(), force=False)
    for entity, kind in product(ENTITIES, (RATE, FETCH)):
        have, had, now = (each.limits.get(entity, {}).get(kind) for each in (live, applied, after))
        if have is not None and have != had:
            assert now == have
