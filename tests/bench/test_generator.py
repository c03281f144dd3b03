"""The load generator must notice a wrong answer: figures of a broken proxy are worth nothing."""

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bench.build import build
from bench.errors import BenchError
from bench.generator import Generator
from bench.rows import Load
from tests.harness.ports import LOOPBACK, free_port

pytestmark = pytest.mark.integration

ANSWER_BYTES = 64
THROTTLE_FROM_END = 5


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Generator]:
    build()
    core = min(os.sched_getaffinity(0))
    with Generator(free_port(), core, tmp_path_factory.mktemp("bench") / "generator.log") as running:
        yield running


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


def run(generator: Generator, load: Load, port: int) -> dict[str, Any]:
    return generator.run(load, port, warmup_s=0, seconds=0.2, watch=[os.getpid()])


def test_right_answers_are_counted(generator: Generator) -> None:
    with answering(produce_answer) as port:
        said = run(generator, Load(1), port)
    assert said["requests"] > 0
    assert said["request_bytes"] == 512
    assert said["watched_cpu_s"][0] > 0


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda correlation_id: produce_answer(correlation_id + 1), "correlation"),
        (lambda correlation_id: produce_answer(correlation_id, throttle_time_ms=1), "throttled"),
        (lambda correlation_id: produce_answer(correlation_id, size=ANSWER_BYTES + 8), "size"),
        (lambda correlation_id: b"" if correlation_id == 3 else produce_answer(correlation_id), "lost"),
    ],
)
def test_a_wrong_answer_is_an_error(generator: Generator, answer: Callable[[int], bytes], error: str) -> None:
    with answering(answer) as port, pytest.raises(BenchError, match=f"no figures: 1 x {error}"):
        run(generator, Load(1), port)


def test_a_port_that_nobody_listens_on_is_an_error(generator: Generator) -> None:
    with pytest.raises(BenchError, match=r"connection 1 of 2 to port .*refused"):
        run(generator, Load(2), free_port())


@pytest.mark.parametrize(
    "load",
    [
        Load(4, 8, 300),
        Load(2, 2, 1 << 20),
        Load(2, 2, 1 << 18, "fetch"),
        Load(3, rate_per_s=500, client_ids=100, rotate=True),
    ],
)
def test_the_broker_answers_every_kind_of_load(generator: Generator, load: Load) -> None:
    assert run(generator, load, generator.port)["requests"] > 0


def test_held_connections_end_with_the_next_run(generator: Generator) -> None:
    generator.hold(Load(50), generator.port)
    generator.release()
    assert run(generator, Load(1), generator.port)["requests"] > 0
