from itertools import pairwise
from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Cause, ProtocolError
from protocol.frames import REQUEST_HEAD, RESPONSE_HEAD, FrameSplitter, Head

LIMIT = 1000


def frame(size: int, mark: int = 0) -> bytes:
    return size.to_bytes(4, "big") + mark.to_bytes(4, "big") + bytes(size - 4)


class Relay:
    """Forwards as a session does: what split returns, and opaque bytes without asking it."""

    def __init__(self, splitter: FrameSplitter) -> None:
        self.splitter = splitter
        self.forwarded = b""
        self.frames: list[tuple[int, Head]] = []

    def feed(self, data: bytes) -> None:
        if len(data) <= self.splitter.remaining:
            self.splitter.remaining -= len(data)
            self.forwarded += data
            return
        chunk, start, heads = self.splitter.split(data)
        for head in heads:
            self.frames.append((len(self.forwarded) + start, head))
            start += 4 + head[0]
        self.forwarded += chunk


SIZES = st.lists(st.integers(4, 40), min_size=1, max_size=6)


@given(SIZES, st.sets(st.integers(1, 200)))
def test_any_split_gives_the_same_frames(sizes: list[int], cuts: set[int]) -> None:
    data = b"".join(frame(size, mark) for mark, size in enumerate(sizes))
    relay = Relay(FrameSplitter(RESPONSE_HEAD, LIMIT))
    for start, stop in pairwise(sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})):
        relay.feed(data[start:stop])
    assert relay.forwarded == data
    assert [head for _, head in relay.frames] == [(size, mark) for mark, size in enumerate(sizes)]
    assert [position for position, _ in relay.frames] == [
        sum(4 + size for size in sizes[:i]) for i in range(len(sizes))
    ]
    assert (relay.splitter.remaining, relay.splitter.held_bytes) == (0, 0)


@pytest.mark.parametrize("cut", range(1, 14))
def test_incomplete_head_is_held(cut: int) -> None:
    splitter = FrameSplitter(REQUEST_HEAD, LIMIT)
    data = frame(20)
    assert not splitter.split(data[:cut])[2]
    assert splitter.held_bytes == cut
    chunk, start, heads = splitter.split(data[cut:])
    assert (chunk, start, len(heads), splitter.held_bytes) == (data, 0, 1, 0)


def test_body_is_counted_and_not_gathered() -> None:
    splitter = FrameSplitter(RESPONSE_HEAD, 2**31 - 1)
    splitter.split((2**31 - 1).to_bytes(4, "big") + bytes(4))
    assert (splitter.remaining, splitter.held_bytes) == (2**31 - 1 - 4, 0)


@pytest.mark.parametrize("head", [REQUEST_HEAD, RESPONSE_HEAD])
@pytest.mark.parametrize("cut", range(4))
def test_size_over_the_limit_is_refused_by_its_four_bytes(head: Struct, cut: int) -> None:
    splitter = FrameSplitter(head, LIMIT)
    size = (LIMIT + 1).to_bytes(4, "big")
    splitter.split(size[:cut])
    with pytest.raises(ProtocolError) as refused:
        splitter.split(size[cut:])
    assert refused.value.cause is Cause.FRAME_TOO_LARGE


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 9])
def test_size_below_the_head_is_refused(size: int) -> None:
    splitter = FrameSplitter(REQUEST_HEAD, LIMIT)
    with pytest.raises(ProtocolError) as refused:
        splitter.split(size.to_bytes(4, "big", signed=True) + bytes(20))
    assert refused.value.cause is Cause.FRAME_TOO_SHORT


def test_frame_of_exactly_the_limit_is_accepted() -> None:
    splitter = FrameSplitter(RESPONSE_HEAD, LIMIT)
    assert splitter.split(frame(LIMIT))[2] == [(LIMIT, 0)]


def test_bad_size_behind_a_good_frame_is_refused() -> None:
    with pytest.raises(ProtocolError):
        FrameSplitter(RESPONSE_HEAD, LIMIT).split(frame(8) + b"\xff\xff\xff\xff")


def test_splitter_hold_restarts_at_the_frame_border() -> None:
    splitter = FrameSplitter(RESPONSE_HEAD, LIMIT)
    first, second = frame(8, 1), frame(30, 2)
    chunk, _, heads = splitter.split(first + second[:10])
    assert len(heads) == 2
    splitter.hold(chunk, len(first), 20)
    assert not splitter.split(second[10:19])[2]
    assert splitter.split(second[19:25]) == (second[:25], 0, [(30, 2)])
    assert splitter.remaining == 34 - 25


def test_splitter_hold_keeps_bytes_of_the_incomplete_frame() -> None:
    splitter = FrameSplitter(RESPONSE_HEAD, LIMIT)
    data = frame(8, 1) + frame(8, 2) + frame(8, 3)[:5]
    chunk, _, heads = splitter.split(data)
    assert len(heads) == 2
    splitter.hold(chunk, 12, 0)
    assert splitter.held_bytes == len(data) - 12
    assert splitter.split(frame(8, 3)[5:])[2] == [(8, 2), (8, 3)]


def test_splitter_keeps_bytes_while_stopped() -> None:
    splitter = FrameSplitter(RESPONSE_HEAD, LIMIT)
    data = frame(8, 1) + frame(8, 2)
    for start in range(0, len(data), 5):
        splitter.keep(data[start : start + 5])
    assert splitter.held_bytes == len(data)
    assert splitter.split(b"") == (data, 0, [(8, 1), (8, 2)])
