"""The buffer drops the oldest and counts them; the shipper loses nothing while a sink is away and comes back."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from config.usage import UsageFiles
from proxy.usage import files as usage_files
from proxy.usage import shipping as usage_shipping
from proxy.usage.documents import Document
from proxy.usage.files import FileSink
from proxy.usage.records import Columns
from proxy.usage.shipping import Buffer, RefusedError, Shipper, Shipping, SinkError
from tests.harness.polling import until

MANY = 10**6


def document(seq: int, rows: int = 1, size: int = 100) -> Document:
    return Document(seq, rows, f"{seq:0{size}}".encode())


class FakeSink:
    """Refuses while ``down``, then keeps."""

    def __init__(self) -> None:
        self.kept: list[int] = []
        self.down = False
        self.error: Exception = SinkError("away")
        self.refused: set[int] = set()
        self.attempts = 0
        self.closed = False

    async def write(self, document: Document) -> None:
        self.attempts += 1
        await asyncio.sleep(0)
        if self.down:
            raise self.error
        if document.seq in self.refused:
            raise RefusedError("too large")
        self.kept.append(document.seq)

    async def close(self) -> None:
        self.closed = True


class FakeRecorder:
    """One document each time."""

    def __init__(self) -> None:
        self.seq = 0
        self.intervals_ms: list[int] = []

    def take(self) -> Iterator[Columns | None]:
        yield None
        yield {"listener": ["PLAIN"] * 3}

    def document(self, columns: Columns, begin_ms: int, interval_ms: int, worker: int | None = None) -> Document:
        self.intervals_ms.append(interval_ms)
        self.seq += 1
        return document(self.seq - 1, rows=len(columns["listener"]))


@pytest.fixture(autouse=True)
def _soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_shipping, "_FIRST_RETRY_S", 0.001)
    monkeypatch.setattr(usage_shipping, "_LAST_RETRY_S", 0.002)


def shipper(recorder: FakeRecorder, sink: FakeSink, shipping: Shipping, buffer_bytes: int = MANY) -> Shipper:
    async def take() -> AsyncIterator[tuple[Columns, int | None]]:
        for taken in recorder.take():
            if taken is not None:
                yield taken, None
            await asyncio.sleep(0)

    documents: Any = recorder
    return Shipper(take, documents, sink, shipping, interval_s=0.005, buffer_bytes=buffer_bytes)


def test_a_full_buffer_drops_the_oldest_and_counts_documents_and_rows() -> None:
    shipping = Shipping()
    buffer = Buffer(350, shipping)
    for seq in range(5):
        buffer.add(document(seq, rows=seq + 1))
    assert (shipping.dropped_documents, shipping.dropped_rows, shipping.buffered_bytes) == (2, 1 + 2, 300)

    async def rest() -> list[int]:
        return [(await buffer.get()).seq for _ in range(3)]

    assert asyncio.run(rest()) == [2, 3, 4]


def test_a_document_larger_than_the_buffer_is_still_tried() -> None:
    shipping = Shipping()
    buffer = Buffer(10, shipping)
    buffer.add(document(0))
    assert (asyncio.run(buffer.get()).seq, shipping.dropped_documents) == (0, 0)


def test_documents_arrive_in_order_and_stop_ships_the_rest() -> None:
    async def run() -> None:
        recorder, sink, shipping = FakeRecorder(), FakeSink(), Shipping()
        running = shipper(recorder, sink, shipping)
        running.start()
        await until(lambda: len(sink.kept) >= 3)
        await running.stop(timeout_s=5)
        assert sink.kept == list(range(recorder.seq))
        assert (shipping.shipped_documents, shipping.shipped_rows) == (recorder.seq, 3 * recorder.seq)
        assert (sink.closed, shipping.buffered_bytes) == (True, 0)

    asyncio.run(run())


def test_a_sink_that_is_away_loses_nothing_while_the_buffer_lasts() -> None:
    async def run() -> None:
        recorder, sink, shipping = FakeRecorder(), FakeSink(), Shipping()
        sink.down = True
        running = shipper(recorder, sink, shipping)
        running.start()
        await until(lambda: recorder.seq > 4)
        assert (shipping.error, sink.kept) == ("away", [])
        sink.down = False
        await until(lambda: len(sink.kept) > 4)
        assert shipping.error is None
        await running.stop(timeout_s=5)
        assert sink.kept == list(range(recorder.seq))

    asyncio.run(run())


def test_documents_beyond_buffer_are_dropped_and_counted_with_rows() -> None:
    async def run() -> None:
        recorder, sink, shipping = FakeRecorder(), FakeSink(), Shipping()
        sink.down = True
        running = shipper(recorder, sink, shipping, buffer_bytes=250)
        running.start()
        await until(lambda: shipping.dropped_documents >= 3)
        sink.down = False
        await running.stop(timeout_s=5)
        assert shipping.dropped_documents == recorder.seq - len(sink.kept)
        assert shipping.dropped_rows == 3 * shipping.dropped_documents
        assert sink.kept == sorted(sink.kept)

    asyncio.run(run())


def test_a_stop_does_not_wait_for_a_sink_for_ever_and_counts_what_is_lost() -> None:
    async def run() -> None:
        recorder, sink, shipping = FakeRecorder(), FakeSink(), Shipping()
        sink.down = True
        running = shipper(recorder, sink, shipping)
        running.start()
        await until(lambda: sink.attempts > 2)
        await running.stop(timeout_s=0.01)
        assert sink.closed
        assert (shipping.dropped_documents, shipping.dropped_rows) == (recorder.seq, 3 * recorder.seq)

    asyncio.run(run())


def test_a_stop_in_the_middle_of_an_interval_loses_nothing_of_it() -> None:
    class Slow(FakeRecorder):
        def take(self) -> Iterator[Columns | None]:
            for _ in range(200):
                self.half_way = True
                yield None
            yield from super().take()

        half_way = False

    async def run() -> None:
        recorder, sink, shipping = Slow(), FakeSink(), Shipping()
        running = shipper(recorder, sink, shipping)
        running.start()
        await until(lambda: recorder.half_way)
        await running.stop(timeout_s=5)
        assert len(recorder.intervals_ms) == recorder.seq == len(sink.kept) > 0

    asyncio.run(run())


def test_a_document_that_is_refused_is_counted_and_the_next_ones_go_on() -> None:
    async def run() -> None:
        recorder, sink, shipping = FakeRecorder(), FakeSink(), Shipping()
        sink.refused = {0, 2}
        running = shipper(recorder, sink, shipping)
        running.start()
        await until(lambda: recorder.seq > 4)
        await running.stop(timeout_s=5)
        assert sink.kept == [seq for seq in range(recorder.seq) if seq not in {0, 2}]
        assert (shipping.dropped_documents, shipping.dropped_rows) == (2, 6)

    asyncio.run(run())


def test_an_error_that_nobody_thought_of_is_an_error_of_the_sink() -> None:
    async def run() -> None:
        recorder, sink, shipping = FakeRecorder(), FakeSink(), Shipping()
        sink.down, sink.error = True, LookupError("of the library")
        running = shipper(recorder, sink, shipping)
        running.start()
        await until(lambda: sink.attempts > 1)
        assert shipping.error is not None
        assert "of the library" in shipping.error
        sink.down = False
        await running.stop(timeout_s=5)
        assert sink.kept == list(range(recorder.seq))

    asyncio.run(run())


def test_no_interval_is_empty() -> None:
    async def run() -> None:
        recorder = FakeRecorder()
        running = shipper(recorder, FakeSink(), Shipping())
        running.start()
        await running.stop(timeout_s=5)
        assert min(recorder.intervals_ms) > 0

    asyncio.run(run())


# ----------------------------------------------------------------------------------------------------------- files


def files(directory: Path, boot: str = "boot", **options: float) -> FileSink:
    chosen = {"rotate_bytes": 250, "rotate_s": 1000.0, "keep_bytes": MANY, **options}
    return FileSink(UsageFiles(directory=directory).model_copy(update=chosen), "edge/1", boot)


def write(sink: FileSink, documents: int) -> None:
    async def run() -> None:
        for seq in range(documents):
            await sink.write(document(seq))
        await sink.close()

    asyncio.run(run())


def test_files_are_complete_when_they_have_their_name(tmp_path: Path) -> None:
    write(files(tmp_path / "usage"), 7)
    found = sorted((tmp_path / "usage").iterdir())
    assert [path.name for path in found] == [f"edge_1-boot-{number:06}.jsonl" for number in range(3)]
    lines = [line for path in found for line in path.read_text(encoding="ascii").splitlines()]
    assert [int(line) for line in lines] == list(range(7))


@pytest.mark.parametrize("umask", [0, 0o022, 0o777])
def test_files_are_their_owners_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write(files(tmp_path / "usage"), 7)
    finally:
        os.umask(before)
    made = [tmp_path / "usage", *(tmp_path / "usage").iterdir()]
    assert [oct(path.stat().st_mode & 0o7777) for path in made] == ["0o700", *["0o600"] * (len(made) - 1)]
    assert len(made) > 1


def test_a_file_is_its_owners_alone_before_a_byte_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(usage_files, "flock", lambda file, _: seen.append(os.fstat(file.fileno()).st_mode & 0o7777))
    write(files(tmp_path), 1)
    assert seen[0] == 0o600


def test_a_directory_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "usage").mkdir()
    (tmp_path / "usage").chmod(0o750)
    write(files(tmp_path / "usage"), 1)
    assert (tmp_path / "usage").stat().st_mode & 0o7777 == 0o750


def test_the_oldest_files_go_when_there_are_too_many(tmp_path: Path) -> None:
    write(files(tmp_path, keep_bytes=700), 12)
    assert sorted(path.name[-8:-6] for path in tmp_path.iterdir()) == ["02", "03"]


def test_unfinished_file_of_killed_process_is_completed(tmp_path: Path) -> None:
    (tmp_path / "edge_1-old-000004.part").write_text("x")
    (tmp_path / "another-old-000004.part").write_text("x")
    write(files(tmp_path), 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "another-old-000004.part",
        "edge_1-boot-000000.jsonl",
        "edge_1-old-000004.jsonl",
    ]


def test_half_a_line_of_a_killed_process_is_left_out(tmp_path: Path) -> None:
    long = b"y" * 100_000
    (tmp_path / "edge_1-old-000004.part").write_bytes(b"x\n" + long)
    (tmp_path / "edge_1-old-000005.part").write_bytes(long)
    write(files(tmp_path), 1)
    assert (tmp_path / "edge_1-old-000004.jsonl").read_bytes() == b"x\n"
    assert (tmp_path / "edge_1-old-000005.jsonl").read_bytes() == b""


def test_unfinished_file_of_running_process_is_left_alone(tmp_path: Path) -> None:
    def unfinished() -> list[str]:
        return [path.name for path in tmp_path.glob("*.part")]

    async def run() -> None:
        stopping = files(tmp_path, rotate_bytes=MANY)
        await stopping.write(document(0))
        starting = files(tmp_path, "next", rotate_bytes=1)
        await starting.write(document(1))
        assert unfinished() == ["edge_1-boot-000000.part"]
        await stopping.close()
        assert unfinished() == []

    asyncio.run(run())


def test_a_directory_that_goes_away_does_not_fail_a_stop(tmp_path: Path) -> None:
    async def run() -> None:
        sink = files(tmp_path / "usage", rotate_bytes=MANY)
        await sink.write(document(0))
        (tmp_path / "usage" / "edge_1-boot-000000.part").unlink()
        (tmp_path / "usage").rmdir()
        await sink.close()

    asyncio.run(run())


def test_a_file_is_complete_after_its_time_also_when_nothing_more_comes(tmp_path: Path) -> None:
    def count() -> int:
        return len(list(tmp_path.glob("*.jsonl")))

    async def run() -> None:
        sink = files(tmp_path, rotate_s=0.01, rotate_bytes=MANY)
        for complete in range(2):
            await sink.write(document(complete))
            await until(count, equals=complete + 1)
        await sink.close()

    asyncio.run(run())
    assert count() == 2


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match="file/usage"):
        asyncio.run(files(tmp_path / "file" / "usage").write(document(0)))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_an_error_that_says_so(tmp_path: Path) -> None:
    sink = files(tmp_path)
    (tmp_path / "edge_1-boot-000000.part").symlink_to("/dev/full")
    sink._prepared = True

    async def run() -> None:
        with pytest.raises(SinkError, match="No space left"):
            await sink.write(document(0))
        await sink.close()

    asyncio.run(run())
