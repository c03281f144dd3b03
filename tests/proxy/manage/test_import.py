"""``sluice quotas export`` and ``import``: between files of all formats and a quota file."""

from pathlib import Path

import pytest
from hypothesis import given

from proxy.manage.importing import plan
from quotas.entities import Default, Entity, Group, Prefix
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms
from quotas.stores.file import load
from tests.proxy.manage.conftest import QUOTAS, Run
from tests.proxy.manage.test_formats import policies

P, C = QuotaKind.PRODUCER_BYTE_RATE, QuotaKind.CONSUMER_BYTE_RATE

USERS = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaUser
metadata: {name: alice}
spec: {quotas: {producerByteRate: 2048}}
---
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaUser
metadata: {name: bob}
spec: {quotas: {consumerByteRate: 4096}}
"""


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


def test_what_a_format_cannot_say_is_named_and_strict_prints_nothing(run: Run, quota_file: Path) -> None:
    exported = run("export --file {} --format kafka-configs", quota_file)
    assert exported.exit_code == 0
    assert len([line for line in exported.stdout.splitlines() if line.startswith("kafka-configs.sh")]) == 5
    assert "left out: client-id-prefix=tmp-: each client-id" in exported.stderr
    assert "left out: user=alice, client-id=<default>: burst: its limits alone are taken" in exported.stderr
    strict = run("export --file {} --format kafka-configs --strict", quota_file)
    assert (strict.exit_code, strict.stdout) == (1, "")
    assert "error: kafka-configs cannot say all of it (3 left out)" in strict.stderr


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


def test_a_source_without_quotas_may_be_the_wrong_one(run: Run, quota_file: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    for text in ("kafka-configs.sh --describe --user a\n", "apiVersion: kafka.strimzi.io/v1\nkind: Kafka\n"):
        empty.write_text(text)
        refused = run("import {} --file {} --replace --yes", empty, quota_file)
        assert (refused.exit_code, "error: the source has no quotas, and --replace would" in refused.output) == (
            1,
            True,
        )
        assert run("import {} --file {} --yes", empty, quota_file).stdout == "nothing to change\n"
    assert quota_file.read_text() == QUOTAS
    empty.write_text("quotas: []\n")
    assert run("import --from-file {} --file {} --replace --yes", empty, quota_file).exit_code == 1
    assert run("import {} --file {} --replace --yes", empty, quota_file).stdout.endswith("5 entities changed\n")


@pytest.mark.parametrize("options", ["--dry-run", "--dry-run --yes", "--strict --replace --yes"])
def test_nothing_is_written(run: Run, quota_file: Path, users: Path, options: str) -> None:
    done = run(f"import {{}} --file {{}} {options}", users, quota_file)
    assert done.exit_code == (1 if "strict" in options else 0)
    assert "~ user=alice producer_byte_rate 1024 → 2048" in done.stdout
    assert quota_file.read_text() == QUOTAS


def test_from_another_store(run: Run, quota_file: Path, tmp_path: Path) -> None:
    target = tmp_path / "target.yaml"
    target.write_text("quotas:\n  - {entity: {user: zoe}, producer_byte_rate: 1}\n")
    done = run("import --from-file {} --file {} --yes", quota_file, target)
    assert done.exit_code == 0
    there, came = load(target).policy, load(quota_file).policy
    assert there.limits[Entity("zoe")] == {P: 1}
    assert there.limits[Entity("alice", Default.DEFAULT)] == came.limits[Entity("alice", Default.DEFAULT)]
    assert "left out: user=alice, client-id=<default>: burst" in done.stderr
    same = run("import --from-file {} --file {} --yes --strict", quota_file, quota_file)
    assert (same.exit_code, same.stdout) == (0, "nothing to change\n")


def test_from_stdin(run: Run, quota_file: Path) -> None:
    done = run("import - --file {} --yes", quota_file, said=USERS)
    assert (done.exit_code, "2 entities changed" in done.stdout) == (0, True)
    cannot_ask = run("import - --file {}", quota_file, said=USERS.replace("4096", "8192"))
    assert (cannot_ask.exit_code, "give --yes, or --dry-run" in cannot_ask.output) == (2, True)


def test_one_that_is_refused_keeps_no_other_from_being_taken(run: Run, quota_file: Path, tmp_path: Path) -> None:
    script = tmp_path / "set.sh"
    script.write_text(
        "kafka-configs.sh --alter --user a --add-config request_percentage=0.00000000001\n"
        "kafka-configs.sh --alter --user b --add-config request_percentage=5\n"
        "curl -s http://localhost\n"
    )
    done = run("import {} --file {} --yes", script, quota_file)
    assert done.exit_code == 1
    assert f"warning: {script}:3:1: 'curl' is no kafka-configs command: skipped" in done.stderr
    assert "error: user=a: request_percentage: 9.9999999999999994e-12 has more digits" in done.stderr
    assert "1 entity changed" in done.stdout


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("import --file {}", "import what?"),
        ("import x --from-file y --file {}", "import what?"),
        ("import --from-file {} --format rpk --file {}", "--format is of a FILE"),
        ("import /nowhere --file {}", "no such file"),
        ("import --from-file a --from-zookeeper b --file {}", "give one of"),
    ],
)
def test_a_wrong_command_line_exits_2(run: Run, quota_file: Path, line: str, said: str) -> None:
    done = run(line, quota_file, quota_file)
    assert (done.exit_code, said in done.output) == (2, True)


@pytest.mark.parametrize("text", ["quotas: [&a [*a, *a]]\n", "[" * 100_000, "quotas: [\xff"])
def test_what_could_take_all_memory_is_refused(run: Run, quota_file: Path, tmp_path: Path, text: str) -> None:
    bomb = tmp_path / "bomb.yaml"
    bomb.write_bytes(text.encode("latin-1"))
    for name in ("rpk", "strimzi", "terraform", "sluice", "kafka-configs"):
        done = run(f"import {{}} --file {{}} --yes --format {name}", bomb, quota_file)
        if name != "kafka-configs" or "\xff" in text:
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
def test_what_is_there_already_is_nobodys_business(policy: Policy) -> None:
    planned = plan(policy, policy, replace=True)
    assert (list(planned.wanted), list(planned.left_out)) == ([], [])


def test_what_a_rule_has_in_the_store_beside_limits_stays_and_is_told() -> None:
    alice = Entity("alice")
    there = Policy({alice: {P: 1.0}}, {alice: Terms(shadow=True, burst_ms=2000)})
    planned = plan(Policy({alice: {P: 2.0}}), there, replace=True)
    assert [wanted.limits for wanted in planned.wanted] == [{"producer_byte_rate": 2.0}]
    assert planned.left_out == ["user=alice: keeps mode, burst that it has in the store"]
