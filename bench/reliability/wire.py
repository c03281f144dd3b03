"""A fault proxy for one address: it cuts what passes into pieces, which are delayed, corrupted, or end connections."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from tests.harness.gate import CHUNK_BYTES, Gate

_LINGER_NONE: Final = struct.pack("ii", 1, 0)


class Ending(Enum):
    RESET = auto()
    FIN = auto()
    HALF_CLOSE = auto()
    """The end of this direction; the other one goes on."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes that go out by themselves, after a wait, and what happens then."""

    data: bytes
    wait_s: float = 0.0
    ending: Ending | None = None


Cut = Callable[[bytes, Sequence[int]], list[Piece]]
"""Takes bytes of one direction, and where in them frames of Kafka begin."""


class Frames:
    """Where frames begin in the chunks of one direction: an int32 of the size, then that many bytes."""

    def __init__(self) -> None:
        self._head = b""
        self._left = 0

    def starts(self, chunk: bytes) -> list[int]:
        """Offsets in the chunk; a frame whose size began in an earlier chunk is left out."""
        found = []
        at = 0
        while at < len(chunk):
            if self._left == 0 and not self._head:
                found.append(at)
            if self._left == 0:
                taken = chunk[at : at + 4 - len(self._head)]
                self._head += taken
                at += len(taken)
                if len(self._head) == 4:
                    self._left = max(int.from_bytes(self._head, "big", signed=True), 0)
                    self._head = b""
            else:
                step = min(self._left, len(chunk) - at)
                self._left -= step
                at += step
        return found


class FaultGate(Gate):
    """A gate with cuts for each direction; several are applied one after the other. Without any, chunks pass whole."""

    requests: tuple[Cut, ...] = ()
    answers: tuple[Cut, ...] = ()

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, are_answers: bool) -> None:
        frames = Frames()
        with contextlib.suppress(OSError):
            while chunk := await reader.read(CHUNK_BYTES):
                await self.audible.wait()
                starts = frames.starts(chunk)
                for piece in _pieces(chunk, starts, self.answers if are_answers else self.requests):
                    if piece.wait_s:
                        await asyncio.sleep(piece.wait_s)
                    writer.write(piece.data)
                    await writer.drain()
                    if piece.ending is not None:
                        await _end(writer, piece.ending)
                        return


def _pieces(chunk: bytes, starts: Sequence[int], cuts: Sequence[Cut]) -> list[Piece]:
    pieces = [Piece(chunk)]
    for cut in cuts:
        whole = len(pieces) == 1  # only then are starts those of the piece
        pieces = [
            replace(part, wait_s=part.wait_s + piece.wait_s, ending=part.ending or piece.ending)
            for piece in pieces
            for part in cut(piece.data, starts if whole else ())
        ]
    return pieces


async def _end(writer: asyncio.StreamWriter, ending: Ending) -> None:
    match ending:
        case Ending.RESET:
            connection: socket.socket = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
            writer.transport.abort()
        case Ending.FIN:
            writer.transport.close()  # a FIN once all is written
            await asyncio.sleep(0.05)
        case Ending.HALF_CLOSE:
            if writer.can_write_eof():
                writer.write_eof()
            await asyncio.Event().wait()  # until the other direction ends
