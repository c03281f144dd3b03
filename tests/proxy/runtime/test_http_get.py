"""The proxy's own HTTP questions, and servers that answer with more than was asked for."""

import asyncio
import gzip
import resource
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from proxy.runtime.http_get import Answer, BadAnswerError, http_get

pytestmark = pytest.mark.asyncio

Write = Callable[[asyncio.StreamWriter], Awaitable[None]]
MOST_BYTES = 10_000


@asynccontextmanager
async def answering(write: Write, asked: list[bytes]) -> AsyncIterator[tuple[str, int]]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        try:
            await write(writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[:2]


async def asked_of(write: Write, within_s: float = 60.0) -> Answer:
    async with answering(write, []) as at:
        return await http_get(at, "/owners", within_s=within_s, most_bytes=MOST_BYTES)


def saying(data: bytes) -> Write:
    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return write


async def endlessly(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(bytes(1_000_000))
        await writer.drain()


async def in_drops(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("length", [b"", b"Content-Length: 3\r\n"])
async def test_answer_is_read_to_its_end_or_told_length(length: bytes) -> None:
    assert await asked_of(saying(b"HTTP/1.1 200 OK\r\n" + length + b"\r\nabc")) == Answer(200, b"abc")


async def test_redirect_is_an_answer_and_its_address_is_not_asked() -> None:
    elsewhere: list[bytes] = []
    async with answering(saying(b"HTTP/1.1 200 OK\r\n\r\nsecret"), elsewhere) as (host, port):
        location = f"Location: http://{host}:{port}/latest/meta-data\r\n".encode()
        found = await asked_of(saying(b"HTTP/1.1 302 Found\r\n" + location + b"\r\n"))
    assert (found, elsewhere) == (Answer(302, b""), [])


@pytest.mark.parametrize("encoding", [b"Content-Encoding: gzip", b"transfer-encoding: chunked"])
async def test_encoded_answer_is_refused_and_not_unpacked(encoding: bytes) -> None:
    body = gzip.compress(bytes(1_000_000))
    with pytest.raises(BadAnswerError, match="encoding that was not asked for"):
        await asked_of(saying(b"HTTP/1.1 200 OK\r\n" + encoding + b"\r\n\r\n" + body))


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (endlessly, "more than 10000 bytes"),
        (saying(b"HTTP/1.1 200 OK\r\nContent-Length: 10001\r\n\r\n"), "more than 10000 bytes"),
        (saying(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"), "as an admin port does"),
        (saying(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nabc"), "as an admin port does"),
        (saying(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000), "as an admin port does"),
        (saying(b"SSH-2.0-OpenSSH\r\n\r\n"), "as an admin port does"),
        (saying(b""), "as an admin port does"),
    ],
)
async def test_answer_beyond_its_bounds_or_not_of_http_is_refused(write: Write, said: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BadAnswerError, match=said):
        await asked_of(write)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB


async def test_answer_in_drops_is_given_up_after_the_whole_time() -> None:
    with pytest.raises(TimeoutError, match=r"within 0\.3 s"):
        await asked_of(in_drops, within_s=0.3)


@pytest.mark.parametrize("path", ["/owners HTTP/1.1\r\nX: y", "/ä", ""])
async def test_path_that_would_be_a_header_is_not_sent(path: str) -> None:
    asked: list[bytes] = []
    async with answering(saying(b"HTTP/1.1 200 OK\r\n\r\n"), asked) as at:
        with pytest.raises(BadAnswerError):
            await http_get(at, path, within_s=60.0, most_bytes=1)
    assert not asked
