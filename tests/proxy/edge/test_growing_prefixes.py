"""Whatever strangers send comes in pieces of their choice. Reading n bytes takes at most k times n, in the worst cut.

Work is counted, not timed: lines of Python that run, and bytes that are looked at or copied (``tests.harness.work``).
"""

import socket
from collections.abc import Callable

import pytest

from protocol.errors import ProtocolError
from protocol.frames import FrameSplitter
from protocol.group_names import GroupNames
from protocol.headers import HeaderRest
from protocol.produce_topics import ProduceTopics
from protocol.sasl import SASL_AUTHENTICATE
from protocol.table import SPECS
from protocol.tls_hello import Hello, HelloSearch
from protocol.varint import MAX_TAGS, encode_varint
from proxy.edge import proxy_protocol, sorter
from proxy.edge.arriving import is_request
from proxy.edge.protected_topics import Guard
from proxy.edge.proxy_protocol import MAX_HEADER_BYTES, V2_SIGNATURE
from proxy.edge.wires import ClientWire
from tests.harness.work import Watched, lines_run, work
from tests.protocol.test_tls_hello import divided, extension, made, named
from tests.proxy.playbook import Play, frame, handshake, handshake_answer, list_offsets, request

pytestmark = [pytest.mark.asyncio, pytest.mark.uncompiled("compiled lines are not counted")]

PRODUCE_V9, JOIN_GROUP_V9 = 9, 11 << 16 | 9


def pieces(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def tiny_records(host: bytes, padding: int) -> bytes:
    hello = made(named(host) + extension(21, bytes(padding)))
    return divided(hello, *range(1, len(hello) - 5))


def assert_linear(cost: Callable[[int], tuple[int, int]], k: float, sizes: tuple[int, int] = (700, 1400)) -> None:
    """``cost`` returns the bytes of an input of about that size, and the work for it."""
    (short, work_for_short), (long, work_for_long) = map(cost, sizes)
    assert long >= 1.8 * short
    assert work_for_long <= k * long
    assert work_for_long / long <= 1.15 * work_for_short / short


async def test_hello_in_records_and_looks_of_one_byte() -> None:
    def cost(size: int) -> tuple[int, int]:
        hello = tiny_records(b"b1.kafka.test", size)
        search = HelloSearch()

        def look() -> None:
            found = [search.look(Watched(hello[:have])) for have in range(len(hello) + 1)]
            assert found[-1] == Hello("b1.kafka.test")

        return len(hello), work(look)

    assert_linear(cost, 40)


class Peeked:
    """A stand-in for ``peek``: each call shows as few bytes as the kernel may."""

    def __init__(self, data: bytes, patch: pytest.MonkeyPatch) -> None:
        self.data = data
        self.shown = 1
        self.copied = self.looks = 0
        for module in (proxy_protocol, sorter):
            patch.setattr(module, "peek", self.peek)

    def setsockopt(self, level: int, option: int, value: int) -> None:
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_RCVLOWAT)
        self.shown = value

    async def peek(self, _client: object, most_bytes: int) -> bytes:
        shown = self.data[: min(self.shown, most_bytes)]
        self.looks += 1
        self.copied += len(shown)
        return Watched(shown)

    def recv(self, size: int) -> None:
        self.data = self.data[size:]


async def test_hello_that_is_peeked_at_is_copied_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 looks at the most, however it is cut; a hello in the records of a client is found in these."""
    for size in (0, 300, 2000):
        peeked = Peeked(tiny_records(b"b1.kafka.test", size), monkeypatch)
        assert await sorter.named_host(peeked) == ""  # type: ignore[arg-type]  # all that is used of a socket
        assert (peeked.looks, peeked.copied <= 16 * len(peeked.data)) == (16, True)
    hello = made(named(b"b1.kafka.test") + extension(21, bytes(14_000)))
    peeked = Peeked(divided(hello, 100, 3000, 9000), monkeypatch)
    assert await sorter.named_host(peeked) == "b1.kafka.test"  # type: ignore[arg-type]
    assert peeked.looks < 10


@pytest.mark.parametrize("version", [1, 2])
async def test_proxy_header_in_pieces_of_one_byte(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    async def cost(size: int) -> tuple[int, int]:
        if version == 1:
            header = b"PROXY UNKNOWN " + b"x" * (size // 14 - 16) + b"\r\n"
        else:
            header = V2_SIGNATURE + b"\x21\x11" + size.to_bytes(2, "big") + bytes(size)
        peeked = Peeked(header, monkeypatch)
        before = Watched.looked_at
        with lines_run() as lines:
            assert (await proxy_protocol.read_header(peeked)).length_bytes == len(header)  # type: ignore[arg-type]
        return len(header), lines[0] + Watched.looked_at - before

    for size, k in ((700, 150), (1400, 150)) if version == 1 else ((1000, 30), (MAX_HEADER_BYTES - 16, 20)):
        length, done = await cost(size)
        assert done <= k * length


class Still:
    """A transport that is not read."""

    def is_closing(self) -> bool:
        return True


async def test_first_request_in_pieces_of_one_byte() -> None:
    """14 bytes say what it is: no more than these are ever kept."""
    looked: list[int] = []
    play = Play()

    def looks(begun: bytes) -> bool:
        looked.append(len(begun))
        return is_request(begun, play.worker, authenticated=True)

    wire = ClientWire(looks, None)  # type: ignore[arg-type]  # it owns no descriptor
    wire._feed, wire._transport = wire._greet, Still()  # type: ignore[assignment]  # all that is asked of it
    for piece in pieces(list_offsets(1)[:14]):
        wire.data_received(piece)
    assert sum(looked) == sum(range(1, 15))
    await wire.first_request()
    with pytest.raises(ProtocolError):
        is_request(b"\0\0\0\1", play.worker, authenticated=True)


def tagged(count: int, size: int = 0) -> bytes:
    """Return the end of a header, client-id included, with so many tagged fields."""
    return b"\0\1c" + encode_varint(count) + (b"\1" + encode_varint(size) + bytes(size)) * count


@pytest.mark.parametrize("size", [0, 30])
async def test_tags_of_a_header_that_streams_past(size: int) -> None:
    def cost(bytes_: int) -> tuple[int, int]:
        rest = tagged(bytes_ // (2 + size), size)[2:]

        def read() -> None:
            header = HeaderRest(SPECS[PRODUCE_V9], 1)
            offsets = [header.body_offset(Watched(piece), 0, 1) for piece in pieces(rest)]
            assert offsets[-1] == 1
            assert set(offsets[:-1]) == {-1}

        return len(rest), work(read)

    assert_linear(cost, 40)


@pytest.mark.parametrize("key_version", [PRODUCE_V9, JOIN_GROUP_V9])
async def test_guarded_request_in_pieces_of_one_byte(key_version: int) -> None:
    def cost(size: int) -> tuple[int, int]:
        head = key_version.to_bytes(4, "big") + bytes(4) + tagged(size // 4, 2)
        name = b"n" * 200
        body = {
            PRODUCE_V9: b"\0\0\1\0\0\0\0" + encode_varint(9) + (encode_varint(201) + name + b"\1\0") * 8,
            JOIN_GROUP_V9: encode_varint(201) + name,
        }[key_version]
        whole = frame(head + body)
        passed: list[bytes] = []
        guard = Guard((b"usage",), passed.append, lambda: False, None, b"owners")

        def write() -> None:
            for piece in pieces(whole):
                guard.write(Watched(piece))

        done = work(write)
        assert b"".join(passed) == whole
        return len(whole), done

    assert_linear(cost, 250, (1000, 4000) if key_version == PRODUCE_V9 else (400, 3600))


async def test_names_of_topics_and_groups_are_not_kept_beyond_the_length_of_one() -> None:
    for length in (249, 250, 32_000):
        topics = ProduceTopics(SPECS[PRODUCE_V9], 100_000)
        groups = GroupNames(SPECS[JOIN_GROUP_V9], b"g" * 249, is_array=False)
        for piece in pieces(b"\0\0\1\0\0\0\0\2" + encode_varint(length + 1) + b"n" * length):
            topics.feed(piece, 0, 1)
            assert len(topics._held) < 260
        for piece in pieces(encode_varint(length + 1) + b"n" * length):
            groups.feed(piece, 0, 1)
            assert len(groups._held) < 260


class Copies:
    """Counts the bytes that splitters hand out again."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        release = FrameSplitter.release

        def counted(splitter: FrameSplitter) -> bytes:
            held = release(splitter)
            self.bytes += len(held)
            return held

        patch.setattr(FrameSplitter, "release", counted)


def assert_play_is_linear(play: Play, data: bytes, k: float, copies: Copies) -> None:
    before = copies.bytes
    with lines_run() as lines:
        for piece in pieces(data):
            play.session.requests.feed(piece, play.loop.now_ms)
    assert lines[0] + copies.bytes - before <= k * len(data)
    assert play.broker.take() == data


@pytest.mark.parametrize("size", [500, 2000])
async def test_head_of_a_request_in_pieces_of_one_byte(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """A client-id as long as may be, and tagged fields of one byte: the header is read again each time it doubles."""
    copies = Copies(monkeypatch)
    for rest in (size.to_bytes(2, "big") + b"c" * size + b"\0", tagged(min(size // 3, MAX_TAGS), 1)):
        head = PRODUCE_V9.to_bytes(4, "big") + bytes(4) + rest + b"\0\0\1\0\0\0\0\1\0"
        assert_play_is_linear(Play(), frame(head), 60, copies)


@pytest.mark.parametrize("raw", [False, True], ids=["SaslAuthenticate", "without a header"])
@pytest.mark.parametrize("size", [300, 900])
async def test_sasl_token_in_pieces_of_one_byte(monkeypatch: pytest.MonkeyPatch, size: int, raw: bool) -> None:
    play = Play(authenticated=False)
    if raw:
        token = frame(b"\x60" + bytes(size))
    else:
        play.from_client(handshake(1, "PLAIN"))
        play.from_broker(handshake_answer(1))
        token = request(SASL_AUTHENTICATE, 0, 2, frame(bytes(size)))
    assert_play_is_linear(play, token, 60, Copies(monkeypatch))
