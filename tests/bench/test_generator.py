"""The load generator must notice a wrong answer: figures of a broken proxy are worth nothing."""

import os
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.build import build
from bench.errors import BenchError
from bench.generator import Generator
from bench.real.recording import Recorded
from bench.rows import Client, Load
from proxy.brokers.connection import connect
from proxy.brokers.metadata import is_kraft, which_brokers
from tests.harness.certificates import Authority, common_name
from tests.harness.fake_broker import FakeBroker, correlation_id, frame, serving_in_thread
from tests.harness.ports import free_port

pytestmark = pytest.mark.integration

ANSWER_BYTES = 64
SEVERAL_S = 3.0
"""Long enough for several TLS connections on a busy machine."""
THROTTLE_FROM_END, ERROR_FROM_END = 5, 35


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Generator]:
    build()
    core = min(os.sched_getaffinity(0))
    with Generator(free_port(), core, tmp_path_factory.mktemp("bench") / "generator.log") as running:
        yield running


def produce_answer(
    correlation_id: int, *, throttle_time_ms: int = 0, error_code: int = 0, size: int = ANSWER_BYTES
) -> bytes:
    """As long as an answer to Produce, with what the generator looks at in its place."""
    frame = bytearray(struct.pack(">ii", size - 4, correlation_id).ljust(size, b"\0"))
    struct.pack_into(">i", frame, size - THROTTLE_FROM_END, throttle_time_ms)
    struct.pack_into(">h", frame, size - ERROR_FROM_END, error_code)
    return bytes(frame)


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    identity = Authority(tmp_path).issue("server", common_name("localhost"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    return context


@contextmanager
def answering(
    answer: Callable[[int], bytes], tls: ssl.SSLContext | None = None, *, once: bool = False
) -> Iterator[FakeBroker]:
    """A broker that answers with ``answer(correlation id)``; empty: it hangs up."""
    broker = FakeBroker()
    broker.answers, broker.otherwise = {}, lambda request: answer(correlation_id(request)) or None
    broker.once = once
    with serving_in_thread(broker, tls):
        yield broker


def run(
    generator: Generator,
    load: Load,
    port: int,
    *,
    warmup_s: float = 0,
    seconds: float = 0.5,
    recorded: Recorded | None = None,
) -> dict[str, Any]:
    return generator.run(load, port, warmup_s=warmup_s, seconds=seconds, watch=[os.getpid()], recorded=recorded)


def test_right_answers_are_counted(generator: Generator) -> None:
    with answering(produce_answer) as broker:
        said = run(generator, Load(1), broker.port)
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
    with answering(answer) as broker, pytest.raises(BenchError, match=f"no figures: 1 x {error}"):
        run(generator, Load(1), broker.port)


@pytest.mark.parametrize("load", [Load(1, tls=True), Load(1, 8, 300, tls=True), Load(1, 2, 1 << 18, tls=True)])
def test_right_answers_over_tls_are_counted(generator: Generator, tls: ssl.SSLContext, load: Load) -> None:
    with answering(produce_answer, tls) as broker:
        said = run(generator, load, broker.port)
    assert said["requests"] > 0
    assert said["request_bytes"] == load.bytes


def test_reconnect_uses_each_connection_once(generator: Generator, tls: ssl.SSLContext) -> None:
    with answering(produce_answer, tls, once=True) as broker:
        assert run(generator, Load(1, tls=True, reconnect=True), broker.port, seconds=SEVERAL_S)["requests"] > 1
        with pytest.raises(BenchError, match="no figures: 1 x lost"):
            run(generator, Load(1, tls=True), broker.port)


def test_a_full_handshake_where_one_was_to_resume_is_an_error(generator: Generator, tls: ssl.SSLContext) -> None:
    load = Load(1, tls=True, reconnect=True, resume=True)
    with answering(produce_answer, tls) as broker:
        assert run(generator, load, broker.port, warmup_s=0.1, seconds=SEVERAL_S)["requests"] > 1
    tls.num_tickets = 0
    with answering(produce_answer, tls) as broker, pytest.raises(BenchError, match="no figures: 1 x not_resumed"):
        run(generator, load, broker.port, warmup_s=0.1, seconds=SEVERAL_S)


def test_an_older_tls_is_an_error(generator: Generator, tls: ssl.SSLContext) -> None:
    tls.maximum_version = ssl.TLSVersion.TLSv1_2
    with answering(produce_answer, tls) as broker, pytest.raises(BenchError, match="no figures: 1 x lost"):
        run(generator, Load(1, tls=True), broker.port)


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


@pytest.mark.asyncio
async def test_broker_answers_the_questions_of_the_proxy_itself(generator: Generator) -> None:
    async with connect("127.0.0.1", generator.port, None) as connection:
        assert not await is_kraft(connection)
        said = await which_brokers(connection)
    assert (said.cluster_id, said.at("127.0.0.1", generator.port)) == ("bench", (0,))


def test_held_connections_end_with_the_next_run(generator: Generator) -> None:
    generator.hold(Load(50), generator.port)
    generator.release()
    assert run(generator, Load(1), generator.port)["requests"] > 0


def frame_of(key: int, correlation_id: int, body: bytes) -> bytes:
    return struct.pack(">ihhi", 8 + len(body), key, 9, correlation_id) + body


def recorded(path: Path, *frames: bytes) -> Recorded:
    path.write_bytes(b"".join(frames))
    return Recorded(path, ANSWER_BYTES)


def test_recorded_requests_are_sent_as_they_are(generator: Generator, tmp_path: Path) -> None:
    greeting, produce = frame_of(18, 900, b"hello"), frame_of(0, 901, b"records" * 100)

    def answer(correlation_id: int) -> bytes:
        return produce_answer(correlation_id, size=ANSWER_BYTES if correlation_id else 4000)

    with answering(answer) as broker:
        frames = recorded(tmp_path / "f", greeting, produce)
        said = run(generator, Load(1, 4, client=Client.REPLAY), broker.port, recorded=frames)
    assert said["requests"] > 0
    assert said["request_bytes"] == len(produce)
    first, *seen = map(frame, broker.requests)
    assert first == frame_of(18, 0, b"hello")
    assert seen == [frame_of(0, at, b"records" * 100) for at in range(1, len(seen) + 1)]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda correlation_id: produce_answer(correlation_id, error_code=6), "refused"),
        (lambda correlation_id: produce_answer(correlation_id, size=ANSWER_BYTES - 10), "size"),
        (lambda _: produce_answer(7), "correlation"),
    ],
)
def test_a_wrong_answer_to_what_was_recorded_is_an_error(
    generator: Generator, tmp_path: Path, answer: Callable[[int], bytes], error: str
) -> None:
    frames = recorded(tmp_path / "f", frame_of(0, 0, b"records"))
    with answering(answer) as broker, pytest.raises(BenchError, match=f"no figures: 1 x {error}"):
        run(generator, Load(1, client=Client.REPLAY), broker.port, recorded=frames)


@pytest.mark.parametrize("frames", [[], [b"\0\0\0\2ab"], [frame_of(0, 0, b"records")[:-1]]])
def test_a_file_that_is_not_whole_requests_is_an_error(
    generator: Generator, tmp_path: Path, frames: list[bytes]
) -> None:
    with pytest.raises(BenchError, match="is no file of whole requests"):
        run(generator, Load(1), free_port(), recorded=recorded(tmp_path / "f", *frames))
