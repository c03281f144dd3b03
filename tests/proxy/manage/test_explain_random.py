"""What ``explain`` says, beside what the engine does and what docs/quotas.md says, for very many clients."""

import re
from collections.abc import Iterator, Mapping
from random import Random

import pytest

from proxy.checks.explain import ExplainedClient, ExplainedRow, Explainer, RuleRow, written
from proxy.manage.explaining import pages
from quotas.bound import Bound
from quotas.connections import ConnectionRates
from quotas.counted import GROUP, PREFIX
from quotas.engine import CLIENT_KINDS, Engine
from quotas.entities import Default, Entity, Group, Name, Prefix
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms
from quotas.rate import Window
from tests.proxy.manage import precedence
from tests.proxy.manage.precedence import Holds, Names, Part, Written

GROUPS = {"tenant": ("alice", "bob"), "shop": ("carol",)}
GROUP_OF = {user: group for group, users in GROUPS.items() for user in users}
USERS: tuple[Part, ...] = (None, "*", "name:alice", "name:bob", "name:carol", "name:dave", "group:tenant", "group:shop")
CLIENT_IDS: tuple[Part, ...] = (None, "*", "name:team-a-1", "name:app", "prefix:team-", "prefix:team-a-", "prefix:a")
CLIENTS = ("alice", "bob", "carol", "dave", "eve", "<default>", "group:tenant"), ("", "team-a-1", "team-b", "app", "x")
ADDRESSES = ("10.0.0.1", "10.0.0.2", "2001:db8::1")
CLIENTS_OF_A_POLICY = 50

Rules = dict[QuotaKind, dict[Names, Written]]


def names_of(part: Part) -> Name:
    if part is None:
        return None
    if part == "*":
        return Default.DEFAULT
    kind, _, text = part.partition(":")
    return {"name": text, "group": Group(text), "prefix": Prefix(text)}[kind]  # type: ignore[return-value]  # each is one


def made(random: Random) -> tuple[Policy, Rules, Rules]:
    """Return a policy of rules and caps drawn at random, and the same by kind as the model takes them."""
    limits: dict[Entity, dict[QuotaKind, float]] = {}
    terms: dict[Entity, Terms] = {}
    by_kind: tuple[Rules, Rules] = ({kind: {} for kind in CLIENT_KINDS}, {kind: {} for kind in CLIENT_KINDS})
    for cap in (False, True):
        for _ in range(random.randint(0, 4 if cap else 14)):
            names = random.choice(USERS), random.choice(CLIENT_IDS)
            if names == (None, None):
                continue
            entity = Entity(names_of(names[0]), names_of(names[1]), cap=cap)
            of_entity = {kind: float(random.randint(1, 10**8)) for kind in random.sample(CLIENT_KINDS, 2)}
            shadow = random.random() < 0.2
            proposed = {kind: limit / 2 for kind, limit in of_entity.items() if not shadow and random.random() < 0.2}
            shared = random.random() < 0.5 or not isinstance(entity.client_id, Prefix)
            limits[entity], terms[entity] = of_entity, Terms(shadow, proposed, shared=shared)
            for kind in CLIENT_KINDS:
                by_kind[cap][kind].pop(names, None)
            for kind, limit in of_entity.items():
                by_kind[cap][kind][names] = Written(limit, shadow, proposed.get(kind), shared)
    ips: list[Name] = [*ADDRESSES[:2], Default.DEFAULT]
    for ip in random.sample(ips, random.randint(0, 2)):
        limit = random.choice((1.0, 50.0, 2147483647.0))
        limits[Entity(ip=ip)] = {QuotaKind.CONNECTION_CREATION_RATE: limit}
    return Policy(limits, terms, GROUPS), *by_kind


def clients(random: Random) -> Iterator[ExplainedClient]:
    for _ in range(CLIENTS_OF_A_POLICY):
        yield ExplainedClient(random.choice(CLIENTS[0]), random.choice(CLIENTS[1]), random.choice(ADDRESSES))


def as_told(rule: RuleRow | ExplainedRow) -> tuple[str | None, float | None, float | None, str]:
    in_force, measured = (None, rule.limit) if rule.mode == "shadow" else (rule.limit, rule.proposed)
    return rule.rule, in_force, measured, str(rule.counter).partition(", who")[0].partition(", what")[0]


def as_enforced(bound: Bound) -> tuple[str | None, float | None, float | None, str]:
    user: Name = Group(bound.key.user.removeprefix("group:")) if bound.key.several & GROUP else bound.key.user or None
    client_id: Name = Prefix(bound.key.client_id[:-1]) if bound.key.several & PREFIX else bound.key.client_id or None
    rule = None if bound.rule is None else bound.rule.describe()
    return rule, bound.limit, bound.shadow_limit, Entity(user, client_id).describe()


def as_documented(holds: Holds, *, cap: bool) -> tuple[str | None, float | None, float | None, str]:
    user, client_id = map(names_of, holds.names)
    of_user, of_client_id = map(names_of, holds.counter)
    rule = Entity(user, client_id, cap=cap).describe()
    return rule, holds.in_force, holds.measured, Entity(of_user, of_client_id).describe()


def compare(
    row: ExplainedRow, engine: Engine, rules: Mapping[Names, Written], of_caps: Rules, client: ExplainedClient
) -> None:
    kind, (user, client_id, _) = QuotaKind(row.kind), client
    bound = engine.resolve(user, client_id, kind, 1)
    caps = engine.resolve_caps(user, client_id, kind, 1)
    group = GROUP_OF.get(user)
    by_page = precedence.winner(rules, user, group, client_id)
    if row.rule is None:
        assert (bound.limit, bound.rule, bound.shadow_limit, by_page) == (None, None, None, None), (client, kind)
    else:
        assert by_page is not None, (client, kind)
        assert as_told(row) == as_enforced(bound) == as_documented(by_page, cap=False), (client, kind)
    capped = [as_told(cap) for cap in row.caps]
    by_page_caps = precedence.caps(of_caps[kind], user, group, client_id)
    assert capped == [as_enforced(each) for each in caps], (client, kind)
    assert capped == [as_documented(each, cap=True) for each in by_page_caps], (client, kind)
    reached = [each.rule for each in row.levels if each.limit is not None and each.is_reached]
    assert reached == [each.rule for each in row.levels if each.wins] == [row.rule] * (row.rule is not None)


def printed(explainer: Explainer, client: ExplainedClient) -> dict[str, tuple[str, list[str]]]:
    """Return the limit and the caps of each kind as they are printed; "" where there is none."""
    found: dict[str, tuple[str, list[str]]] = {}
    kind = ""
    for line in pages(explainer.explain(client), None):
        if head := re.match(r"([a-z_]+_[a-z]+): (?:no quota|(\S+) )", line):
            kind = head[1]
            found[kind] = (head[2] or "", [])
        elif cap := re.match(r"  also: (\S+) ", line):
            found[kind][1].append(cap[1])
    return found


def run(policies: int, seed: int) -> int:
    """Return how many cases were compared: one kind of one client under one policy."""
    random = Random(seed)
    cases = 0
    for _ in range(policies):
        policy, rules, of_caps = made(random)
        engine, explainer = Engine(policy), Explainer(policy)
        rates = ConnectionRates(Window(), None, {})
        rates.apply(policy)
        for client in clients(random):
            explanation = explainer.explain(client)
            text = printed(explainer, client)
            for row in explanation.rows:
                told = "" if row.limit is None else written(row.limit)
                assert text[row.kind] == (told, [written(cap.limit or 0) for cap in row.caps])
                cases += 1
                if (kind := QuotaKind(row.kind)) in rules:
                    compare(row, engine, rules[kind], of_caps, client)
                    continue
                limit, entity = rates.limit_of(client.ip)
                assert (row.limit, row.rule) == ((None, None) if limit is None else (limit, entity.describe()))
    return cases


@pytest.mark.long
def test_explain_agrees_with_engine_and_docs_for_random_policies() -> None:
    assert run(policies=20, seed=1) == 5000


@pytest.mark.matrix
def test_explain_agrees_with_engine_and_docs_for_100_000_cases() -> None:
    assert run(policies=400, seed=2) == 100_000
