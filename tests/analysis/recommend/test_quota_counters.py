"""Quotas are sized for whom the present ones are for, by the same precedence as the proxy's."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.demand.sums import Circumstances, Sums, Used
from analysis.errors import AnalysisError
from analysis.kernel.target import parse_target
from analysis.kernel.units import ClientOnBroker
from analysis.recommend.choices import Choices
from analysis.recommend.quota_counters import QuotaCounters, by_name, by_rules
from quotas.entities import Default, Entity, Group, Prefix
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms
from quotas.precedence import rules_of
from quotas.rate import Window

PRODUCE, FETCH = QuotaKind.PRODUCER_BYTE_RATE, QuotaKind.CONSUMER_BYTE_RATE
EACH = Default.DEFAULT
PERIOD = Circumstances(0, 60_000, 0, 1, Window(), 1, ("enforce",), 1000, 60, 0, 0)
CHOICES = Choices(parse_target("p99 throttle < 100 ms"))
FOUR = ("orders", "billing", "search", "audit")


def recording(clients: Sequence[ClientOnBroker]) -> Sums:
    """Everybody has produced and fetched; nothing is to be read."""
    many = len(clients)
    one, links = np.ones(many), np.zeros((2, 0), dtype=np.intp)
    used = Used(*(one,) * 6, (None,) * many, one, one > 1, links)
    return Sums(PERIOD, pa.table({}), tuple(clients), links[0], {PRODUCE: used, FETCH: used}, one, one)


def client(user: str, client_id: str, broker: int = 1) -> ClientOnBroker:
    return ClientOnBroker("demo", "", broker, user, client_id)


def units(wanted: QuotaCounters, kind: QuotaKind = PRODUCE) -> list[int]:
    """Return the number of the counter of each client."""
    [found] = [unit for of_kind, unit in wanted.units.parts if of_kind is kind]
    return list(map(int, found))


def holders(wanted: QuotaCounters, kind: QuotaKind = PRODUCE) -> list[Entity | None]:
    """Of each client."""
    return [None if unit < 0 else wanted.quotas[wanted.quota_of[unit]][0] for unit in units(wanted, kind)]


def test_four_client_ids_of_one_user_stay_four() -> None:
    clients = [client("ANONYMOUS", name) for name in FOUR]
    policy = Policy({Entity(client_id=name): {PRODUCE: 1e6} for name in FOUR})
    wanted = by_rules(recording(clients), policy, CHOICES)
    assert holders(wanted) == [Entity(client_id=name) for name in FOUR]
    assert holders(wanted, FETCH) == [None] * 4
    assert wanted.outside == {PRODUCE: 0, FETCH: 4}
    assert wanted.outside_words() == ["4 clients consuming under no quota"]


def test_new_file_has_quotas_for_entities_that_can_be_named() -> None:
    recorded = recording([client("alice", "app"), client("alice", ""), client("bob", "sluice:other"), client("", "x")])

    def names(per: str, *patterns: str) -> list[str]:
        chosen = Choices(CHOICES.target, entities=patterns)
        return [entity.describe() for entity in by_name(recorded, per, chosen).limits]

    assert names("user") == ["user=alice", "user=bob"]
    assert names("client-id") == ["client-id=app", "client-id=x"]
    assert names("user,client-id") == ["user=alice, client-id=app"]
    assert names("user", "user=b*") == ["user=bob"]
    with pytest.raises(AnalysisError, match=r"no client with usage matches --entities zoe: .* as in user=alice"):
        names("user", "zoe")
    wanted = by_rules(recorded, by_name(recorded, "user", CHOICES), CHOICES)
    assert holders(wanted) == [Entity("alice"), Entity("alice"), Entity("bob"), None]


def test_clients_of_one_counter_are_sized_together() -> None:
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
    mine = units(wanted)
    assert mine[0] == mine[1]
    assert mine[2] == mine[3]
    assert mine[4] != mine[5]
    assert holders(wanted)[4] == holders(wanted)[5] == Entity(client_id=Prefix("job-"))
    assert mine[6] >= 0
    assert mine[7:] == [-1, -1], "many client-ids as one, and who is under a cap alone"
    assert len(wanted.quotas) == 4


def test_entity_pattern_selects_some_of_the_rules() -> None:
    policy = Policy({Entity("alice"): {PRODUCE: 1}, Entity("bob"): {PRODUCE: 1}})
    chosen = Choices(CHOICES.target, entities=("user=al*",))
    assert holders(by_rules(recording([client("alice", "a"), client("bob", "b")]), policy, chosen)) == [
        Entity("alice"),
        None,
    ]


USERS = ("u1", "u2", "u3")
IDS = ("", "app", "app-1", "batch")
NAMES_OF_USERS = st.sampled_from([None, EACH, Group("g"), *USERS])
NAMES_OF_IDS = st.sampled_from([None, EACH, Prefix("app"), Prefix("app-"), *IDS[1:]])
ENTITIES = st.tuples(NAMES_OF_USERS, NAMES_OF_IDS).filter(any).map(lambda names: Entity(*names))


@given(st.sets(ENTITIES, max_size=6), st.sets(ENTITIES, max_size=3))
def test_client_is_sized_by_the_rule_the_engine_chooses(rules: set[Entity], shadows: set[Entity]) -> None:
    """Whichever quota wins for a client is the one that is sized by it, also where it is in shadow."""
    groups = {"g": ["u1", "u2"]}
    policy = Policy({rule: {PRODUCE: 1000} for rule in rules}, groups=groups)
    in_shadow = Policy(policy.limits, {rule: Terms(shadow=True) for rule in rules & shadows}, groups)
    clients = [client(user, client_id) for user in USERS for client_id in IDS]
    winners = [rules_of(policy, each.user, each.client_id, PRODUCE)[0] for each in clients]
    expected = [None if winner is None else winner.entity for winner in winners]
    assert holders(by_rules(recording(clients), in_shadow, CHOICES)) == expected
