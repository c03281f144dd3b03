"""Few files are ingested with Java's first compiler alone."""

from pathlib import Path

import pytest

from analysis.commands import ingest


@pytest.mark.parametrize(("sizes", "are_few"), [((), True), ((100, 60), True), ((100, 61), False), ((161, 1), False)])
def test_files_are_few_by_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], are_few: bool
) -> None:
    monkeypatch.setattr(ingest, "_FEW_BYTES", 160)
    for number, size in enumerate(sizes):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "usage.jsonl").write_bytes(b"x" * size)
        (folder / "usage.part").write_bytes(b"x" * 1000)
    assert ingest._are_few(str(tmp_path)) is are_few


@pytest.mark.parametrize("files", [None, "s3a://bucket/usage", "no-such-directory"])
def test_source_outside_the_local_disk_counts_as_large(files: str | None) -> None:
    assert not ingest._are_few(files)
