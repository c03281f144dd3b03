import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.kernel.units import REPLAYED, Assignment, ClientOnBroker, Unit, caps_in_force, read_rule, recorded_unit
from quotas.engine import Engine
from quotas.entities import Default, Entity, Group, Prefix
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms

DEFAULT = Default.DEFAULT
PRODUCE = QuotaKind.PRODUCER_BYTE_RATE

names = st.sampled_from(["alice", "bob", "<default>", "a=b, c", "it's", 'say "so"', "back\\slash", "é", "\n"])
parts = st.none() | st.just(DEFAULT) | names
entities = st.tuples(parts, parts).filter(any).map(lambda pair: Entity(*pair))
clients = st.builds(
    ClientOnBroker,
    st.just("c"),
    st.sampled_from(["p1", "p2"]),
    st.integers(1, 2),
    st.sampled_from(["alice", "bob", "carl"]),
    st.just("") | names,
)


@given(entities)
def test_rules_are_read_as_they_are_written(entity: Entity) -> None:
    assert read_rule(entity.describe()).entity == entity


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "does not name a quota"),
        ("alice", "does not name a quota"),
        ("user=alice, user=bob", "does not name a quota"),
        ("user=alice,client-id=app", "at ',client-id=app'"),
        ("user=alice, ", "does not name a quota"),
        ("user='alice", "does not name a quota"),
        ("user=alice, ip=::1", "ip cannot be combined"),
    ],
)
def test_invalid_rule_text_is_refused_with_its_problem(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_rule(text)


def test_ip_rule_is_read_as_an_ip_entity() -> None:
    assert read_rule("ip=10.0.0.1").entity == Entity(ip="10.0.0.1")


def test_clients_share_counters_as_the_policy_says() -> None:
    policy = Policy(
        {
            Entity(user="alice"): {PRODUCE: 1000},
            Entity(user="bob", client_id=DEFAULT): {PRODUCE: 500},
            Entity(client_id="batch"): {PRODUCE: 50},
        }
    )
    rows = [
        ClientOnBroker("c", "p1", 1, "alice", "a"),
        ClientOnBroker("c", "p1", 1, "alice", "b"),
        ClientOnBroker("c", "p1", 2, "alice", "a"),
        ClientOnBroker("c", "p2", 1, "alice", "a"),
        ClientOnBroker("c", "p1", 1, "bob", "a"),
        ClientOnBroker("c", "p1", 1, "bob", "b"),
        ClientOnBroker("c", "p1", 1, "carl", "batch"),
        ClientOnBroker("c", "p1", 1, "dora", "batch"),
        ClientOnBroker("c", "p1", 1, "carl", "other"),
    ]
    assigned = Assignment.of(policy, PRODUCE, rows)
    assert assigned.index.tolist() == [0, 0, 1, 2, 3, 4, 5, 5, 6]
    assert assigned.units[0] == Unit("c", "p1", 1, "alice", "")
    assert assigned.units[5] == Unit("c", "p1", 1, "", "batch")
    assert assigned.limits.tolist() == [1000, 1000, 1000, 500, 500, 50, np.inf]
    assert assigned.rules[4] == Entity(user="bob", client_id=DEFAULT)
    assert assigned.rules[6] is None


@given(st.dictionaries(entities, st.floats(1, 1e9), max_size=5), st.lists(clients, min_size=1, max_size=8))
def test_units_are_the_counters_of_the_engine(limits: dict[Entity, float], rows: list[ClientOnBroker]) -> None:
    policy = Policy({entity: {PRODUCE: limit} for entity, limit in limits.items()})
    assigned = Assignment.of(policy, PRODUCE, rows)
    engine = Engine(policy)
    for number, row in zip(assigned.index, rows, strict=True):
        bound = engine.resolve(row.user, row.client_id, PRODUCE, row.broker)
        assert assigned.rules[number] == bound.rule
        assert assigned.limits[number] == (np.inf if bound.limit is None else bound.limit)
        if limits:  # without any, the engine keeps no counters
            assert assigned.units[number][2:5] == (bound.key.broker, bound.key.user, bound.key.client_id)
        if bound.rule is not None:
            assert recorded_unit(row, bound.rule) == assigned.units[number]


def test_only_byte_and_request_quotas_are_replayed() -> None:
    assert [kind.row.word for kind in REPLAYED] == ["produce", "fetch", "request"]


def test_caps_in_force_are_those_matching_the_client() -> None:
    cap, shadow = Entity(user="alice", cap=True), Entity(client_id=Prefix("a"), cap=True)
    policy = Policy({cap: {PRODUCE: 5.0}, shadow: {PRODUCE: 7.0}}, {shadow: Terms(shadow=True)})
    assert caps_in_force(policy, PRODUCE, ClientOnBroker("c", "p1", 1, "alice", "a")) == [cap]
    assert caps_in_force(policy, PRODUCE, ClientOnBroker("c", "p1", 1, "bob", "a")) == []
    assert caps_in_force(policy, QuotaKind.CONSUMER_BYTE_RATE, ClientOnBroker("c", "p1", 1, "alice", "a")) == []


@pytest.mark.parametrize(
    "entity",
    [
        Entity(user=Group("analytics")),
        Entity(client_id=Prefix("team-a-")),
        Entity(Group("it's, so"), Prefix("a=b ")),
        Entity(Default.DEFAULT, Prefix("x")),
    ],
)
def test_rules_of_groups_and_prefixes_are_read_as_they_are_written(entity: Entity) -> None:
    assert read_rule(entity.describe()).entity == entity


def test_clients_of_a_group_or_prefix_share_its_counter() -> None:
    """As the engine says, and as recorded rules say; a rule in shadow limits nobody."""
    group, prefix = Entity(user=Group("shop")), Entity(client_id=Prefix("team-"))
    limits = {group: {PRODUCE: 5.0}, prefix: {PRODUCE: 7.0}, Entity(client_id="app"): {PRODUCE: 9.0}}
    groups = {"shop": ("alice", "bob")}
    clients = [
        *(ClientOnBroker("c", "i", 1, user, client_id) for user in ("alice", "bob") for client_id in ("a", "b")),
        *(ClientOnBroker("c", "i", 1, "carol", client_id) for client_id in ("team-1", "team-2", "app", "other")),
    ]
    assigned = Assignment.of(Policy(limits, {}, groups), PRODUCE, clients)
    assert [assigned.rules[unit] for unit in assigned.index] == [
        *[group] * 4,
        *[prefix] * 2,
        Entity(client_id="app"),
        None,
    ]
    assert len(set(assigned.index[:4])) == len(set(assigned.index[4:6])) == 1
    for client, unit in zip(clients, assigned.index, strict=True):
        rule = assigned.rules[unit]
        assert rule is None or recorded_unit(client, rule) == assigned.units[unit]
    in_shadow = Assignment.of(Policy(limits, {group: Terms(shadow=True)}, groups), PRODUCE, clients)
    assert np.isinf(in_shadow.limits[in_shadow.index[0]])
