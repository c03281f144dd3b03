"""``sluice quotas lint``: each finding by an example; those of precedence are in test_precedence_findings.py."""

import ast
import inspect
import json
import re
from pathlib import Path

import pytest

from config.settings import Quotas
from proxy.manage.linting import NAMES, look
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.stores import likely_mistakes
from quotas.stores.base import Loaded
from tests.proxy.manage.run import linted, quotas
from tests.proxy.manage.test_explain import CONFIG

RATE = "producer_byte_rate: 1MiB"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_lint_of_correct_quota_file_finds_nothing() -> None:
    assert linted(f"user: alice | {RATE}", f"user: {{default: true}} | {RATE}") == []
    assert quotas("lint", "--file", "q.yaml", "--strict").exit_code == 0
    assert quotas("lint", "--file", "q.yaml").stdout == "q.yaml: nothing found (2 rules)\n"


def test_limits_below_one_batch_request_or_partition_are_found() -> None:
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
def test_names_that_look_like_patterns_or_defaults_are_found(name: str, found: str) -> None:
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


def test_quotas_of_exempt_clients_are_found() -> None:
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


def test_limit_of_0_and_problems_of_the_store_are_found() -> None:
    from config.problems import Problem

    entity = Entity("alice")
    policy = Policy({entity: {QuotaKind.REQUEST_PERCENTAGE: 0.0}})
    problem = Problem("zookeeper://zk", 0, 0, "/config/users/b", "is no quota")
    loaded = Loaded(policy, "1", "zookeeper://zk", {entity: "/config/users/alice"}, [problem])
    assert [str(each) for each in look(loaded, None)] == [
        (
            "zookeeper://zk:/config/users/alice: lets-nothing-through: user=alice: request_percentage: a limit of 0 "
            "lets nothing through; remove it for no limit"
        ),
        "zookeeper://zk: of-the-store: /config/users/b: is no quota",
    ]


LAYERS = CONFIG.replace("store: {path: quotas.yaml}", "stores: [{path: over.yaml}, {path: base.yaml}]")


def test_limit_hidden_by_upper_layer_is_found() -> None:
    Path("sluice.yaml").write_text(LAYERS)
    Path("over.yaml").write_text(f"quotas:\n  - {{entity: {{user: alice}}, {RATE}, request_percentage: 5}}\n")
    Path("base.yaml").write_text(
        "quotas:\n"
        f"  - {{entity: {{user: bob}}, {RATE}}}\n"
        f"  - {{entity: {{user: alice}}, {RATE}, consumer_byte_rate: 1MiB, request_percentage: 7}}\n"
    )
    same, other, last = quotas("lint", "-c", "sluice.yaml").stdout.splitlines()
    at = "over.yaml:2, base.yaml:3: hidden-by-layer: user=alice:"
    assert same.startswith(f"{at} producer_byte_rate: 1048576 at base.yaml:3 has no effect: a layer above sets the")
    assert other.startswith(f"{at} request_percentage: 7 at base.yaml:3 has no effect: a layer above sets 5; leave")
    assert last == "over.yaml over base.yaml: 2 findings (2 rules)"
    said = quotas("explain", "-c", "sluice.yaml", "--user", "alice").stdout
    assert "of user=alice (over.yaml:2)" in said
    assert "consumer_byte_rate: 1048576 bytes/s (1 MiB/s) at each broker, of user=alice (base.yaml:3)" in said


def test_quotas_enforced_by_brokers_too_are_found() -> None:
    enforce, shadow = (
        Quotas.model_validate({"store": {"type": "zookeeper", "connect": "zk:1"}, "mode": mode})
        for mode in ("enforce", "shadow")
    )
    entity = Entity("alice")
    loaded = Loaded(Policy({entity: {QuotaKind.REQUEST_PERCENTAGE: 5.0}}), "1", "zookeeper://zk", {entity: "/a"})
    (finding,) = look(loaded, enforce)
    assert str(finding).startswith("zookeeper://zk: enforced-twice: quotas: the brokers enforce these quotas as well")
    assert look(loaded, shadow) == look(loaded, None) == []


def test_lint_exit_status_follows_strict_ignore_and_errors() -> None:
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


def test_lint_as_json_gives_name_place_and_fix() -> None:
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


def test_lint_findings_beyond_20_of_one_name_are_counted() -> None:
    said = linted(*(f"client-id: app-{number} | {RATE}" for number in range(30)), f"user: {{default: true}} | {RATE}")
    assert (len(said), said[-1]) == (21, "and 10 more of never-matches")


def test_every_name_that_is_given_is_in_the_table() -> None:
    from proxy.manage import linting, precedence_findings

    given: set[str] = set()
    for module in (likely_mistakes, precedence_findings, linting):
        for statement in ast.parse(inspect.getsource(module)).body:
            if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == "NAMES":
                continue
            texts = (each.value for each in ast.walk(statement) if isinstance(each, ast.Constant))
            given.update(text for text in texts if isinstance(text, str) and re.fullmatch(r"[a-z]+(-[a-z]+)+", text))
    given.discard("client-id")
    assert given == set(NAMES)
