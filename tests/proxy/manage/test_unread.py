"""What a store holds and nobody can read, as a node of ZooKeeper that is no quota: never taken for no quota."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from config.problems import Problem
from proxy.manage import target
from quotas.entities import Entity
from quotas.stores.base import Loaded, UnreadableEntry
from quotas.stores.file_store import FileStore
from tests.proxy.manage.conftest import Run

ALICE, CANNOT = Entity(user="alice"), "zk: users/alice: is not JSON; it is skipped"
BOB = "quotas:\n  - {entity: {user: bob}, producer_byte_rate: 1MiB}\n"
BOTH = BOB + "  - {entity: {user: alice}, producer_byte_rate: 1MiB}\n"


class _Broken(FileStore):
    """Holds what its file says, and something of alice that cannot be read."""

    def _load(self) -> Loaded:
        problem = Problem("zk", 0, 0, "users/alice", "is not JSON; it is skipped")
        return replace(super()._load(), warnings=[problem], unread=[UnreadableEntry(problem, ALICE)])


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of such a store; every other file is one."""
    path = tmp_path / "broken.yaml"
    path.write_text(BOB)
    monkeypatch.setattr(target, "open_zookeeper", lambda *_: _Broken(path))
    monkeypatch.setattr(target, "open_store", lambda s: (_Broken if s.path == path else FileStore)(s.path))
    return path


@pytest.mark.parametrize("command", ["export", "describe"])
def test_strict_fails_where_something_could_not_be_read(run: Run, broken: Path, command: str) -> None:
    done = run(f"{command} --file {{}}", broken)
    assert done.exit_code == 0
    assert f"warning: {CANNOT}" in done.stderr
    done = run(f"{command} --file {{}} --strict", broken)
    assert done.exit_code == 1
    assert "error: not all quotas could be read (1 skipped)" in done.stderr
    assert (done.stdout == "") == (command == "export")


@pytest.mark.parametrize(("asked", "status"), [("user=alice", 1), ("user", 1), ("user=bob", 0), ("client-id", 0)])
def test_strict_describe_fails_only_for_selected_unreadable_entity(
    run: Run, broken: Path, asked: str, status: int
) -> None:
    assert run(f"describe --file {{}} --strict {asked}", broken).exit_code == status


@pytest.mark.parametrize("other", ["quotas: []\n", BOB.replace("bob", "carol")])
def test_a_replacement_leaves_those_whose_source_is_not_known(
    run: Run, broken: Path, tmp_path: Path, other: str
) -> None:
    here = tmp_path / "here.yaml"
    here.write_text(BOTH + other.removeprefix("quotas:").removeprefix(" []\n").removeprefix("\n"))
    done = run("import --from zookeeper --from-address zk:2181 --file {} --replace --yes", here)
    assert done.exit_code == 0
    assert "left out: user=alice: stays: its quotas in the source could not be read" in done.stderr
    assert here.read_text() == BOTH
    assert run("import --from zookeeper --from-address zk:2181 --file {} --strict --yes", here).exit_code == 1


def test_replacing_import_keeps_unreadable_entity_and_reports_it(run: Run, broken: Path, tmp_path: Path) -> None:
    source = tmp_path / "source.yaml"
    source.write_text(BOB)
    done = run("import {} --file {} --replace --yes", source, broken)
    assert f"left out: {CANNOT}: it stays" in done.stderr
    assert run("import {} --file {} --replace --strict --yes", source, broken).exit_code == 1


@pytest.mark.parametrize("command", ["diff", "apply --yes"])
def test_diff_and_apply_of_unreadable_entity_are_refused(run: Run, broken: Path, tmp_path: Path, command: str) -> None:
    desired = tmp_path / "desired.yaml"
    desired.write_text(BOTH)
    done = run(f"{command} {{}} --file {{}}", desired, broken)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"error: {CANNOT}: fix or delete it, then try again\n"
    assert broken.read_text() == BOB
    assert not (tmp_path / "desired.applied.yaml").exists()


def test_diff_fails_for_unreadable_entity_applied_before(run: Run, broken: Path, tmp_path: Path) -> None:
    desired, record = tmp_path / "desired.yaml", tmp_path / "record.yaml"
    desired.write_text(BOB)
    record.write_text(BOTH)
    assert run("diff {} --file {} --last-applied {}", desired, broken, record).exit_code == 2
    record.write_text(BOB)
    assert run("diff {} --file {} --last-applied {}", desired, broken, record).exit_code == 0, (
        "not managed by this file"
    )


@pytest.mark.parametrize("command", ["delete", "alter --delete-config producer_byte_rate"])
def test_delete_of_unreadable_quota_reports_that_it_is_unreadable(run: Run, broken: Path, command: str) -> None:
    done = run(f"{command} --file {{}} user=alice", broken)
    assert done.exit_code == 1
    assert CANNOT in done.stderr


def test_explain_says_what_it_does_not_know(run: Run, broken: Path) -> None:
    done = run("explain --file {} --user alice -o json", broken)
    assert f"warning: {CANNOT}" in done.stderr
    assert json.loads(done.stdout)
