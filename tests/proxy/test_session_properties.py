"""A session never stalls, loses or reorders, whatever is cut where, blocked when, and throttled meanwhile.

A modelled client sends only while it is read from, a modelled broker answers whole requests and only while it is
read from; Hypothesis chooses everything else. In the end every answer must have come, in the order of the requests.
"""

from struct import unpack_from

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.kinds import QuotaKind
from tests.proxy.playbook import (
    Play,
    fetch,
    fetch_answer,
    heartbeat,
    heartbeat_answer,
    list_offsets,
    list_offsets_answer,
    produce,
    produce_answer,
    request,
)

KIB = 1024
KINDS = ("produce", "large produce", "acks 0", "fetch", "heartbeat", "list offsets", "api versions from the future")
STEPS = (
    "client",
    "broker",
    "wait",
    "block client",
    "unblock client",
    "block broker",
    "unblock broker",
    "squeeze broker",
)


class World:
    """Both peers of a session, with what each has still to send and what it has got."""

    def __init__(self, kinds: list[str], response: str) -> None:
        quotas = {QuotaKind.PRODUCER_BYTE_RATE: 4 * KIB, QuotaKind.CONSUMER_BYTE_RATE: 4 * KIB}
        self.play = Play(quotas, response=response)
        self.to_send = b"".join(self._request(kind, number) for number, kind in enumerate(kinds))
        self.expected = [number for number, kind in enumerate(kinds) if kind != "acks 0"]
        self._at_broker = b""
        self._answers = b""
        self._at_client = b""

    def _request(self, kind: str, number: int) -> bytes:
        match kind:
            case "produce":
                return produce(number, 1000)
            case "large produce":
                return produce(number, 70 * KIB)
            case "acks 0":
                return produce(number, 3000, acks=0)
            case "fetch":
                return fetch(number)
            case "heartbeat":
                return heartbeat(number)
            case "list offsets":
                return list_offsets(number)
            case _:
                return request(18, 99, number)

    def step(self, what: str, size: int) -> None:
        play, session = self.play, self.play.session
        if what == "client" and not play.client.paused and self.to_send:
            chunk, self.to_send = self.to_send[:size], self.to_send[size:]
            play.session.requests.feed(chunk, play.loop.now_ms)
        elif what == "broker" and not play.broker.paused and self._answers:
            chunk, self._answers = self._answers[:size], self._answers[size:]
            play.session.answers.feed(chunk, play.loop.now_ms)
        elif what == "wait":
            play.loop.advance(size)
        elif what == "squeeze broker":
            session.broker_blocked(True)
            session.broker_blocked(False)
        elif what.endswith("block client"):
            session.client_blocked(what == "block client")
        elif what.endswith("block broker"):
            session.broker_blocked(what == "block broker")
        self._answer()

    def _answer(self) -> None:
        self._at_client += self.play.client.take()
        self._at_broker += self.play.broker.take()
        while len(self._at_broker) >= 12:
            size, key, version, number = unpack_from(">ihhi", self._at_broker)
            if len(self._at_broker) < 4 + size:
                break
            whole, self._at_broker = self._at_broker[: 4 + size], self._at_broker[4 + size :]
            if key == 0 and version == 7:
                acks = unpack_from(">h", whole, 19)[0]
                self._answers += produce_answer(number) if acks else b""
            elif key == 1:
                self._answers += fetch_answer(number, 9000)
            else:
                self._answers += heartbeat_answer(number) if key == 12 else list_offsets_answer(number)

    def answered(self) -> list[int]:
        """Return the correlation ids of the answers that the client has got, whole."""
        numbers = []
        rest = self._at_client
        while len(rest) >= 8:
            size, number = unpack_from(">ii", rest)
            assert len(rest) >= 4 + size
            numbers.append(number)
            rest = rest[4 + size :]
        assert not rest
        return numbers

    def finish(self) -> None:
        """Let everything go on until nothing is left to do."""
        for what in ("unblock client", "unblock broker"):
            self.step(what, 0)
        for _ in range(2000):
            self.step("client", 10**6)
            self.step("broker", 10**6)
            if not self.to_send and not self._answers and not self.play.client.paused:
                return
            self.step("wait", 1000)
        pytest.fail(f"stalled: reasons {self.play.session.requests.reasons:b}, {len(self.to_send)} bytes unsent")


@settings(max_examples=400)
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=8),
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(1, 9000)), min_size=5, max_size=40),
    response=st.sampled_from(("mute", "delay", "auto")),
)
def test_everything_is_answered_in_order(kinds: list[str], steps: list[tuple[str, int]], response: str) -> None:
    world = World(kinds, response)
    for what, size in steps:
        world.step(what, size)
    world.finish()
    assert world.answered() == world.expected
    assert not world.play.rejected
    world.play.session.client_finished()
    assert world.play.client.closed
