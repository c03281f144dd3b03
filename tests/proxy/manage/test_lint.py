"""``sluice quotas lint``: each finding by an example, and those about precedence beside the engine."""

import inspect
import json
import re
from itertools import product
from pathlib import Path
from random import Random

import pytest

from proxy.manage.linting import NAMES, lint
from quotas.engine import CLIENT_KINDS, Engine
from quotas.entities import Default, Entity, Group, Prefix
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.stores import doubts
from quotas.stores.base import Loaded
from tests.proxy.manage.run import quotas
from tests.proxy.manage.test_explain import CONFIG
from tests.proxy.manage.test_explain_random import made

RATE, SMALL = "producer_byte_rate: 1MiB", "producer_byte_rate: 100KiB"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _rule(who: str, what: str) -> str:
    return f"  - {{entity: {{{who}}}, {what}}}"


def linted(*rules: str, groups: str = "", caps: tuple[str, ...] = ()) -> list[str]:
    """Return what is said of rules (whom they are for | what they say), of which the first is on line 2."""
    text = "quotas:\n" if rules else "quotas: []\n"
    lines = [_rule(*rule.split(" | ")) for rule in rules]
    of_caps = ["caps:", *(_rule(*rule.split(" | ")) for rule in caps)] if caps else []
    Path("q.yaml").write_text(text + "\n".join([*lines, *of_caps, f"groups: {groups}" if groups else "", ""]))
    done = quotas("lint", "--file", "q.yaml")
    assert (done.exit_code, done.stderr) == (0, "")
    return [re.sub(r"^q\.yaml:?", "", line) for line in done.stdout.splitlines()][:-1]


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert linted(f"user: alice | {RATE}", f"user: {{default: true}} | {RATE}") == []
    assert quotas("lint", "--file", "q.yaml", "--strict").exit_code == 0
    assert quotas("lint", "--file", "q.yaml").stdout == "q.yaml: nothing found (2 rules)\n"


def test_a_rule_that_never_matches() -> None:
    said = linted(
        f"client-id: app | {RATE}",
        f"client-id: {{prefix: team-}} | {RATE}",
        f"user: {{default: true}} | {RATE}, consumer_byte_rate: 1MiB",
        "client-id: other | consumer_byte_rate: 1MiB, request_percentage: 10",
    )
    behind = "user=<default> (q.yaml:4) comes first for all whom it is for"
    assert [line.partition(";")[0] for line in said] == [
        f"2: never-matches: client-id=app: producer_byte_rate: {behind}",
        f"3: never-matches: client-id-prefix=team-: producer_byte_rate: {behind}",
        f"5: never-matches: client-id=other: consumer_byte_rate: {behind}",
    ]


def test_a_group_whose_members_all_have_their_own() -> None:
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


def test_level_3_before_level_4() -> None:
    app = f"user: {{default: true | client-id: app}}, {SMALL}"
    assert [line.partition(";")[0] for line in linted(app, f"user: alice | {RATE}", f"user: bob | {RATE}")] == [
        (
            "2: precedence-surprise: user=<default>, client-id=app: producer_byte_rate: a quota of a user alone comes "
            "before this one, and is larger: user=alice (q.yaml:3) with 1048576, and 1 more"
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
def test_an_empty_client_id_escapes(rule: str, fix: str) -> None:
    default = f"{rule} | {SMALL}"
    (line,) = linted(default)
    assert "empty-client-id-escapes" in line
    assert "a client without a client-id is not held by it, and has no limit; " + fix in line
    # What it says is what helps.
    entity = fix.partition(" for ")[2].partition(",")[0].replace("user=<default>", "user: {default: true}")
    entity = entity.replace("user=alice", "user: alice")
    closed = f"{entity} | {SMALL}"
    assert (linted(default, caps=(closed,)) if "cap" in fix else linted(default, closed)) == []
    if "cap" not in fix:
        (line,) = linted(default, f"{entity} | {RATE}")
        assert "and has 1048576 of user=" in line


def test_a_rule_in_shadow_hides_a_limit() -> None:
    shadow = f"user: alice | {RATE}, mode: shadow"
    assert linted(shadow) == []
    (line,) = linted(shadow, f"user: {{default: true}} | {SMALL}")
    assert line.startswith("2: shadow-hides-limit: user=alice: producer_byte_rate: while it is in shadow nobody")
    assert "user=<default> (q.yaml:3) would hold them" in line
    assert linted(shadow, f"user: {{default: true}} | {SMALL}, mode: shadow") == []


def test_a_cap_that_never_holds() -> None:
    users = (f"user: alice | {RATE}", f"user: bob | {RATE}")
    groups = "{tenant: [alice, bob]}"
    cap = "user-group: tenant | producer_byte_rate: 2MiB"
    (line,) = linted(*users, groups=groups, caps=(cap,))
    assert line.startswith(
        "5: cap-never-holds: cap user-group=tenant: producer_byte_rate: it never holds: quotas allow"
    )
    lower = "user-group: tenant | producer_byte_rate: 2097151"
    assert linted(*users, groups=groups, caps=(lower,)) == []
    assert linted(users[0], groups=groups, caps=(cap,)) == []  # bob has no limit
    by_pair = f"user: bob, client-id: x | {SMALL}"
    assert linted(*users, by_pair, groups=groups, caps=(cap,)) == []  # as many counters as client-ids
    assert linted(*users, groups=groups, caps=(cap.replace("2MiB", "2MiB, burst: 1s"),)) == []


def test_limits_below_one_of_what_is_sent() -> None:
    said = linted(
        "user: a | producer_byte_rate: 1000",
        "user: b | consumer_byte_rate: 8KiB",
        "user: c | request_percentage: 0.0001",
        "user: d | controller_mutation_rate: 0.01",
    )
    assert [line.split(": ")[1] for line in said] == [
        "below-one-batch",
        "below-one-batch",
        "below-one-request",
        "below-one-partition",
    ]
    assert "1000 a second is less than one batch of 16 KiB" in said[0]
    assert "once its burst is used, a client is held for up to 2" in said[1]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("'<default>'", "default-is-a-name"),
        ("'*'", "default-is-a-name"),
        ("team-*", "glob-is-a-name"),
        ("'a,b'", "several-in-one-name"),
        ("'User:alice'", "principal-type-in-name"),
        ("anonymous", "anonymous-misspelt"),
        ("'${USER}'", "variable-in-name"),
        ("' alice'", "whitespace-in-name"),
        ('"a\\u200b"', "invisible-in-name"),
    ],
)
def test_names(name: str, found: str) -> None:
    (line,) = linted(f"user: {name} | {RATE}")
    assert line.startswith(f"2: {found}: user=")
    (line,) = linted(f"user-group: g | {RATE}", groups=f"{{g: [{name}]}}")
    assert line.startswith(f" {found}: in the group g: user ")


def test_names_in_upper_and_lower_case_and_unused_groups() -> None:
    said = linted(f"user: alice | {RATE}", f"user: Alice | {RATE}", groups="{idle: [zoe]}")
    assert [line.partition(";")[0] for line in said] == [
        "3: differs-in-case: user=Alice: differs from user=alice in upper and lower case alone",
        " unused-group: the group idle: no quota is for this group",
    ]


def test_who_is_exempt_has_no_use_for_a_quota() -> None:
    Path("sluice.yaml").write_text(CONFIG)
    Path("quotas.yaml").write_text(
        f"quotas:\n  - {{entity: {{user: mirror}}, {RATE}}}\n  - {{entity: {{client-id: probe}}, {RATE}}}\n"
        "  - {entity: {ip: 10.1.0.9}, connection_creation_rate: 1}\n"
        "  - {entity: {ip: 10.2.0.9}, connection_creation_rate: 1}\n"
    )
    said = quotas("lint", "-c", "sluice.yaml").stdout.splitlines()[:-1]
    assert [line.rpartition(": ")[0] for line in said] == [
        "quotas.yaml:2: exempt-has-quota: user=mirror",
        "quotas.yaml:3: exempt-has-quota: client-id=probe",
        "quotas.yaml:4: exempt-has-quota: ip=10.1.0.9",
    ]


def test_a_limit_of_0_and_what_a_store_says_itself() -> None:
    from config.problems import Problem

    entity = Entity("alice")
    policy = Policy({entity: {QuotaKind.REQUEST_PERCENTAGE: 0.0}})
    problem = Problem("zookeeper://zk", 0, 0, "/config/users/b", "is no quota")
    loaded = Loaded(policy, "1", "zookeeper://zk", {entity: "/config/users/alice"}, [problem])
    assert [str(each) for each in lint(loaded, None)] == [
        (
            "zookeeper://zk:/config/users/alice: lets-nothing-through: user=alice: request_percentage: a limit of 0 "
            "lets nothing through; remove it for no limit"
        ),
        "zookeeper://zk: of-the-store: /config/users/b: is no quota",
    ]


def test_what_decides_the_exit_status() -> None:
    linted("user: 'team-*' | producer_byte_rate: 10")
    assert quotas("lint", "--file", "q.yaml").exit_code == 0
    done = quotas("lint", "--file", "q.yaml", "--strict")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (1, "q.yaml: 2 findings (1 rule)")
    done = quotas("lint", "--file", "q.yaml", "--strict", "--ignore", "glob-is-a-name", "--ignore", "below-one-batch")
    assert (done.exit_code, done.stdout) == (0, "q.yaml: nothing found (1 rule)\n")
    assert quotas("lint", "--file", "q.yaml", "--ignore", "glob").exit_code == 2
    Path("q.yaml").write_text("quotas: 1\n")
    done = quotas("lint", "--file", "q.yaml")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: q.yaml:1:9: quotas: must be a list of quotas")


def test_for_programs() -> None:
    linted("user: 'team-*' | producer_byte_rate: 10")
    (glob, small) = json.loads(quotas("lint", "--file", "q.yaml", "-o", "json").stdout)["findings"]
    assert glob == {
        "name": "glob-is-a-name",
        "where": "q.yaml:2",
        "entity": "user=team-*",
        "kinds": [],
        "message": "user 'team-*' is a name as it stands: Kafka's quotas know no wildcards",
        "fix": "write a quota for each name, or {default: true} for all that have none of their own",
    }
    assert (small["name"], small["kinds"]) == ("below-one-batch", ["producer_byte_rate"])


def test_many_findings_of_one_name_are_counted() -> None:
    said = linted(*(f"client-id: app-{number} | {RATE}" for number in range(30)), f"user: {{default: true}} | {RATE}")
    assert (len(said), said[-1]) == (21, "and 10 more of never-matches")


def test_every_name_that_is_given_is_in_the_table() -> None:
    from proxy.manage import linting, surprises

    source = "".join(map(inspect.getsource, (doubts, surprises, linting)))
    given = set(re.findall(r'(?:yield \(?\s*|name=|= |"", )"([a-z]+(?:-[a-z]+)+)"', source))
    given |= {"below-one-request", "below-one-partition", "of-the-store", "differs-in-case"}
    assert given == set(NAMES)


CLIENTS = [
    *product(("alice", "bob", "carol", "dave", "\u2603"), ("", "team-a-1", "team-x", "team-a-x", "app", "ax", "\u2603"))
]


def test_never_matches_is_said_of_just_the_rules_that_no_client_gets() -> None:
    """Beside all clients that differ in anything to the rules."""
    random = Random(3)
    dead = 0
    for _ in range(60):
        policy, _, _ = made(random)
        engine = Engine(policy)
        said = {
            (finding.entity, kind)
            for finding in lint(Loaded(policy, "", "q", dict.fromkeys(policy.limits, 1)), None)
            for kind in finding.kinds
            if finding.name == "never-matches"
        }
        unseen = set()
        for kind in CLIENT_KINDS:
            winners = {engine.explain(*client, kind).winner for client in CLIENTS}
            unseen |= {(policy.client(key).describe(), kind) for key in policy.table(kind) if key not in winners}
        assert said == unseen
        dead += len(said)
    assert dead > 40


def test_a_cap_that_is_said_never_to_hold_is_above_all_counters_of_its_users() -> None:
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
        said = lint(Loaded(policy, "", "q", dict.fromkeys(policy.limits, 1)), None)
        if any(finding.name == "cap-never-holds" for finding in said):
            engine = Engine(policy)
            bounds = {
                engine.resolve(user, client_id, QuotaKind.PRODUCER_BYTE_RATE, 1)
                for user, client_id in product(("alice", "bob"), ("", "x", "px", "other"))
            }
            assert sum(bound.limit or float("inf") for bound in bounds) <= cap
            found += 1
    assert found > 20
