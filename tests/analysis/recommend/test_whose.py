"""Quotas are sized for whom the present ones are for, by the same precedence as the proxy's."""

from collections.abc import Mapping, Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analysis.kernel.target import parse_target
from analysis.kernel.units import Client
from analysis.recommend.choices import Choices
from analysis.recommend.whose import Wanted, by_records, by_rules, were_under_rules
from analysis.replay.recording import Circumstances, Recording, Used
from analysis.table.scan import UsageRows
from quotas.engine import Engine
from quotas.entities import Default, Entity, Group, Name, Prefix
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms
from quotas.rate import Window

PRODUCE, FETCH = QuotaKind.PRODUCER_BYTE_RATE, QuotaKind.CONSUMER_BYTE_RATE
EACH = Default.DEFAULT
PERIOD = Circumstances(0, 60_000, {"": 0}, Window(), 1, ("enforce",), 1000, 60, 0)
CHOICES = Choices(parse_target("p99 throttle < 100 ms"), None)
FOUR = ("orders", "billing", "search", "audit")


def recording(clients: Sequence[Client], rules: Mapping[QuotaKind, Sequence[str | None]] | None = None) -> Recording:
    """Everybody has produced and fetched; nothing is to be read."""
    many = len(clients)
    one, nobody = np.ones(many), (None,) * many
    used = {}
    for kind in (PRODUCE, FETCH):
        of_kind = tuple((rules or {}).get(kind, nobody))
        used[kind] = Used(one.astype(np.intp), *(one,) * 7, of_kind, nobody, one, nobody)
    return Recording(UsageRows(None), PERIOD, None, tuple(clients), one, used)


def client(user: str, client_id: str, broker: int = 1) -> Client:
    return Client("edge-1", broker, user, client_id)


def holders(wanted: Wanted, kind: QuotaKind = PRODUCE) -> list[tuple[Name, Name] | None]:
    """Of each client."""
    return [None if unit < 0 else wanted.holders[unit][:2] for unit in wanted.units.unit_of[kind].tolist()]


def test_four_client_ids_of_one_user_stay_four() -> None:
    clients = [client("ANONYMOUS", name) for name in FOUR]
    policy = Policy({Entity(client_id=name): {PRODUCE: 1e6} for name in FOUR})
    wanted = by_rules(recording(clients), policy, CHOICES)
    assert holders(wanted) == [(None, name) for name in FOUR]
    assert holders(wanted, FETCH) == [None] * 4
    assert wanted.beyond == {PRODUCE: 0, FETCH: 4}
    assert wanted.outside() == ["4 clients consuming under no quota"]


def test_without_the_file_records_say_the_same() -> None:
    clients = [client("ANONYMOUS", name) for name in (*FOUR, "new", "moved")]
    recorded = recording(clients, {PRODUCE: [*(f"client-id={name}" for name in FOUR), None, ""]})
    assert were_under_rules(recorded)
    wanted = by_records(recorded, CHOICES)
    assert holders(wanted) == [*((None, name) for name in FOUR), None, None]
    assert wanted.beyond == {PRODUCE: 2, FETCH: 6}
    assert not were_under_rules(recording(clients))


def test_who_shares_a_counter_shares_the_need() -> None:
    policy = Policy(
        {
            Entity(Group("analytics")): {PRODUCE: 1},
            Entity(client_id=Prefix("tmp-")): {PRODUCE: 1},
            Entity(client_id=Prefix("job-")): {PRODUCE: 1},
            Entity("eve", EACH): {PRODUCE: 1},
            Entity(EACH, cap=True): {PRODUCE: 1},
        },
        {Entity(client_id=Prefix("job-")): Terms(shared=False)},
        {"analytics": ["alice", "bob"]},
    )
    clients = [client("alice", "a"), client("bob", "b"), *(client("x", name) for name in ("tmp-1", "tmp-2"))]
    clients += [*(client("x", name) for name in ("job-1", "job-2")), client("eve", "e"), client("eve", "sluice:other")]
    clients += [client("y", "free")]
    wanted = by_rules(recording(clients), policy, CHOICES)
    units = wanted.units.unit_of[PRODUCE].tolist()
    assert units[0] == units[1]
    assert units[2] == units[3]
    assert units[4] != units[5]
    assert wanted.holders[units[4]] == wanted.holders[units[5]] == (None, Prefix("job-"), None)
    assert units[6] >= 0
    assert units[7:] == [-1, -1], "many client-ids as one, and who is under a cap alone"
    assert wanted.by_quota()[1] == 4


def test_some_of_the_rules() -> None:
    policy = Policy({Entity("alice"): {PRODUCE: 1}, Entity("bob"): {PRODUCE: 1}})
    chosen = Choices(CHOICES.target, None, entities=("user=al*",))
    assert holders(by_rules(recording([client("alice", "a"), client("bob", "b")]), policy, chosen)) == [
        ("alice", None),
        None,
    ]


USERS = ("u1", "u2", "u3")
IDS = ("", "app", "app-1", "batch")
NAMES_OF_USERS = st.sampled_from([None, EACH, Group("g"), *USERS])
NAMES_OF_IDS = st.sampled_from([None, EACH, Prefix("app"), Prefix("app-"), *IDS[1:]])
ENTITIES = st.tuples(NAMES_OF_USERS, NAMES_OF_IDS).filter(any).map(lambda names: Entity(*names))


@given(st.sets(ENTITIES, max_size=6), st.sets(ENTITIES, max_size=3))
def test_the_engine_would_say_the_same(rules: set[Entity], shadows: set[Entity]) -> None:
    """Whichever quota wins for a client is the one that is sized by it, also where it is in shadow."""
    groups = {"g": ["u1", "u2"]}
    policy = Policy({rule: {PRODUCE: 1000} for rule in rules}, groups=groups)
    in_shadow = Policy(policy.limits, {rule: Terms(shadow=True) for rule in rules & shadows}, groups)
    clients = [client(user, client_id) for user in USERS for client_id in IDS]
    engine = Engine(policy)
    expected = [engine.limit_of(each.user, each.client_id, PRODUCE)[1] for each in clients]
    assert holders(by_rules(recording(clients), in_shadow, CHOICES)) == [
        None if rule is None else (rule.user, rule.client_id) for rule in expected
    ]
