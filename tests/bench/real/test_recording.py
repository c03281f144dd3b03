"""What is kept of a client's conversations, and which of it is replayed."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.errors import BenchError
from bench.real.recording import Conversation, Recorded, Recorder
from tests.harness.fake_broker import FakeBroker, serving_in_thread
from tests.harness.fake_broker import frame as framed
from tests.harness.ports import LOOPBACK, free_port
from tests.harness.wire import Address, Connection, frame

API_VERSIONS, PRODUCE, METADATA = (frame(key, 9, 0, "bench", b"body") for key in (18, 0, 3))


def answer(error_code: int = 0) -> bytes:
    """As long as one to Produce v13, with the error code in its place."""
    content = bytearray(62)
    struct.pack_into(">h", content, 62 - 35, error_code)
    return struct.pack(">i", len(content)) + bytes(content)


@pytest.fixture
def broker_port() -> Iterator[int]:
    """A broker that sends every frame back."""
    broker = FakeBroker()
    broker.answers, broker.otherwise = {}, framed
    with serving_in_thread(broker):
        yield broker.port


def test_each_connection_is_kept_as_it_was(broker_port: int) -> None:
    port = free_port()
    with Recorder(port, broker_port) as recorder:
        for sent in ([API_VERSIONS, METADATA], [API_VERSIONS, PRODUCE]):
            with Connection(Address(LOOPBACK, port)) as client:
                assert [client.exchange(request) for request in sent] == sent
    assert recorder.conversations == [
        Conversation([API_VERSIONS, METADATA], [API_VERSIONS, METADATA]),
        Conversation([API_VERSIONS, PRODUCE], [API_VERSIONS, PRODUCE]),
    ]


def test_requests_up_to_the_first_produce_are_replayed(tmp_path: Path) -> None:
    heard = [
        Conversation([API_VERSIONS, METADATA], [b"", b""]),
        Conversation([API_VERSIONS, PRODUCE, PRODUCE], [b"", answer(), answer()]),
    ]
    recorded = Recorded.of(heard, tmp_path / "frames")
    assert recorded.file.read_bytes() == API_VERSIONS + PRODUCE
    assert recorded.answer_bytes == 66
    assert f"frames={recorded.file} answer=66" in recorded.words()


@pytest.mark.parametrize(
    ("heard", "error"),
    [
        ([], "on 0 recorded connections, no Produce"),
        ([Conversation([API_VERSIONS], [b""])], "on 1 recorded connections, no Produce"),
        ([Conversation([PRODUCE], [])], "no Produce and its answer"),
        ([Conversation([PRODUCE], [answer(3)])], "with error code 3"),
        ([Conversation([frame(0, 7, 0, "bench", b"")], [answer()])], "Produce v7 as its request 1"),
        ([Conversation([*[METADATA] * 16, PRODUCE], [answer()] * 17)], "as its request 17"),
    ],
)
def test_unreplayable_recording_is_refused_with_a_reason(tmp_path: Path, heard: list[Conversation], error: str) -> None:
    with pytest.raises(BenchError, match=error):
        Recorded.of(heard, tmp_path / "frames")
