"""``sluice quotas export`` and ``import``: from quota files, a cluster and a ZooKeeper into a quota file."""

from pathlib import Path

import pytest
from hypothesis import given

from proxy.manage import target
from proxy.manage.importing import plan
from quotas.entities import Default, Entity, Group, Prefix
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms
from quotas.stores.file import load
from quotas.stores.file_store import FileStore
from tests.harness.ports import free_port
from tests.proxy.manage.conftest import QUOTAS, Run
from tests.proxy.manage.test_quota_file import policies

FROM = "--from zookeeper --from-address zk:2181"
CONFIG = """\
cluster: {name: demo, bootstrap: ["127.0.0.1:19092"]}
listeners: [{name: PLAIN, bind: "127.0.0.1:9092", advertise: 127.0.0.1, brokers: {"0-9": "9100-9109"}}]
quotas: {store: {type: file, path: quotas.yaml}}
admin: {bind: "127.0.0.1:9404"}
"""
P, C = QuotaKind.PRODUCER_BYTE_RATE, QuotaKind.CONSUMER_BYTE_RATE

USERS = """\
quotas:
  - {entity: {user: alice}, producer_byte_rate: 2048}
  - {entity: {user: bob}, consumer_byte_rate: 4096}
"""


@pytest.fixture
def zookeeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that stands for a ZooKeeper."""
    path = tmp_path / "zookeeper.yaml"
    monkeypatch.setattr(target, "open_zookeeper", lambda *_: FileStore(path))
    return path


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users.yaml"
    path.write_text(USERS)
    return path


def test_an_exported_file_is_the_same_quotas(run: Run, quota_file: Path, tmp_path: Path) -> None:
    exported = run("export --file {}", quota_file)
    assert exported.exit_code == 0
    again = tmp_path / "again.yaml"
    again.write_text(exported.stdout)
    assert load(again).policy == load(quota_file).policy


@pytest.mark.parametrize("answer", ["y", "n"])
def test_an_import_shows_what_changes_and_asks(run: Run, quota_file: Path, users: Path, answer: str) -> None:
    done = run("import {} --file {}", users, quota_file, said=f"{answer}\n")
    assert done.exit_code == 0
    assert done.stdout.startswith(
        "~ user=alice producer_byte_rate 1024 → 2048\n+ user=bob consumer_byte_rate 4096\n"
        "Make these changes (2 entities)? [y/N]: "
    )
    if answer == "n":
        assert done.stdout.endswith("nothing has been changed\n")
        assert quota_file.read_text() == QUOTAS
        return
    assert done.stdout.endswith("2 entities changed\n")
    after = QUOTAS.replace("1024", "2048").replace(
        "  - {entity: {ip: {default: true}}, connection_creation_rate: 10}\n",
        "  - {entity: {ip: {default: true}}, connection_creation_rate: 10}\n"
        "  - {entity: {user: bob}, consumer_byte_rate: 4096}\n",
    )
    assert quota_file.read_text() == after  # comments and order as they were


def test_replace_removes_what_is_not_in_the_source(run: Run, quota_file: Path, users: Path) -> None:
    done = run("import {} --file {} --replace --yes", users, quota_file)
    assert done.exit_code == 0
    assert "- user=alice request_percentage 12.5\n" in done.stdout
    assert "left out: client-id-prefix=tmp-: stays" in done.stderr
    assert "left out: cap user-group=analytics: stays" in done.stderr
    limits = load(quota_file).policy.limits
    assert limits == {
        Entity("alice"): {P: 2048},
        Entity("bob"): {C: 4096},
        Entity(None, Prefix("tmp-")): {P: 2**20},
        Entity(Group("analytics"), cap=True): {P: 50 * 2**20},
    }
    again = run("import {} --file {} --replace --yes", users, quota_file)
    assert (again.exit_code, again.stdout) == (0, "nothing to change\n")


def test_a_store_without_quotas_may_be_the_wrong_one(run: Run, quota_file: Path, zookeeper: Path) -> None:
    """A quota file that says `quotas: []` is no mistake."""
    zookeeper.write_text("quotas: []\n")
    refused = run(f"import {FROM} --file {{}} --replace --yes", quota_file)
    assert (refused.exit_code, "error: the source has no quotas, and --replace would" in refused.output) == (1, True)
    assert run(f"import {FROM} --file {{}} --yes", quota_file).stdout == "nothing to change\n"
    assert quota_file.read_text() == QUOTAS
    assert run("import {} --file {} --replace --yes", zookeeper, quota_file).stdout.endswith("5 entities changed\n")


@pytest.mark.parametrize("options", ["--dry-run", "--dry-run --yes", "--strict --replace --yes"])
def test_dry_run_and_strict_import_write_nothing(run: Run, quota_file: Path, users: Path, options: str) -> None:
    done = run(f"import {{}} --file {{}} {options}", users, quota_file)
    assert done.exit_code == (1 if "strict" in options else 0)
    assert "~ user=alice producer_byte_rate 1024 → 2048" in done.stdout
    assert quota_file.read_text() == QUOTAS


def test_import_from_zookeeper_merges_limits_and_reports_left_out(
    run: Run, quota_file: Path, zookeeper: Path, tmp_path: Path
) -> None:
    zookeeper.write_text(QUOTAS)
    target = tmp_path / "target.yaml"
    target.write_text("quotas:\n  - {entity: {user: zoe}, producer_byte_rate: 1}\n")
    done = run(f"import {FROM} --file {{}} --yes", target)
    assert done.exit_code == 0
    there, came = load(target).policy, load(quota_file).policy
    assert there.limits[Entity("zoe")] == {P: 1}
    assert there.limits[Entity("alice", Default.DEFAULT)] == came.limits[Entity("alice", Default.DEFAULT)]
    assert "left out: user=alice, client-id=<default>: burst" in done.stderr
    assert "left out: client-id-prefix=tmp-: is a prefix of client-ids, which Kafka" in done.stderr
    same = run(f"import {FROM} --file {{}} --yes --strict", quota_file)
    assert (same.exit_code, same.stdout) == (0, "nothing to change\n")


def test_import_from_cluster_connects_to_configured_or_given_address(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "sluice.yaml"
    port = free_port()
    config.write_text(CONFIG.replace("19092", str(port)))
    (tmp_path / "quotas.yaml").write_text("quotas: []\n")
    done = run("import --from cluster --config {} --yes", config)
    assert (done.exit_code, f"error: kafka://127.0.0.1:{port}: " in done.stderr) == (1, True)
    done = run("import --from cluster --from-address 127.0.0.1:1 --config {} --yes", config)
    assert (done.exit_code, "error: kafka://127.0.0.1:1: " in done.stderr) == (1, True)


def test_import_from_stdin_needs_yes_or_dry_run(run: Run, quota_file: Path) -> None:
    done = run("import - --file {} --yes", quota_file, said=USERS)
    assert (done.exit_code, "2 entities changed" in done.stdout) == (0, True)
    cannot_ask = run("import - --file {}", quota_file, said=USERS.replace("4096", "8192"))
    assert (cannot_ask.exit_code, "give --yes, or --dry-run" in cannot_ask.output) == (2, True)


def test_entity_that_kafka_cannot_hold_is_left_out_of_import(run: Run, quota_file: Path, zookeeper: Path) -> None:
    zookeeper.write_text(
        "quotas:\n"
        "  - {entity: {user: a}, request_percentage: 5}\n"
        "  - {entity: {client-id: {prefix: b-}}, request_percentage: 5}\n"
    )
    done = run(f"import {FROM} --file {{}} --yes", quota_file)
    assert (done.exit_code, "1 entity changed" in done.stdout) == (0, True)
    assert "left out: client-id-prefix=b-: is a prefix of client-ids" in done.stderr
    assert run(f"import {FROM} --file {{}} --yes --strict", quota_file).exit_code == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("import --file {}", "give a source"),
        ("import x --from cluster --file {}", "give a source"),
        ("import --from cluster --file {}", "--from cluster needs an address: give --from-address HOST:PORT, or"),
        ("import --from zookeeper -c {}", "--from zookeeper needs an address: give --from-address HOST:PORT"),
        ("import x --from-address y:1 --file {}", "--from-address and --from-command-config are for --from cluster"),
        ("import /nowhere --file {}", "no such file"),
        ("import {}", "give one of"),
    ],
)
def test_a_wrong_command_line_exits_2(run: Run, quota_file: Path, line: str, said: str) -> None:
    done = run(line, quota_file, quota_file)
    assert (done.exit_code, said in done.output) == (2, True)


@pytest.mark.parametrize("text", ["quotas: [&a [*a, *a]]\n", "[" * 100_000, "quotas: [\xff"])
def test_recursive_nested_or_broken_yaml_is_refused_by_import(
    run: Run, quota_file: Path, tmp_path: Path, text: str
) -> None:
    bomb = tmp_path / "bomb.yaml"
    bomb.write_bytes(text.encode("latin-1"))
    done = run("import {} --file {} --yes", bomb, quota_file)
    assert (done.exit_code, "error: " in done.output) == (2, True)
    assert quota_file.read_text() == QUOTAS


def as_altered(there: Policy, coming: Policy, *, replace: bool) -> dict[Entity, dict[str, float]]:
    """Return what a store holds when it has made the changes of a plan."""
    limits = {entity: {str(k): float(v) for k, v in of.items()} for entity, of in there.limits.items()}
    for wanted in plan(coming, there, replace=replace).wanted:
        merged = {**limits.get(wanted.entity, {}), **wanted.limits}
        limits[wanted.entity] = {key: limit for key, limit in merged.items() if limit is not None}
    return {entity: of for entity, of in limits.items() if of}


@given(policies(ours=False), policies(ours=False))
def test_a_store_of_kafkas_own_quotas_ends_with_what_was_imported(there: Policy, coming: Policy) -> None:
    wanted = {entity: {str(k): float(v) for k, v in of.items()} for entity, of in coming.limits.items()}
    assert as_altered(there, coming, replace=True) == wanted
    before = {entity: {str(k): float(v) for k, v in of.items()} for entity, of in there.limits.items()}
    merged = {entity: {**before.get(entity, {}), **wanted.get(entity, {})} for entity in {*before, *wanted}}
    assert as_altered(there, coming, replace=False) == merged


@given(policies(ours=True), policies(ours=True))
def test_no_import_makes_a_rule_in_shadow_hold_clients_and_all_else_is_named(there: Policy, coming: Policy) -> None:
    planned = plan(coming, there, replace=True)
    for wanted in planned.wanted:
        terms = coming.terms.get(wanted.entity, Terms())
        if any(limit is not None for limit in wanted.limits.values()):
            assert not terms.shadow or there.terms.get(wanted.entity, Terms()).shadow
    ends = as_altered(there, coming, replace=True)
    for entity in {*there.limits, *coming.limits}:
        wanted_limits = {str(k): float(v) for k, v in coming.limits.get(entity, {}).items()}
        if ends.get(entity, {}) != wanted_limits:
            assert any(line.startswith(f"{entity.describe()}:") for line in planned.left_out)


@given(policies(ours=True))
def test_import_of_the_same_policy_changes_nothing(policy: Policy) -> None:
    planned = plan(policy, policy, replace=True)
    assert (list(planned.wanted), list(planned.left_out)) == ([], [])


def test_imported_rule_keeps_mode_and_burst_of_store() -> None:
    alice = Entity("alice")
    there = Policy({alice: {P: 1.0}}, {alice: Terms(shadow=True, burst_ms=2000)})
    planned = plan(Policy({alice: {P: 2.0}}), there, replace=True)
    assert [wanted.limits for wanted in planned.wanted] == [{"producer_byte_rate": 2.0}]
    assert planned.left_out == ["user=alice: keeps mode, burst of the store"]
