"""A session never stalls, loses or reorders, whatever is cut where, blocked when, and throttled meanwhile.

A modelled client sends only while it is read from, a modelled broker answers whole requests and only while it is
read from; Hypothesis chooses everything else. In the end every answer must have come, in the order of the requests.
"""

from struct import unpack_from

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Cause
from quotas.kinds import QuotaKind
from tests.harness.examples import examples
from tests.proxy.playbook import (
    Play,
    authenticate,
    authenticate_answer,
    fetch,
    fetch_answer,
    handshake,
    handshake_answer,
    heartbeat,
    heartbeat_answer,
    list_offsets,
    list_offsets_answer,
    produce,
    produce_answer,
    request,
)

KIB = 1024
KINDS = (
    "produce",
    "large produce",
    "large produce",
    "acks 0",
    "fetch",
    "heartbeat",
    "list offsets",
    "api versions from the future",
    "handshake",
    "token",
)
BLOCKS = ("nothing", "block client", "unblock client", "block broker", "unblock broker", "squeeze broker")
CUTS = st.tuples(st.sampled_from((0, 1, 1, 2)), st.sampled_from((0, 0, 3, 13, 200, 5000)))
"""Whole frames, so that chunks also begin and end at borders, and bytes beyond them."""
ROUNDS = st.tuples(st.sampled_from(BLOCKS), CUTS, CUTS, st.sampled_from((0, 10, 1000, 30_000)))
"""What is blocked, how much the client may send, how much the broker, and how long is waited."""

Cut = tuple[int, int]
EVERYTHING: Cut = (10**6, 0)


def take(frames: list[bytes], cut: Cut) -> bytes:
    """Remove and return the first frames of a stream and some bytes of the next; what is left of one counts as one."""
    whole, beyond = cut
    taken = b"".join(frames[:whole])
    del frames[:whole]
    if frames and beyond:
        taken += frames[0][:beyond]
        frames[0] = frames[0][beyond:]
        if not frames[0]:
            del frames[0]
    return taken


class World:
    """Both peers of a session, with what each has still to send and what it has got."""

    def __init__(self, kinds: list[str], response: str) -> None:
        quotas = {QuotaKind.PRODUCER_BYTE_RATE: KIB, QuotaKind.CONSUMER_BYTE_RATE: KIB}
        self.play = Play(quotas, response=response)
        self.play.worker.unauthenticated_request_limit = self.play.worker.request_limit
        self.to_send = [self._request(kind, number) for number, kind in enumerate(kinds)]
        self.expected = [number for number, kind in enumerate(kinds) if kind != "acks 0"]
        self._at_broker = b""
        self.answers: list[bytes] = []
        self._at_client = b""

    def _request(self, kind: str, number: int) -> bytes:
        match kind:
            case "produce":
                return produce(number, 1000)
            case "large produce":
                return produce(number, 16 * KIB)
            case "acks 0":
                return produce(number, 3000, acks=0)
            case "fetch":
                return fetch(number)
            case "heartbeat":
                return heartbeat(number)
            case "list offsets":
                return list_offsets(number)
            case "handshake" | "token":
                return handshake(number, "PLAIN") if kind == "handshake" else authenticate(number, b"\0alice\0secret")
            case _:
                return request(18, 99, number)

    def step(self, block: str, from_client: Cut, from_broker: Cut, wait_ms: int) -> None:
        play, session = self.play, self.play.session
        if not play.client.paused:
            session.requests.feed(take(self.to_send, from_client), play.loop.now_ms)
        if block == "squeeze broker":
            session.blocked("broker", True)
            session.blocked("broker", False)
        elif block.endswith("block client"):
            session.blocked("client", block == "block client")
        elif block.endswith("block broker"):
            session.blocked("broker", block == "block broker")
        self._answer()
        if not play.broker.paused:
            session.answers.feed(take(self.answers, from_broker), play.loop.now_ms)
        play.loop.advance(wait_ms)
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
                self.answers += [produce_answer(number)] if acks else []
            elif key == 1:
                self.answers.append(fetch_answer(number, 9000))
            elif key == 17:
                self.answers.append(handshake_answer(number))
            elif key == 36:
                self.answers.append(authenticate_answer(number, lifetime_ms=5000))
            else:
                self.answers.append(heartbeat_answer(number) if key == 12 else list_offsets_answer(number))

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
        for block in ("unblock client", "unblock broker"):
            self.step(block, (0, 0), (0, 0), 0)
        for _ in range(2000):
            if self.play.rejected:
                return
            self.step("nothing", EVERYTHING, EVERYTHING, 1000)
            if not self.to_send and not self.answers and not self.play.client.paused:
                return
        pytest.fail(f"stalled: reasons {self.play.session.requests.reasons:b}, {len(self.to_send)} requests unsent")


@pytest.mark.long
@examples(5)
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=8),
    rounds=st.lists(ROUNDS, min_size=5, max_size=30),
    response=st.sampled_from(("mute", "delay", "auto")),
)
def test_every_request_is_answered_in_order_despite_throttles(
    kinds: list[str], rounds: list[tuple[str, Cut, Cut, int]], response: str
) -> None:
    world = World(kinds, response)
    for block, from_client, from_broker, wait_ms in rounds:
        if not world.play.rejected:
            world.step(block, from_client, from_broker, wait_ms)
    world.finish()
    if world.play.rejected:  # it can wait no longer, and what it asks for is not left
        assert [error.cause for _, error in world.play.rejected] == [Cause.HELD_TOO_LONG]
        assert "token" in kinds
        assert world.play.session.closed
        return
    assert world.answered() == world.expected
    assert not world.play.rejected
    world.play.session.client_finished()
    assert world.play.client.closed
