"""The file store: what it keeps of a file when it changes it, and when it had better not."""

import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from config.document import read_text
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.stores import file_store, replacing
from quotas.stores.alteration import Alteration, Change, Outcome
from quotas.stores.base import ChangedMeanwhileError, UnreadableError, UnwritableError
from quotas.stores.edit import edited
from quotas.stores.file import parse
from quotas.stores.file_store import FileStore
from tests.quotas.stores.alter_contract import AlterContract, change
from tests.quotas.stores.contract import Harness, Limits, StoreContract

RATE, PERCENTAGE = QuotaKind.PRODUCER_BYTE_RATE, QuotaKind.REQUEST_PERCENTAGE
ALICE, APP = Entity(user="alice"), Entity(client_id="app")


class FileHarness(Harness):
    """Writes every scalar in quotes, so that what is read is what was meant."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = FileStore(path)

    def put(self, limits: Limits) -> None:
        quotas: list[dict[str, object]] = [
            {"entity": _written(entity), **{kind.value: f"{value:.16g}" for kind, value in values.items()}}
            for entity, values in limits.items()
        ]
        self._write(quotas)

    def put_raw(self, entity: Mapping[str, str], name: str, value: str) -> None:
        self._write([{"entity": dict(entity), name: value}])

    def _write(self, quotas: list[dict[str, object]]) -> None:
        beside = self.path.with_suffix(".new")  # as an editor does; in place, two may have one time and one size
        beside.write_text(yaml.safe_dump({"quotas": quotas}, default_style='"'))
        beside.replace(self.path)

    def take_away(self) -> None:
        self.path.unlink()

    def pause(self) -> None:
        pass  # a look is enough

    def content(self) -> object:
        return {path.name: path.read_bytes() for path in self.path.parent.iterdir()}


def _written(entity: Entity) -> dict[str, object]:
    names = {"user": entity.user, "client-id": entity.client_id, "ip": entity.ip}
    return {
        dimension: {"default": "true"} if name is Default.DEFAULT else name
        for dimension, name in names.items()
        if name is not None
    }


class TestContract(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Harness:
        return FileHarness(tmp_path / "quotas.yaml")


class TestAlterContract(AlterContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Harness:
        return FileHarness(tmp_path / "quotas.yaml")


FILE = """\
# Quotas of the shop.
quotas:
  - entity: {user: alice}  # batch jobs
    producer_byte_rate: 1MiB
  - {entity: {client-id: app}, producer_byte_rate: 1.5MB}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "quotas.yaml"
    path.write_text(FILE)
    return path


def alter(path: Path, *changes: Change) -> list[Outcome]:
    return FileStore(path).alter(Alteration(changes, "test"))


@pytest.mark.parametrize("made", ["quotas: []\n", "quotas: [\n", FILE, None])
def test_an_edit_that_would_say_something_else_is_not_written(
    path: Path, monkeypatch: pytest.MonkeyPatch, made: str | None
) -> None:
    def wrong(*_: object) -> str:
        if made is None:
            raise ValueError
        return made

    monkeypatch.setattr(file_store, "edited", wrong)
    with pytest.raises(UnwritableError, match="change it by hand"):
        alter(path, change(ALICE, {RATE: 5.0}))
    assert path.read_text() == FILE


# ------------------------------------------------------------------------------------------------- how it is written


def test_mode_and_owner_stay_and_nothing_is_left_behind(path: Path) -> None:
    path.chmod(0o640)
    before = path.stat()
    alter(path, change(ALICE, {RATE: 1.0}))
    after = path.stat()
    assert stat.S_IMODE(after.st_mode) == 0o640
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)
    assert after.st_ino != before.st_ino
    assert [each.name for each in path.parent.iterdir()] == ["quotas.yaml"]


def test_quota_file_is_synced_before_it_is_renamed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync, exchange = os.fsync, replacing.exchange

    def synced(descriptor: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def exchanged(one: Path, other: Path) -> bool:
        done.append("rename")
        return exchange(one, other)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(replacing, "exchange", exchanged)
    alter(path, change(ALICE, {RATE: 1.0}))
    assert done == ["file", "rename", "folder"]


def test_a_file_that_is_changed_while_it_is_edited_is_not_written_over(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def meanwhile(*args: object) -> str:
        path.write_text(FILE + "# somebody else was here\n")
        return edited(*args)  # type: ignore[arg-type]  # whatever it takes

    monkeypatch.setattr(file_store, "edited", meanwhile)
    with pytest.raises(ChangedMeanwhileError, match="load it and try again"):
        alter(path, change(ALICE, {RATE: 1.0}))
    assert path.read_text() == FILE + "# somebody else was here\n"
    assert [each.name for each in path.parent.iterdir()] == ["quotas.yaml"]


def test_a_link_is_refused_as_kubernetes_mounts_a_config_map(path: Path, tmp_path: Path) -> None:
    (tmp_path / "..2026_01_01").mkdir()
    path.rename(tmp_path / "..2026_01_01" / "quotas.yaml")
    (tmp_path / "..data").symlink_to("..2026_01_01")
    path.symlink_to("..data/quotas.yaml")
    with pytest.raises(UnwritableError, match=r"is a symbolic link to \.\.data/quotas\.yaml, as Kubernetes mounts"):
        alter(path, change(ALICE, {RATE: 1.0}))
    assert path.read_text() == FILE


def test_unwritable_quota_file_is_refused_with_a_reason(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "mkstemp", denied)
        with pytest.raises(
            UnwritableError, match=r"cannot be written: permission denied: let the user with id \d+ write"
        ):
            alter(path, change(ALICE, {RATE: 1.0}))
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)
        with pytest.raises(UnwritableError, match="is read-only"):
            alter(path, change(ALICE, {RATE: 1.0}))
    with monkeypatch.context() as patch:
        patch.setattr(replacing, "exchange", denied)
        with pytest.raises(UnwritableError):
            alter(path, change(ALICE, {RATE: 1.0}))
    assert path.read_text() == FILE
    assert [each.name for each in path.parent.iterdir()] == ["quotas.yaml"]


@pytest.mark.parametrize("limit", [float("inf"), 1e20, 1e-10, 0.1234567891])
def test_a_number_that_the_file_cannot_hold_is_refused_by_itself(path: Path, limit: float) -> None:
    refused, made = alter(path, change(ALICE, {PERCENTAGE: limit}), change(APP, {RATE: 5.0}))
    assert refused.refused is not None
    assert (refused.refused.field, made.refused) == ("request_percentage", None)
    assert parse("f", path.read_text()).policy.limits[APP] == {RATE: 5.0}


def test_a_file_that_is_gone_is_not_made_anew(path: Path) -> None:
    path.unlink()
    with pytest.raises(UnreadableError, match="no such file"):
        alter(path, change(ALICE, {RATE: 1.0}))


def test_a_change_during_a_load_is_seen(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore(path)

    def meanwhile(of: Path) -> str:
        text = read_text(of)
        path.write_text("quotas: []\n")
        return text

    with monkeypatch.context() as patch:
        patch.setattr(file_store, "read_text", meanwhile)
        store.load(0)
    assert [store.changed() for _ in range(3)] == [False, True, True]


def test_a_file_that_is_still_being_written_is_left_to_the_next_look(path: Path) -> None:
    store = FileStore(path)
    store.load(0)
    for size in (10, 50, 100):
        path.write_text(FILE[:size])
        assert not store.changed()
    path.write_text(FILE + "# done\n")
    assert [store.changed() for _ in range(2)] == [False, True]


@pytest.mark.parametrize("renames", [1, 2, 3, 7])
def test_an_editor_that_renames_while_an_alteration_is_put_in_place_loses_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    """It renames right before each exchange of names; the last file that it has renamed is there in the end."""
    store = FileStore(path)
    store.load(0)
    exchange = replacing.exchange
    written: list[str] = []

    def edit_and_exchange(one: Path, other: Path) -> bool:
        if len(written) < renames:
            written.append(f"{FILE}# edit {len(written)}\n")
            (path.parent / "edited").write_text(written[-1])
            (path.parent / "edited").replace(path)
        return exchange(one, other)

    alteration = Alteration([change(ALICE, {RATE: 5.0})], "test")
    monkeypatch.setattr(replacing, "exchange", edit_and_exchange)
    with pytest.raises(ChangedMeanwhileError):
        store.alter(alteration)
    assert path.read_text() == written[-1]
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    monkeypatch.setattr(replacing, "exchange", exchange)
    store.alter(alteration)
    assert path.read_text().endswith(f"# edit {renames - 1}\n")
    assert store.load(0).policy.limits[ALICE][RATE] == 5.0


def test_quota_file_is_replaced_when_rename_exchange_is_unsupported(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replacing, "exchange", lambda *_: False)
    store = FileStore(path)
    store.alter(Alteration([change(ALICE, {RATE: 5.0})], "test"))
    assert store.load(0).policy.limits[ALICE][RATE] == 5.0
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_file_that_others_are_renamed_to_without_end_is_read_all_the_same(path: Path) -> None:
    store = FileStore(path)
    store.load(0)
    seen = []
    for number in range(40):
        edited = path.with_name(f"edited{number % 3}")
        edited.write_text(f"{FILE}# edit {number}\n")
        edited.replace(path)
        seen.append(store.changed())
    assert 3 <= sum(seen) <= 6
