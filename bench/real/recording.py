"""A small recording relay: a real client's frames, to be replayed, and the broker's responses."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from types import TracebackType
from typing import Final, Protocol, Self

from bench.errors import BenchError
from tests.harness.ports import LOOPBACK

PRODUCE: Final = 0
FIRST_FLEXIBLE: Final = 9
"""The first version whose response, for one partition, ends in fields of constant size."""
ERROR_FROM_END: Final = 35
MOST_REQUESTS: Final = 16
"""The capacity of native/requests.h."""
TIMEOUT_S: Final = 30.0


@dataclass(slots=True)
class Conversation:
    """A recorded connection: frames with their sizes, responses in the order of requests."""

    requests: list[bytes] = field(default_factory=list)
    answers: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A file of requests for the generator, and the size of the response to the last one."""

    file: Path
    answer_bytes: int

    def words(self) -> str:
        """Return the replay in the generator's language (see native/load.h). Real clients sleep when idle."""
        return f"frames={self.file} answer={self.answer_bytes} awake=0"

    @classmethod
    def of(cls, conversations: Sequence[Conversation], file: Path) -> Self:
        """Return a producer's requests on the connection of its first Produce, up to that one. Raises BenchError if it
        is unusable.
        """
        for heard in conversations:
            for number, request in enumerate(heard.requests):
                if struct.unpack_from(">h", request, 4)[0] == PRODUCE and number < len(heard.answers):
                    _require_usable(number + 1, request, heard.answers[number])
                    file.write_bytes(b"".join(heard.requests[: number + 1]))
                    return cls(file, len(heard.answers[number]))
        raise BenchError(f"nothing to replay: on {len(conversations)} recorded connections, no Produce and its answer")


class Recorder:
    """Relays from ``port`` to a broker and records the connections; a context manager."""

    def __init__(self, port: int, broker_port: int) -> None:
        self.conversations: list[Conversation] = []
        self._broker_port = broker_port
        relay = self._relay

        class Handler(StreamRequestHandler):
            def handle(self) -> None:
                relay(self)

        self._server = _Server((LOOPBACK, port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def _relay(self, client: StreamRequestHandler) -> None:
        heard = Conversation()
        self.conversations.append(heard)
        with (
            contextlib.suppress(OSError),
            socket.create_connection((LOOPBACK, self._broker_port), TIMEOUT_S) as broker,
            broker.makefile("rb") as answers,
        ):
            back = threading.Thread(target=_pass_frames, args=(answers, client.wfile.write, heard.answers), daemon=True)
            back.start()
            _pass_frames(client.rfile, broker.sendall, heard.requests)
            broker.shutdown(socket.SHUT_RDWR)
            back.join(TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(TIMEOUT_S)


class _Server(ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def _pass_frames(source: _Readable, send: Callable[[bytes], object], kept: list[bytes]) -> None:
    """Relay and record until the end of the stream, or an error of either side."""
    with contextlib.suppress(OSError):
        while len(size := source.read(4)) == 4:
            frame = size + source.read(struct.unpack(">i", size)[0])
            kept.append(frame)
            send(frame)


def _require_usable(requests: int, request: bytes, answer: bytes) -> None:
    (version,) = struct.unpack_from(">h", request, 6)
    if version < FIRST_FLEXIBLE or requests > MOST_REQUESTS:
        raise BenchError(f"the producer sent Produce v{version} as its request {requests}: it cannot be replayed")
    (error_code,) = struct.unpack_from(">h", answer, len(answer) - ERROR_FROM_END)
    if error_code:
        raise BenchError(f"the broker answered the Produce to be replayed with error code {error_code}")
