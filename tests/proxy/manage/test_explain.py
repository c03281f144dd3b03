"""``sluice quotas explain``: what it prints, and what it refuses."""

import json
from pathlib import Path

import pytest

from tests.proxy.manage.run import quotas

RULES = """\
groups:
  tenant: [alice, bob]
caps:
  - {entity: {user-group: tenant}, producer_byte_rate: 50MiB, max_delay: 5s}
quotas:
  - {entity: {user: {default: true}}, producer_byte_rate: 10MiB, burst: 2s}
  - {entity: {client-id: app-1}, producer_byte_rate: 5MiB}
  - {entity: {user: shop}, consumer_byte_rate: 1000, proposed: {consumer_byte_rate: 500}, controller_mutation_rate: 5}
  - {entity: {user: try}, request_percentage: 12.5, mode: shadow}
  - {entity: {ip: {default: true}}, connection_creation_rate: 10}
  - {entity: {ip: 10.0.0.9}, connection_creation_rate: 2147483647}
"""
CONFIG = """\
cluster: {name: demo, bootstrap: ["b:1"]}
listeners:
  - {name: A, bind: ":9092", advertise: h, brokers: {0: 9100}}
quotas:
  store: {path: quotas.yaml}
  exempt: {users: [mirror], client_ids: [probe], networks: [10.1.0.0/16]}
  max_delay: 30s
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quotas.yaml").write_text(RULES)
    (tmp_path / "sluice.yaml").write_text(CONFIG)
    return tmp_path


def explained(*arguments: str) -> str:
    done = quotas("explain", *arguments)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


def test_explain_shows_levels_winner_and_reason_per_quota() -> None:
    said = explained("--file", "quotas.yaml", "--user", "alice", "--client-id", "app-1", "--ip", "::ffff:10.0.0.1")
    assert (
        said
        == """\
user alice, client-id app-1, at 10.0.0.1, of the group tenant

producer_byte_rate: 10485760 bytes/s (10 MiB/s) at each broker, of user=<default> (quotas.yaml:6)
  why: default user is the first level with a limit
  counter: one for user=alice, whatever the client-id
  burst: 2000 ms' worth at once
    user=alice, client-id=app-1                 -
    user=alice, client-id=<default>             -
    user=alice                                  -
    user=<default>, client-id=app-1             -
    user=<default>, client-id=<default>         -
    user=<default>                       10485760  wins         quotas.yaml:6
    client-id=app-1                       5242880  not reached  quotas.yaml:7
    client-id=<default>                         -
  also: 52428800 bytes/s (50 MiB/s) at each broker, of cap user-group=tenant (quotas.yaml:4)
    counter: one for user-group=tenant, whatever the client-id
    max_delay: no throttle is longer than 5000 ms

consumer_byte_rate: no quota (no level has a limit)

request_percentage: no quota (no level has a limit)

controller_mutation_rate: no quota (no level has a limit)

connection_creation_rate: 10 connections/s at each broker, of ip=<default> (quotas.yaml:10)
  why: the default address is the first level with a limit
  counter: one for ip=10.0.0.1, or its network if very many connect (docs/quotas.md)
    ip=10.0.0.1    -
    ip=<default>  10  wins         quotas.yaml:10
"""
    )


def test_explain_shows_units_proposed_limits_and_shadow() -> None:
    said = explained("--file", "quotas.yaml", "--user", "shop")
    assert "consumer_byte_rate: 1000 bytes/s at each broker, of user=shop (quotas.yaml:8)\n" in said
    assert "  proposed: 500 bytes/s: measured beside it, not enforced\n" in said
    assert "controller_mutation_rate: 5 partitions/s in the whole cluster, of user=shop (quotas.yaml:8)\n" in said
    assert "without a client-id only the levels of users apply" in said
    said = explained("--file", "quotas.yaml", "--user", "try")
    assert "request_percentage: 12.5 % of one thread at each broker, of user=try (quotas.yaml:9)\n" in said
    assert "  mode: shadow: measured, not enforced\n" in said


def test_an_address_without_a_limit_says_so() -> None:
    said = explained("--file", "quotas.yaml", "--ip", "10.0.0.9")
    assert "connection_creation_rate: no quota (ip=10.0.0.9 has Kafka's word for no limit)" in said
    assert "    ip=<default>          10  not reached  quotas.yaml:10" in said


def test_explain_with_config_shows_max_delay_exemptions_and_mode() -> None:
    assert explained("-c", "sluice.yaml", "--user", "alice").splitlines()[1] == (
        "quotas.max_delay: no throttle is longer than 30000 ms, unless a rule says so"
    )
    for by, arguments in (
        ("user", ("--user", "mirror")),
        ("client-id", ("--client", "probe")),
        ("network", ("--ip", "10.1.2.3")),
    ):
        said = explained("-c", "sluice.yaml", *arguments)
        assert f"\nexempt by its {by} (quotas.exempt): none of the limits below applies\n" in said
    Path("sluice.yaml").write_text(f"{CONFIG}  mode: shadow\n")
    assert "\nquotas.mode is shadow: no client is limited\n" in explained("-c", "sluice.yaml", "--user", "alice")


def test_explain_as_json_gives_winner_levels_and_caps() -> None:
    told = json.loads(explained("-c", "sluice.yaml", "--user", "alice", "--client-id", "app-1", "-o", "json"))
    assert {key: told[key] for key in ("user", "client_id", "ip", "group", "exempt", "mode")} == {
        "user": "alice", "client_id": "app-1", "ip": None, "group": "tenant", "exempt": None, "mode": "enforce",
    }  # fmt: skip
    produce = told["items"][0]
    assert {key: value for key, value in produce.items() if key not in ("levels", "caps")} == {
        "kind": "producer_byte_rate",
        "rule": "user=<default>",
        "limit": 10485760.0,
        "source": "quotas.yaml:6",
        "mode": "enforce",
        "proposed": None,
        "burst_ms": 2000,
        "max_delay_ms": None,
        "scope": "broker",
        "counter": "user=alice, whatever the client-id",
        "why": "default user is the first level with a limit",
    }
    assert [level["limit"] for level in produce["levels"]] == [None] * 5 + [10485760.0, 5242880.0, None]
    assert [level["is_reached"] for level in produce["levels"]] == [True] * 6 + [False] * 2
    assert [cap["rule"] for cap in produce["caps"]] == ["cap user-group=tenant"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name a client: --user, --client-id, --ip, or several of them"),
        (("--user", ""), "--user is empty: leave it out for ANONYMOUS"),
        (("--ip", "host"), "--ip: 'host' is not an IP address; host names are not resolved"),
    ],
)
def test_explain_with_bad_arguments_exits_with_2(arguments: tuple[str, ...], said: str) -> None:
    done = quotas("explain", "--file", "quotas.yaml", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


def test_a_name_that_is_too_long_is_counted_as_it_is_cut() -> None:
    name = "x" * 300
    Path("quotas.yaml").write_text(f"quotas: [{{entity: {{user: {name}}}, producer_byte_rate: 1MiB}}]\n")
    assert "1048576 bytes/s (1 MiB/s) at each broker, of user=xxx" in explained("--file", "quotas.yaml", "--user", name)
