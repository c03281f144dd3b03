"""Every way in which an operator's tools change a file."""

from pathlib import Path

import pytest

from proxy.runtime import files as reload
from proxy.runtime.files import FileWatch

pytestmark = pytest.mark.asyncio


class Watched:
    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reload, "POLL_S", 0.0)
        self.reloads = 0
        self.watch = FileWatch([path], self._reload)

    async def _reload(self) -> None:
        self.reloads += 1

    async def reloads_after_check(self) -> int:
        await self.watch.check()
        return self.reloads


async def test_an_untouched_file_is_not_loaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text("quotas: []")
    watched = Watched(path, monkeypatch)
    assert await watched.reloads_after_check() == 0


async def test_file_written_in_place_is_reloaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text("quotas: []")
    watched = Watched(path, monkeypatch)
    path.write_text("quotas: [ ]")
    assert await watched.reloads_after_check() == 1
    assert await watched.reloads_after_check() == 1


async def test_file_replaced_by_rename_of_same_length_is_reloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text("quotas: []")
    watched = Watched(path, monkeypatch)
    written = tmp_path / ".quotas.yaml.new"
    written.write_text("quotas: []")
    written.rename(path)
    assert await watched.reloads_after_check() == 1


async def test_file_behind_swapped_kubernetes_symlink_is_reloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("..2026_1", "..2026_2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "quotas.yaml").write_text("quotas: []")
    (tmp_path / "..data").symlink_to("..2026_1")
    path = tmp_path / "quotas.yaml"
    path.symlink_to("..data/quotas.yaml")
    watched = Watched(path, monkeypatch)
    (tmp_path / "..data_tmp").symlink_to("..2026_2")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    assert await watched.reloads_after_check() == 1


async def test_a_file_that_vanishes_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text("quotas: []")
    watched = Watched(path, monkeypatch)
    path.unlink()
    assert await watched.reloads_after_check() == 1
    path.write_text("quotas: []")
    assert await watched.reloads_after_check() == 2


async def test_a_file_that_is_still_being_written_is_left_to_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text("quotas: []")
    watched = Watched(path, monkeypatch)
    looks = iter([[(1, 2, 3, 4, 5)], [(1, 2, 4, 4, 5)], [(1, 2, 9, 4, 5)], [(1, 2, 9, 4, 5)]])
    monkeypatch.setattr(watched.watch, "_identities", lambda: next(looks))
    assert await watched.reloads_after_check() == 0
    assert await watched.reloads_after_check() == 1


async def test_change_of_one_watched_file_causes_a_reload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / "tls.crt", tmp_path / "tls.key"]
    for path in files:
        path.write_text("old")
    watched = Watched(files[0], monkeypatch)
    watched.watch = FileWatch(files, watched._reload)
    assert await watched.reloads_after_check() == 0
    files[1].write_text("newer")
    assert await watched.reloads_after_check() == 1
