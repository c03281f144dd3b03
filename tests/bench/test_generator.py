"""The load generator must notice a wrong answer: figures of a broken proxy are worth nothing."""

import json
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.build import LOAD, STUB_BROKER, build
from tests.harness.ports import LOOPBACK, free_port
from tests.harness.process import Program

pytestmark = pytest.mark.integration

ANSWER_BYTES = 64
THROTTLE_FROM_END = 5


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    build()


def produce_answer(correlation_id: int, *, throttle_time_ms: int = 0, size: int = ANSWER_BYTES) -> bytes:
    """As long as an answer to Produce, with what the generator looks at in its place."""
    frame = bytearray(struct.pack(">ii", size - 4, correlation_id).ljust(size, b"\0"))
    struct.pack_into(">i", frame, size - THROTTLE_FROM_END, throttle_time_ms)
    return bytes(frame)


@contextmanager
def answering(answer: Callable[[int], bytes]) -> Iterator[int]:
    """A server that answers each request on one connection with ``answer(correlation id)``; empty: it hangs up."""
    with socket.create_server((LOOPBACK, 0)) as server:
        thread = threading.Thread(target=_answer_all, args=(server, answer))
        thread.start()
        yield server.getsockname()[1]
        thread.join(10)


def _answer_all(server: socket.socket, answer: Callable[[int], bytes]) -> None:
    connection, _ = server.accept()
    with connection, connection.makefile("rb") as requests:
        while head := requests.read(12):
            size, _, _, correlation_id = struct.unpack(">ihhi", head)
            requests.read(size - 8)
            answered = answer(correlation_id)
            if not answered:
                return
            try:
                connection.sendall(answered)
            except OSError:
                return


def load(port: int, *options: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [str(LOAD), f"port={port}", "warmup=0", "seconds=0.2", *options],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)


def test_right_answers_are_counted() -> None:
    with answering(produce_answer) as port:
        status, said = load(port)
    assert status == 0
    assert said["requests"] > 0
    assert said["request_bytes"] == 512
    assert not any(said["errors"].values())


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda correlation_id: produce_answer(correlation_id + 1), "correlation"),
        (lambda correlation_id: produce_answer(correlation_id, throttle_time_ms=1), "throttled"),
        (lambda correlation_id: produce_answer(correlation_id, size=ANSWER_BYTES + 8), "size"),
        (lambda correlation_id: b"" if correlation_id == 3 else produce_answer(correlation_id), "lost"),
    ],
)
def test_a_wrong_answer_is_an_error(answer: Callable[[int], bytes], error: str) -> None:
    with answering(answer) as port:
        status, said = load(port)
    assert status == 1
    assert said["errors"][error] > 0


@pytest.mark.parametrize(
    "options",
    [
        ("connections=4", "depth=8", "bytes=300"),
        ("connections=2", "depth=2", "bytes=1048576"),
        ("connections=2", "depth=2", "bytes=262144", "api=fetch"),
        ("connections=3", "rate=500", "client_ids=100", "rotate=1"),
    ],
)
def test_the_stand_in_broker_answers_every_kind_of_load(options: tuple[str, ...], tmp_path: Path) -> None:
    port = free_port()
    with Program("stub_broker", [str(STUB_BROKER), str(port)], tmp_path / "broker.log") as broker:
        broker.wait_until(lambda: _accepts(port), "a listening port", 5)
        status, said = load(port, *options)
    assert status == 0
    assert said["requests"] > 0


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0
