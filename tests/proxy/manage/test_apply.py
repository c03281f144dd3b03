"""``sluice quotas diff`` and ``apply``, on a quota file as the target."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from tests.proxy.manage.run import quotas
from tests.proxy.manage.test_explain import CONFIG

DESIRED = """\
quotas:
  - {entity: {user: alice}, producer_byte_rate: 2MiB}
  - {entity: {user: bob, client-id: app}, producer_byte_rate: 1MiB}
  - {entity: {ip: {default: true}}, connection_creation_rate: 10}
"""
LIVE = """\
quotas:
  # alice's own
  - {entity: {user: alice}, producer_byte_rate: 1048576}   # as agreed
  - {entity: {user: eve}, producer_byte_rate: 1MiB}
"""
TARGET = ("--file", "live.yaml")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quotas.yaml").write_text(DESIRED)
    (tmp_path / "live.yaml").write_text(LIVE)
    return tmp_path


def run(*arguments: str, status: int = 0, stdin: str | None = None) -> tuple[str, str]:
    done = quotas(*arguments, stdin=stdin)
    assert done.exit_code == status, done.output
    return done.stdout, done.stderr


def replace(file: str, old: str, new: str) -> None:
    path = Path(file)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def live() -> str:
    return Path("live.yaml").read_text()


def test_diff_lists_added_changed_and_unmanaged_limits() -> None:
    assert run("diff", "quotas.yaml", *TARGET, status=1) == (
        """\
~ user=alice producer_byte_rate 1048576 → 2097152 (quotas.yaml:2)
+ user=bob, client-id=app producer_byte_rate 1048576 (quotas.yaml:3)
+ ip=<default> connection_creation_rate 10 (quotas.yaml:4)
? user=eve producer_byte_rate 1048576: not managed by this file, unchanged
live.yaml: 2 to add, 1 to change, 1 not managed by this file; \
quotas.applied.yaml does not exist: no record of an earlier apply
""",
        "",
    )
    assert live() == LIVE
    assert not Path("quotas.applied.yaml").exists()


def test_apply_writes_limits_and_later_applies_update_them() -> None:
    said, _ = run("apply", "quotas.yaml", *TARGET, "--yes")
    assert said.endswith("\nlive.yaml: 3 of 3 made\n")
    assert (
        live()
        == """\
quotas:
  # alice's own
  - {entity: {user: alice}, producer_byte_rate: 2097152}   # as agreed
  - {entity: {user: eve}, producer_byte_rate: 1MiB}
  - {entity: {user: bob, client-id: app}, producer_byte_rate: 1048576}
  - {entity: {ip: {default: true}}, connection_creation_rate: 10}
"""
    )
    assert (
        Path("quotas.applied.yaml").read_text()
        == """\
# What sluice quotas apply has made of "live.yaml". It writes this file; do not edit it.
quotas:
  - entity: {user: alice}
    producer_byte_rate: 2097152
  - entity: {user: bob, client-id: app}
    producer_byte_rate: 1048576
  - entity: {ip: {default: true}}
    connection_creation_rate: 10
"""
    )
    after = live(), Path("quotas.applied.yaml").stat().st_mtime_ns
    assert run("diff", "quotas.yaml", *TARGET)[0].endswith("\nlive.yaml: 1 not managed by this file\n")
    assert run("apply", "quotas.yaml", *TARGET)[0].endswith("\nlive.yaml: 0 of 0 made\n")  # nothing to ask for
    assert (live(), Path("quotas.applied.yaml").stat().st_mtime_ns) == after

    # Taken out of the file, it goes; what is not ours stays.
    replace("quotas.yaml", "  - {entity: {user: bob, client-id: app}, producer_byte_rate: 1MiB}\n", "")
    said, _ = run("apply", "quotas.yaml", *TARGET, "--yes")
    assert "- user=bob, client-id=app producer_byte_rate 1048576\n" in said
    assert ("bob" in live(), "eve" in live(), "bob" in Path("quotas.applied.yaml").read_text()) == (False, True, False)

    # Rolled back, by applying an older file.
    Path("quotas.yaml").write_text(DESIRED)
    run("apply", "quotas.yaml", *TARGET, "--yes")
    assert run("diff", "quotas.yaml", *TARGET)[1] == ""
    Path("quotas.yaml").write_text("quotas: []\n")
    run("apply", "quotas.yaml", *TARGET, "--yes")
    assert (
        live()
        == """\
quotas:
  # alice's own
  - {entity: {user: eve}, producer_byte_rate: 1MiB}
"""
    )


def test_limit_changed_by_someone_else_is_a_conflict() -> None:
    run("apply", "quotas.yaml", *TARGET, "--yes")
    replace("live.yaml", "2097152", "512KiB")
    replace("quotas.yaml", "  - {entity: {user: bob, client-id: app}, producer_byte_rate: 1MiB}\n", "")
    before = live()
    conflict = (
        "! user=alice producer_byte_rate 524288 → 2097152 (quotas.yaml:2): applied as 2097152, since changed to "
        "524288 by someone else\n"
    )
    said, _ = run("diff", "quotas.yaml", *TARGET, status=1)
    assert said.startswith(conflict)
    said, error = run("apply", "quotas.yaml", *TARGET, "--yes", status=1)
    assert conflict in said
    assert error == (
        "nothing was applied: conflicts are marked !; copy the live value into the file, or overwrite it with --force\n"
    )
    assert live() == before
    run("apply", "quotas.yaml", *TARGET, "--yes", "--force")
    assert ("2097152" in live(), "bob" in live()) == (True, False)
    assert run("diff", "quotas.yaml", *TARGET)[1] == ""


def test_limit_removed_by_someone_else_is_a_conflict() -> None:
    run("apply", "quotas.yaml", *TARGET, "--yes")
    replace("live.yaml", "  - {entity: {user: bob, client-id: app}, producer_byte_rate: 1048576}\n", "")
    replace("live.yaml", "connection_creation_rate: 10", "connection_creation_rate: 20")
    replace("quotas.yaml", "  - {entity: {ip: {default: true}}, connection_creation_rate: 10}\n", "")
    said, _ = run("diff", "quotas.yaml", *TARGET, status=1)
    assert said.splitlines()[:2] == [
        (
            "! user=bob, client-id=app producer_byte_rate nothing → 1048576 (quotas.yaml:3): applied as 1048576, since "
            "removed by someone else"
        ),
        "! ip=<default> connection_creation_rate 20 → nothing: applied as 10, since changed to 20 by someone else",
    ]
    run("apply", "quotas.yaml", *TARGET, "--yes", "--force")
    assert ("bob" in live(), "ip:" in live()) == (True, False)


def test_conflict_is_resolved_by_copying_live_value_into_file() -> None:
    run("apply", "quotas.yaml", *TARGET, "--yes")
    replace("live.yaml", "2097152", "512KiB")
    replace("quotas.yaml", "2MiB", "512KiB")
    assert run("apply", "quotas.yaml", *TARGET)[0].endswith("live.yaml: 0 of 0 made\n")
    assert "524288" in Path("quotas.applied.yaml").read_text()


def test_apply_without_yes_asks_for_confirmation() -> None:
    said, error = run("apply", "quotas.yaml", *TARGET, status=1, stdin="n\n")
    assert "make 3 changes at live.yaml? [y/N]: n" in said
    assert "nothing was applied; pass --yes if nobody can answer" in error
    assert "nothing was applied" in run("apply", "quotas.yaml", *TARGET, status=1, stdin="")[1]
    assert (live(), Path("quotas.applied.yaml").exists()) == (LIVE, False)
    assert run("apply", "quotas.yaml", *TARGET, stdin="y\n")[0].endswith("live.yaml: 3 of 3 made\n")


def test_a_dry_run_changes_nothing_and_asks_nothing() -> None:
    said, _ = run("apply", "quotas.yaml", *TARGET, "--dry-run")
    assert said.endswith("live.yaml: 3 of 3 would be made; nothing was changed\n")
    assert (live(), Path("quotas.applied.yaml").exists()) == (LIVE, False)


def test_change_of_target_during_confirmation_stops_the_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    def confirm(_: str, *, abort: bool) -> bool:
        replace("live.yaml", "1048576", "77777")
        return abort

    monkeypatch.setattr(click, "confirm", confirm)
    _, error = run("apply", "quotas.yaml", *TARGET, status=2)
    assert error == "error: live.yaml: has been changed: load it and try again\n"
    assert ("77777" in live(), "bob" in live(), Path("quotas.applied.yaml").exists()) == (True, False, False)


EXTRAS = """\
groups: {tenant: [alice]}
quotas:
  - {entity: {user: alice}, producer_byte_rate: 2MiB}
  - {entity: {user: bob}, producer_byte_rate: 1MiB, mode: shadow}
  - {entity: {user-group: tenant}, producer_byte_rate: 1MiB}
  - {entity: {client-id: {prefix: a-}}, producer_byte_rate: 1MiB}
caps:
  - {entity: {user: alice}, producer_byte_rate: 1MiB}
"""


def test_rules_the_target_does_not_support_are_refused_by_name() -> None:
    Path("quotas.yaml").write_text(EXTRAS)
    said, error = run("apply", "quotas.yaml", *TARGET, "--yes", status=1)
    alone = "the target supports only limits of users, client-ids and addresses"
    assert [line for line in said.splitlines() if line.startswith("x")] == [
        f"x user=bob: mode: shadow: {alone} (quotas.yaml:4)",
        f"x user-group=tenant: a group of users: {alone} (quotas.yaml:5)",
        f"x client-id-prefix=a-: a prefix of client-ids: {alone} (quotas.yaml:6)",
        f"x cap user=alice: a cap: {alone} (quotas.yaml:8)",
    ]
    assert error.startswith("nothing was applied: rules marked x cannot be applied; take them out")
    assert live() == LIVE
    run("diff", "quotas.yaml", *TARGET, status=1)
    said, _ = run("apply", "quotas.yaml", *TARGET, "--yes", "--skip-extras")
    assert said.endswith("live.yaml: 1 of 1 made\n")
    assert ("bob" in live(), "bob" in Path("quotas.applied.yaml").read_text()) == (False, False)
    run("diff", "quotas.yaml", *TARGET, status=1)
    run("diff", "quotas.yaml", *TARGET, "--skip-extras")


def test_limit_refused_by_target_leaves_other_changes_applied() -> None:
    """As a limit that has another one proposed beside it in the file."""
    run("apply", "quotas.yaml", *TARGET, "--yes")
    replace("live.yaml", "2097152}", "2097152, consumer_byte_rate: 1MiB, proposed: {producer_byte_rate: 1MiB}}")
    Path("quotas.yaml").write_text("quotas: []\n")
    said, error = run("apply", "quotas.yaml", *TARGET, "--yes", status=1)
    assert said.endswith("live.yaml: 2 of 3 made\n")
    assert error == (
        "refused: user=alice: producer_byte_rate: has another limit proposed beside it in the quota file; remove that "
        "by hand\n"
    )
    # It is ours still, and the next apply tries again.
    assert "alice" in Path("quotas.applied.yaml").read_text()
    assert "bob" not in Path("quotas.applied.yaml").read_text()
    assert "- user=alice producer_byte_rate 2097152\n" in run("diff", "quotas.yaml", *TARGET, status=1)[0]


def test_apply_with_record_of_other_target_is_refused() -> None:
    run("apply", "quotas.yaml", *TARGET, "--yes")
    Path("other.yaml").write_text("quotas: []\n")
    _, error = run("apply", "quotas.yaml", "--file", "other.yaml", "--yes", status=2)
    assert error == (
        'error: quotas.applied.yaml:1: records what was applied to "live.yaml", not to "other.yaml"; '
        "keep a record for each target (--last-applied)\n"
    )
    run("apply", "quotas.yaml", "--file", "other.yaml", "--yes", "--last-applied", "other.applied.yaml")
    assert Path("other.applied.yaml").exists()


def test_a_target_is_known_from_any_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("apply", "quotas.yaml", *TARGET, "--yes")
    monkeypatch.chdir("/")
    run("diff", str(folder / "quotas.yaml"), "--file", str(folder / "live.yaml"))


def test_an_older_file_serves_as_what_was_applied_and_is_left_as_it_is() -> None:
    Path("older.yaml").write_text("quotas:\n  - {entity: {user: eve}, producer_byte_rate: 1MiB}\n")
    before = Path("older.yaml").read_text()
    said, error = run("apply", "quotas.yaml", *TARGET, "--yes", "--last-applied", "older.yaml", "--force")
    assert "- user=eve producer_byte_rate 1048576\n" in said
    assert error == "older.yaml was not written by apply: it is left unchanged\n"
    assert Path("older.yaml").read_text() == before


def test_the_record_is_looked_at_before_anything_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: "last" not in str(path) and access(path, mode))
    Path("last").mkdir()
    _, error = run("apply", "quotas.yaml", *TARGET, "--yes", "--last-applied", "last/it.yaml", status=2)
    assert error.startswith("error: last/it.yaml: cannot be written: let this user write to the folder")
    assert live() == LIVE


def test_a_record_that_cannot_be_written_is_told_and_the_next_apply_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("proxy.runtime.files.tempfile", SimpleNamespace(mkstemp=full))
        _, error = run("apply", "quotas.yaml", *TARGET, "--yes", status=2)
    assert error == "error: quotas.applied.yaml: the record was not written: no space left on device; apply again\n"
    assert "bob" in live()
    assert run("apply", "quotas.yaml", *TARGET)[0].endswith("live.yaml: 0 of 0 made\n")
    assert "bob" in Path("quotas.applied.yaml").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("live.yaml", *TARGET), "live.yaml is the target itself"),
        (("missing.yaml", *TARGET), "missing.yaml: no such file"),
        (("quotas.yaml", "--file", "missing.yaml"), "missing.yaml: no such file"),
        (("quotas.yaml",), "give one of --config, --file"),
        (("quotas.yaml", *TARGET, "--last-applied", "quotas.yaml"), "is the file of desired quotas, not a record"),
        (("broken.yaml", *TARGET), "broken.yaml:1:9: quotas: must be a list of quotas"),
        (("quotas.yaml", *TARGET, "--last-applied", "broken.yaml"), "broken.yaml:1:9: quotas: must be a list"),
    ],
)
@pytest.mark.parametrize("command", ["diff", "apply"])
def test_wrong_diff_and_apply_arguments_exit_with_2(command: str, arguments: tuple[str, ...], said: str) -> None:
    Path("broken.yaml").write_text("quotas: 1\n")
    assert said in run(command, *arguments, status=2)[1]
    assert live() == LIVE


def test_diff_as_json_lists_differences_and_unsupported_rules() -> None:
    Path("quotas.yaml").write_text(EXTRAS)
    told = json.loads(run("diff", "quotas.yaml", *TARGET, "-o", "json", status=1)[0])
    assert told["target"] == "live.yaml"
    assert told["differences"][0] == {
        "change": "change",
        "entity": "user=alice",
        "kind": "producer_byte_rate",
        "live": 1048576.0,
        "desired": 2097152.0,
        "applied": None,
        "where": "quotas.yaml:3",
    }
    assert [each["change"] for each in told["differences"]] == ["change", "foreign"]
    assert told["cannot_be_applied"][0] == {"entity": "user=bob", "what": "mode: shadow"}


def test_doubtful_name_in_desired_file_is_warned_about() -> None:
    replace("quotas.yaml", "user: alice", "user: 'User:alice'")
    _, error = run("diff", "quotas.yaml", *TARGET, status=1)
    assert error.startswith("warning: quotas.yaml:2:21: quotas[0].entity.user: 'User:alice' begins with the type of a")


def test_unmanaged_limits_beyond_20_are_counted() -> None:
    rules = "".join(f"  - {{entity: {{user: u{n}}}, producer_byte_rate: 1MiB}}\n" for n in range(30))
    Path("live.yaml").write_text(f"quotas:\n{rules}")
    Path("quotas.yaml").write_text("quotas: []\n")
    said, _ = run("diff", "quotas.yaml", *TARGET)
    assert said.splitlines()[20] == "? and 10 more not managed by this file"


def test_apply_with_config_writes_to_its_quota_file() -> None:
    Path("sluice.yaml").write_text(CONFIG.replace("quotas.yaml", "live.yaml"))
    assert run("apply", "quotas.yaml", "-c", "sluice.yaml", "--yes")[0].endswith("live.yaml: 3 of 3 made\n")
