"""Lines of files, however long; which files there are is Spark's, in tests/analysis/ingest/test_job.py."""

import io

import pytest

from analysis.sources.files import lines
from analysis.sources.place import KEPT_BYTES
from analysis.table.schema import MOST_DOCUMENT_BYTES


class Endless(io.RawIOBase):
    """So many bytes without an end of line, and then what is given; no more than a piece of it is ever there."""

    def __init__(self, size: int, behind: bytes) -> None:
        self._left = size
        self._behind = io.BytesIO(behind)

    def readable(self) -> bool:
        return True

    def readinto(self, into: memoryview) -> int:  # type: ignore[override]  # typeshed's WriteableBuffer
        part = b"x" * min(len(into), self._left) or self._behind.read(len(into))
        self._left -= min(len(into), self._left)
        into[: len(part)] = part
        return len(part)


@pytest.mark.parametrize("last", [b"", b"\n"])
def test_lines_come_without_their_ends(last: bytes) -> None:
    assert list(lines(io.BytesIO(b"one\n\ntwo\r\n\xff" + last))) == [(b"one", 3), (b"", 0), (b"two\r", 4), (b"\xff", 1)]


@pytest.mark.parametrize(("size", "kept"), [(0, MOST_DOCUMENT_BYTES), (1, KEPT_BYTES), (2**21, KEPT_BYTES)])
@pytest.mark.parametrize("behind", [b"", b"\n", b"\nnext", b"\n\n"])
def test_of_a_line_that_is_too_long_the_begin_is_kept(size: int, kept: int, behind: bytes) -> None:
    size += MOST_DOCUMENT_BYTES
    (value, found), *others = lines(io.BytesIO(b"x" * size + behind))
    assert (len(value), found) == (kept, size)
    assert [value for value, _ in others] == behind.split(b"\n")[1:][: len(others)]
    assert len(others) == {b"": 0, b"\n": 0}.get(behind, 1)


def test_a_line_of_three_gigabytes_is_never_held() -> None:
    size = 3_000_000_000
    (value, found), following = lines(io.BufferedReader(Endless(size, b"\nnext\n"), 2**20))
    assert (len(value), found, following) == (KEPT_BYTES, size, (b"next", 4))
