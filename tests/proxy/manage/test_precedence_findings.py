"""Surprises of precedence: each by an example, and what is said of rules beside what the engine does with them."""

from itertools import product
from pathlib import Path
from random import Random

import pytest

from proxy.manage.linting import look
from quotas.engine import Engine
from quotas.entities import Default, Entity, Group, Prefix
from quotas.kinds import CLIENT_KINDS, QuotaKind
from quotas.policy import Policy
from quotas.precedence import winner_of
from quotas.stores.base import Loaded
from tests.proxy.manage.run import linted
from tests.proxy.manage.test_explain_random import made

RATE, SMALL = "producer_byte_rate: 1MiB", "producer_byte_rate: 100KiB"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_rule_behind_higher_level_is_found_as_never_matching() -> None:
    said = linted(
        f"client-id: app | {RATE}",
        f"client-id: {{prefix: team-}} | {RATE}",
        f"user: {{default: true}} | {RATE}, consumer_byte_rate: 1MiB",
        "client-id: other | consumer_byte_rate: 1MiB, request_percentage: 10",
    )
    behind = "user=<default> (q.yaml:4) takes precedence for all of its clients"
    assert [line.partition(";")[0] for line in said] == [
        f"2: never-matches: client-id=app: producer_byte_rate: {behind}",
        f"3: never-matches: client-id-prefix=team-: producer_byte_rate: {behind}",
        f"5: never-matches: client-id=other: consumer_byte_rate: {behind}",
    ]


def test_group_whose_members_have_own_quotas_is_found() -> None:
    one, two = f"user: alice | {RATE}", f"user: bob | {RATE}"
    group = f"user-group: tenant | {RATE}"
    said = linted(one, group, groups="{tenant: [alice, bob]}")
    assert [line.partition(";")[0] for line in said] == [
        (
            "3: group-member-has-own: user-group=tenant: producer_byte_rate: a member has a quota of its own instead, "
            "which does not count towards this: user=alice (q.yaml:2)"
        )
    ]
    said = linted(one, two, group, groups="{tenant: [alice, bob]}")
    assert [line.split(": ")[1] for line in said] == ["never-matches", "group-member-has-own"]
    assert ": user=alice (q.yaml:2), and 1 more;" in said[1]


def test_larger_user_quota_overriding_client_id_quota_is_found() -> None:
    app = f"user: {{default: true | client-id: app}}, {SMALL}"
    assert [line.partition(";")[0] for line in linted(app, f"user: alice | {RATE}", f"user: bob | {RATE}")] == [
        (
            "2: precedence-surprise: user=<default>, client-id=app: producer_byte_rate: a larger quota of a user "
            "takes precedence over this one: user=alice (q.yaml:3) with 1048576, and 1 more"
        )
    ]
    smaller = f"user: alice | {SMALL}"
    assert linted(f"user: {{default: true | client-id: app}}, {RATE}", smaller) == []
    own_pair = f"user: alice, client-id: app | {SMALL}"
    assert linted(app, f"user: alice | {RATE}", own_pair) == []


@pytest.mark.parametrize(
    ("rule", "fix"),
    [
        ("user: alice, client-id: {default: true}", "write a quota for user=alice, no larger than this one"),
        ("user: {default: true}, client-id: {default: true}", "write a quota for user=<default>, no larger than this"),
        ("client-id: {default: true}", "write a cap for user=<default>, no larger than this one"),
    ],
)
def test_quota_that_empty_client_id_escapes_is_found(rule: str, fix: str) -> None:
    def escapes(*rules: str, caps: tuple[str, ...] = ()) -> list[str]:
        return [line for line in linted(*rules, caps=caps) if "client-id-multiplies" not in line]

    default = f"{rule} | {SMALL}"
    (line,) = escapes(default)
    assert "empty-client-id-escapes" in line
    assert "it does not apply to a client without a client-id, which has no limit; " + fix in line
    # What it says is what helps.
    entity = fix.partition(" for ")[2].partition(",")[0].replace("user=<default>", "user: {default: true}")
    entity = entity.replace("user=alice", "user: alice")
    closed = f"{entity} | {SMALL}"
    assert (escapes(default, caps=(closed,)) if "cap" in fix else escapes(default, closed)) == []
    if "cap" not in fix:
        (line,) = escapes(default, f"{entity} | {RATE}")
        assert "which has 1048576 of user=" in line


@pytest.mark.parametrize(
    ("rule", "who"),
    [
        ("user: alice, client-id: {default: true} | PRODUCE", "user: alice"),
        ("user: {default: true}, client-id: {default: true} | PRODUCE", "user: {default: true}"),
        ("client-id: {default: true} | PRODUCE", "user: {default: true}"),
        ("client-id: {prefix: team-} | PRODUCE, shared: false", "user: {default: true}"),
        ("user: alice, client-id: {prefix: team-} | PRODUCE, shared: false", "user: alice"),
    ],
)
def test_quota_per_client_id_without_cap_is_found(rule: str, who: str) -> None:
    rule = rule.replace("PRODUCE", SMALL)
    said = [line for line in linted(rule) if "client-id-multiplies" in line]
    assert len(said) == 1
    assert "a client that makes up client-ids gets the full limit for each; write a cap for user=" in said[0]
    assert linted(rule, caps=(f"{who} | {SMALL}",)) == []
    assert len(linted(rule, caps=(f"{who} | {SMALL}, mode: shadow",))) >= 1
    shared = "client-id: {prefix: team-} | " + SMALL
    assert linted(shared, "user: alice, client-id: app | " + SMALL) == []


def test_a_rule_in_shadow_hides_a_limit() -> None:
    shadow = f"user: alice | {RATE}, mode: shadow"
    assert linted(shadow) == []
    (line,) = linted(shadow, f"user: {{default: true}} | {SMALL}")
    assert line.startswith(
        "2: shadow-hides-limit: user=alice: producer_byte_rate: while it is in shadow its clients are unlimited"
    )
    assert "user=<default> (q.yaml:3) would limit them" in line
    assert linted(shadow, f"user: {{default: true}} | {SMALL}, mode: shadow") == []


def test_cap_not_below_sum_of_quotas_is_found() -> None:
    users = (f"user: alice | {RATE}", f"user: bob | {RATE}")
    groups = "{tenant: [alice, bob]}"
    cap = "user-group: tenant | producer_byte_rate: 2MiB"
    (line,) = linted(*users, groups=groups, caps=(cap,))
    assert line.startswith(
        "5: cap-never-holds: cap user-group=tenant: producer_byte_rate: it has no effect: quotas allow"
    )
    lower = "user-group: tenant | producer_byte_rate: 2097151"
    assert linted(*users, groups=groups, caps=(lower,)) == []
    assert linted(users[0], groups=groups, caps=(cap,)) == []  # bob has no limit
    by_pair = f"user: bob, client-id: x | {SMALL}"
    assert linted(*users, by_pair, groups=groups, caps=(cap,)) == []  # as many counters as client-ids
    assert linted(*users, groups=groups, caps=(cap.replace("2MiB", "2MiB, burst: 1s"),)) == []


CLIENTS = [
    *product(("alice", "bob", "carol", "dave", "\u2603"), ("", "team-a-1", "team-x", "team-a-x", "app", "ax", "\u2603"))
]


def test_never_matches_is_said_of_just_the_rules_that_no_client_gets() -> None:
    """Beside all clients that differ in anything to the rules."""
    random = Random(3)
    dead = 0
    for _ in range(60):
        policy, _, _ = made(random)
        said = {
            (finding.entity, kind)
            for finding in look(Loaded(policy, "", "q", dict.fromkeys(policy.limits, 1)), None)
            for kind in finding.kinds
            if finding.name == "never-matches"
        }
        unseen = set()
        for kind in CLIENT_KINDS:
            winners = {winner_of(policy.book(kind), *client) for client in CLIENTS}
            entities = policy.book(kind).entities
            unseen |= {(entity.describe(), kind) for key, entity in entities.items() if key not in winners}
        assert said == unseen
        dead += len(said)
    assert dead > 40


def test_cap_found_ineffective_is_at_least_any_counter_sum() -> None:
    """Of all policies drawn, those where it is said: no combination of its users' counters has more."""
    random = Random(4)
    found = 0
    for _ in range(400):
        users = {Entity(name): {QuotaKind.PRODUCER_BYTE_RATE: float(random.randint(1, 9))} for name in ("alice", "bob")}
        others = random.sample(
            [
                Entity(Default.DEFAULT),
                Entity(Group("g")),
                Entity(None, "x"),
                Entity("bob", "x"),
                Entity(None, Prefix("p")),
            ],
            2,
        )
        limits = {**dict(random.sample([*users.items()], random.randint(0, 2)))}
        limits |= {entity: {QuotaKind.PRODUCER_BYTE_RATE: 3.0} for entity in others}
        cap = random.randint(1, 18)
        limits[Entity(Group("g"), cap=True)] = {QuotaKind.PRODUCER_BYTE_RATE: float(cap)}
        policy = Policy(limits, {}, {"g": ("alice", "bob")})
        said = look(Loaded(policy, "", "q", dict.fromkeys(policy.limits, 1)), None)
        if any(finding.name == "cap-never-holds" for finding in said):
            engine = Engine(policy)
            bounds = {
                engine.resolve(user, client_id, QuotaKind.PRODUCER_BYTE_RATE, 1)
                for user, client_id in product(("alice", "bob"), ("", "x", "px", "other"))
            }
            assert sum(bound.limit or float("inf") for bound in bounds) <= cap
            found += 1
    assert found > 20
