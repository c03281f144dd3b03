"""Prefixes of client-ids and groups of users: every level of precedence, and who shares a counter."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.counted import GROUP, PREFIX
from quotas.engine import Engine
from quotas.entities import Default, Entity, Group, Name, Prefix
from quotas.kinds import QuotaKind
from quotas.policy import Book, Key, Policy, Terms
from quotas.precedence import counter_of, levels, reason, rules_of, winner_of
from tests.quotas.test_precedence import levels_in

RATE, FETCH = QuotaKind.PRODUCER_BYTE_RATE, QuotaKind.CONSUMER_BYTE_RATE
GROUPS = {"analytics": ("alice", "bob"), "shop": ("carol",)}
TEAM, TEAM_A, ANALYTICS, DEFAULT = Prefix("team-"), Prefix("team-a-"), Group("analytics"), Default.DEFAULT

FIFTEEN: list[Key] = [
    ("alice", "team-a-1"),
    ("alice", TEAM_A),
    ("alice", TEAM),
    ("alice", DEFAULT),
    ("alice", None),
    (ANALYTICS, "team-a-1"),
    (ANALYTICS, TEAM_A),
    (ANALYTICS, TEAM),
    (ANALYTICS, DEFAULT),
    (ANALYTICS, None),
    (DEFAULT, "team-a-1"),
    (DEFAULT, TEAM_A),
    (DEFAULT, TEAM),
    (DEFAULT, DEFAULT),
    (DEFAULT, None),
    (None, "team-a-1"),
    (None, TEAM_A),
    (None, TEAM),
    (None, DEFAULT),
]
"""Of a user in a group with a client-id that two prefixes are for: fifteen levels, with four more for the second."""


def policy(keys: list[Key] | set[Key], kinds: tuple[QuotaKind, ...] = (RATE,), shared: bool = True) -> Policy:
    entities = {Entity(*key): dict.fromkeys(kinds, float(FIFTEEN.index(key) + 1)) for key in keys}
    said = {entity: Terms(shared=shared) for entity in entities if isinstance(entity.client_id, Prefix)}
    return Policy(entities, said, GROUPS)


@pytest.mark.parametrize("kind", [RATE, FETCH, QuotaKind.REQUEST_PERCENTAGE])
@pytest.mark.parametrize("shared", [True, False])
def test_each_precedence_level_wins_over_all_lower_ones(kind: QuotaKind, shared: bool) -> None:
    for place, key in enumerate(FIFTEEN):
        engine = Engine(policy(FIFTEEN[place:], (kind,), shared=shared))
        assert engine.resolve("alice", "team-a-1", kind, 1).limit == place + 1
        quota, _ = rules_of(engine.policy, "alice", "team-a-1", kind)
        assert quota is not None
        assert (quota.key, quota.limit, quota.entity) == (key, place + 1, Entity(*key))
        there = {type(name) if isinstance(name, Group) else name for each in FIFTEEN[place:] for name in each}
        looked_at = [  # of groups and prefixes, those that any limit of the kind is for
            each
            for each in FIFTEEN[: place + 1]
            if (not isinstance(each[0], Group) or Group in there)
            and (not isinstance(each[1], Prefix) or each[1] in there)
        ]
        assert [*levels(engine.policy.book(kind), "alice", "team-a-1")][: len(looked_at)] == looked_at


@given(st.sets(st.sampled_from(FIFTEEN)), st.booleans())
def test_the_first_level_present_wins(keys: set[Key], shared: bool) -> None:
    engine = Engine(policy(keys, shared=shared))
    winner = next((key for key in FIFTEEN if key in keys), None)
    quota, _ = rules_of(engine.policy, "alice", "team-a-1", RATE)
    assert (quota and quota.key) == winner
    limit = None if winner is None else FIFTEEN.index(winner) + 1
    assert (quota and quota.limit) == limit
    assert engine.resolve("alice", "team-a-1", RATE, 1).limit == limit


PLAIN_NAMES = st.sampled_from(["alice", "team-a-1", "dave"])
PLAIN_PARTS = st.one_of(st.none(), st.just(DEFAULT), PLAIN_NAMES)
PLAIN_TABLES = st.dictionaries(
    st.tuples(PLAIN_PARTS, PLAIN_PARTS).filter(lambda key: key != (None, None)), st.floats(1, 1e9)
)


@given(PLAIN_TABLES, PLAIN_NAMES, st.one_of(st.just(""), PLAIN_NAMES))
def test_client_without_matching_pattern_gets_kafkas_precedence(
    limits: dict[Key, float], user: str, client_id: str
) -> None:
    """The eight levels walked with prefixes and groups about, for others."""
    of_others: dict[Key, float] = {(Group("shop"), None): 1.0, (None, Prefix("zz")): 1.0}
    entities = {Entity(*key): {RATE: limit} for key, limit in {**limits, **of_others}.items()}
    engine = Engine(Policy(entities, {}, GROUPS))
    *tags, several = counter_of(Book(limits), levels_in({**limits, **of_others}), user, client_id)
    winner = winner_of(Book(limits), user, client_id)
    assert several == 0
    quota, _ = rules_of(engine.policy, user, client_id, RATE)
    assert (quota and quota.key) == winner
    bound = engine.resolve(user, client_id, RATE, 1)
    assert bound.limit == (None if winner is None else limits[winner])
    if winner is not None:
        assert (bound.key.user, bound.key.client_id, bound.key.several) == (*tags, 0)


def test_a_prefix_has_one_counter_for_all_or_one_each() -> None:
    for shared in (True, False):
        engine = Engine(policy([(None, TEAM_A)], shared=shared))
        one, two = (engine.resolve("u", f"team-a-{number}", RATE, 1) for number in (1, 2))
        assert (one is two) is shared
        assert (one.key.client_id, one.key.several) == (("team-a-*", PREFIX) if shared else ("team-a-1", 0))
        assert engine.resolve("u", "team-b-1", RATE, 1).limit is None


def test_a_group_has_one_counter_whoever_of_it_comes() -> None:
    engine = Engine(policy([(ANALYTICS, None)]))
    alice, bob, carol = (engine.resolve(user, user, RATE, 1) for user in ("alice", "bob", "carol"))
    assert alice is bob
    assert (alice.key.user, alice.key.client_id, alice.key.several) == ("group:analytics", "", GROUP)
    assert carol.limit is None
    pairs = Engine(policy([(ANALYTICS, DEFAULT)]))
    assert pairs.resolve("alice", "a", RATE, 1) is pairs.resolve("bob", "a", RATE, 1)
    assert pairs.resolve("alice", "a", RATE, 1) is not pairs.resolve("bob", "b", RATE, 1)


def test_user_named_as_a_group_gets_another_counter() -> None:
    engine = Engine(policy([(ANALYTICS, None), (None, TEAM_A), (DEFAULT, None), (None, DEFAULT)]))
    group, prefix = (
        engine.resolve("alice", "", RATE, 1),
        Engine(policy([(None, TEAM_A)])).resolve("u", "team-a-", RATE, 1),
    )
    assert engine.resolve("group:analytics", "", RATE, 1) is not group
    assert engine.resolve("analytics", "", RATE, 1) is not group
    assert prefix.key.several == PREFIX
    alone = Engine(policy([(None, TEAM_A), (None, DEFAULT)], shared=False))
    alone.apply(policy([(None, TEAM_A), (None, DEFAULT)]), 0)
    literal = alone.resolve("u", "team-a-*", RATE, 1)
    assert literal is alone.resolve("u", "team-a-1", RATE, 1), "it begins so, and is one of them"


def test_an_empty_client_id_has_no_prefix() -> None:
    book = policy([("alice", TEAM), ("alice", None), (None, DEFAULT)]).book(RATE)
    assert winner_of(book, "alice", "") == ("alice", None)
    assert winner_of(book, "dave", "") is None
    assert reason(None, "") == "no level has a limit: an empty client-id has those of users alone"


def test_user_added_to_a_group_shares_its_counter_at_once() -> None:
    rule = {Entity(user=ANALYTICS): {RATE: 100.0}, Entity(user=DEFAULT): {RATE: 7.0}}
    engine = Engine(Policy(rule, {}, GROUPS))
    before, generation = engine.resolve("dave", "", RATE, 1), engine.generation
    assert before.limit == 7
    engine.apply(Policy(rule, {}, {"analytics": ("alice", "dave")}), 0)
    assert engine.generation > generation
    assert engine.resolve("dave", "", RATE, 1) is engine.resolve("alice", "", RATE, 1)
    assert engine.resolve("bob", "", RATE, 1).limit == 7


def test_an_edit_reaches_the_counters_of_groups_and_prefixes() -> None:
    entities: dict[Entity, dict[QuotaKind, float]] = {
        Entity(user=ANALYTICS): {RATE: 1.0},
        Entity(None, TEAM): {RATE: 2.0},
    }
    engine = Engine(Policy(entities, {}, GROUPS))
    group, prefix = engine.resolve("alice", "x", RATE, 1), engine.resolve("dave", "team-1", RATE, 1)
    engine.apply(Policy({each: {RATE: 5.0} for each in entities}, {}, GROUPS), 0)
    assert (group.limit, prefix.limit) == (5.0, 5.0)
    engine.apply(Policy({Entity(user="analytics"): {RATE: 9.0}, Entity(None, "team-*"): {RATE: 9.0}}), 0)
    assert (group.limit, prefix.limit) == (None, None), "a user of that name is somebody else"


def test_twenty_clients_of_one_prefix_have_one_quota_together() -> None:
    engine = Engine(policy([(None, TEAM_A)]))
    limit = float(FIFTEEN.index((None, TEAM_A)) + 1)
    for number in range(20):
        engine.resolve("u", f"team-a-{number}", RATE, 1).charge(limit, 0)
    (usage,) = engine.usage(0)
    assert usage.charged_total == 20 * limit
    assert engine.resolve("u", "team-a-99", RATE, 1).check(0) > 0


def test_a_flood_of_names_folds_no_shared_prefix() -> None:
    engine = Engine(policy([(None, TEAM_A), (None, DEFAULT)]), max_names_bytes=200)
    for number in range(10):
        engine.resolve("u", f"x{number}", RATE, 1)
    assert engine.resolve("u", "team-a-5", RATE, 1).key.client_id == "team-a-*"


def test_policy_with_groups_and_prefixes_is_pickled_for_workers() -> None:
    sent = policy(FIFTEEN, shared=False)
    arrived = pickle.loads(pickle.dumps(sent))  # noqa: S301  our own
    assert arrived == sent
    assert rules_of(arrived, "alice", "team-a-1", RATE) == rules_of(sent, "alice", "team-a-1", RATE)


def test_invalid_groups_and_prefixes_are_refused_by_policy() -> None:
    with pytest.raises(ValueError, match="'alice' is in the groups 'a' and 'b'"):
        Policy({}, {}, {"a": ("alice",), "b": ("alice",)})
    with pytest.raises(ValueError, match="no group is called 'nobodys'"):
        Policy({Entity(user=Group("nobodys")): {RATE: 1.0}})
    wrong: list[tuple[Name, Name]] = [
        (Prefix("a"), None),
        (None, Group("a")),
        (None, Prefix("")),
        (None, Prefix("x" * 64)),
    ]
    for user, client_id in wrong:
        with pytest.raises(ValueError, match="prefix"):
            Entity(user, client_id)


def test_entity_with_group_and_prefix_is_described_by_both() -> None:
    described = [Entity(user, client_id).describe() for user, client_id in ((ANALYTICS, None), (ANALYTICS, TEAM))]
    assert described == ["user-group=analytics", "user-group=analytics, client-id-prefix=team-"]
