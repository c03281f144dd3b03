"""The proxy's own HTTP questions: to other instances, and to the admin port of a running proxy.

An answer is bounded in time and size, whatever its headers claim: its bytes are counted as they come, nothing is
unpacked, and no redirect is followed, so that nobody who answers decides what this process asks or holds. HTTP/1.0: a
body in chunks is not asked for, nor taken.
"""

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

_HEAD_BYTES: Final = 16 * 1024
_PIECE_BYTES: Final = 64 * 1024
_PRINTABLE: Final = re.compile("[!-~]+")


class Answer(NamedTuple):
    status: int
    body: bytes


class BadAnswerError(ConnectionError):
    """An answer that is not taken; the text says why."""


Get = Callable[[str, tuple[str, int], str, float, int], Awaitable[Answer]]
"""Asks another instance: (name, its admin port, path, seconds, most bytes) → its answer. Raises OSError."""


async def get_unsigned(name: str, at: tuple[str, int], path: str, within_s: float, most_bytes: int) -> Answer:
    """Ask another instance, as anybody could. Raises OSError."""
    del name
    return await http_get(at, path, within_s=within_s, most_bytes=most_bytes)


async def http_get(
    at: tuple[str, int],
    path: str,
    *,
    within_s: float,
    most_bytes: int,
    host: str = "localhost",
    authorization: str = "",
    post: bytes | None = None,
    context: ssl.SSLContext | None = None,
) -> Answer:
    """Ask, over TLS with ``context``; ``host`` is the Host header, by default a name that every admin port accepts.
    ``post``: a message that is sent, in place of a question. Raises OSError.
    """
    length = "" if post is None else str(len(post))
    head = _head("GET" if post is None else "POST", path, host, authorization, length)
    try:
        async with asyncio.timeout(within_s):
            name = None if context is None else at[0]
            reader, writer = await asyncio.open_connection(*at, limit=_HEAD_BYTES, ssl=context, server_hostname=name)
            try:
                writer.write(head + (post or b""))
                status, left = _read_head(await reader.readuntil(b"\r\n\r\n"))
                if left is not None and left > most_bytes:
                    raise BadAnswerError(f"answers with more than {most_bytes} bytes")
                return Answer(status, await _read_body(reader, left, most_bytes))
            finally:
                writer.transport.abort()
    except TimeoutError:
        raise TimeoutError(f"does not answer within {within_s:g} s") from None
    except ssl.SSLError as error:
        said = getattr(error, "verify_message", None) or error.reason or "it ends the handshake"
        raise BadAnswerError(f"TLS: {said}") from None
    except (ValueError, EOFError, asyncio.LimitOverrunError):
        raise BadAnswerError("does not answer as an admin port does") from None


def _head(method: str, path: str, host: str, authorization: str, length: str) -> bytes:
    """Return the first lines of a request. Raises BadAnswerError."""
    if not _PRINTABLE.fullmatch(path) or not _PRINTABLE.fullmatch(host):
        raise BadAnswerError(f"cannot be asked for {path[:64]!a}")
    if not authorization.isprintable():
        raise BadAnswerError("cannot be asked with a token that has other than printable characters")
    headers = {"Host": host, "Authorization": authorization, "Content-Length": length}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if value)
    return f"{method} {path} HTTP/1.0\r\n{lines}\r\n".encode()


def _read_head(head: bytes) -> tuple[int, int | None]:
    """Return the status, and the length of the body if it is told. Raises BadAnswerError and ValueError."""
    first, *lines = head.decode("latin-1").split("\r\n")
    version, status = first.split(" ", 2)[:2]
    if not version.startswith("HTTP/1."):
        raise ValueError(version)
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if fields.keys() & {"transfer-encoding", "content-encoding"}:
        raise BadAnswerError("answers in an encoding that was not asked for")
    length = fields.get("content-length")
    if length is not None and not (length.isascii() and length.isdecimal() and len(length) < 20):
        raise ValueError(length)
    return int(status), None if length is None else int(length)


async def _read_body(reader: asyncio.StreamReader, length: int | None, most_bytes: int) -> bytes:
    body = bytearray()
    while (left := (most_bytes + 1 if length is None else length) - len(body)) > 0:
        piece = await reader.read(min(left, _PIECE_BYTES))
        if not piece and length is not None:
            raise EOFError
        if not piece:
            break
        body += piece
    if len(body) > most_bytes:
        raise BadAnswerError(f"answers with more than {most_bytes} bytes")
    return bytes(body)
