"""Requests that wait in line while their client closes: nobody would read the answer, so nobody is charged for them."""

import pytest

from protocol.errors import Cause
from quotas.entities import Entity
from tests.proxy.playbook import (
    CONSUMER,
    KIB,
    PRODUCER,
    Play,
    fetch,
    fetch_answer,
    fetch_quota,
    list_offsets,
    produce,
    produce_quota,
)
from tests.proxy.session.another import Another
from tests.proxy.session.tenants import Connection, between, policy, run


def in_debt() -> Play:
    """Two seconds of it."""
    play = produce_quota()
    play.from_client(produce(1, 12 * KIB))
    return play


def charged(play: Play) -> float:
    return play.engine.resolve("ANONYMOUS", "app", PRODUCER, 1).recorded_total


@pytest.mark.parametrize("seen", [False, True], ids=["by the kernel", "by the loop"])
def test_a_request_whose_client_has_closed_is_dropped_and_charged_to_nobody(seen: bool) -> None:
    play = in_debt()
    waiting = Another(play)
    assert waiting.send(produce(2, 10)) == b""
    before = charged(play)
    waiting.client.finished = True
    if seen:
        waiting.session.client_finished()
    play.loop.advance(5_000)
    assert waiting.broker.take() == b""
    assert waiting.client.closed or not waiting.client.paused, "the end of the stream is still to be read"
    assert (charged(play), play.throttling.dropped) == (before, 1)
    assert waiting.session.closed is seen
    waiting.session.client_finished()
    assert waiting.session.closed


def test_acks_0_produces_of_closed_client_are_forwarded_others_dropped() -> None:
    play = in_debt()
    waiting = Another(play)
    silent = [produce(number, 10, acks=0) for number in range(3)]
    held = silent[0] + produce(5, 10) + silent[1] + list_offsets(6) + produce(7, 10) + silent[2]
    assert waiting.send(held) == b""
    waiting.client.finished = True
    play.loop.advance(20_000)
    assert waiting.broker.take() == b"".join(silent)
    assert play.throttling.dropped == 3


def test_a_client_that_sends_without_acks_and_closes_loses_nothing() -> None:
    play = in_debt()
    silent = [produce(number, 2 * KIB, acks=0) for number in range(20)]
    waiting = Another(play)
    assert waiting.send(b"".join(silent)) == b""
    waiting.client.finished = True
    waiting.session.client_finished()
    play.loop.advance(100_000)
    assert waiting.broker.take() == b"".join(silent)
    assert waiting.session.closed
    assert play.throttling.dropped == 0


def test_partial_produce_of_closed_client_is_not_forwarded_or_charged() -> None:
    play = in_debt()
    waiting = Another(play)
    assert waiting.send(produce(2, 5 * KIB)[:KIB]) == b""
    before = charged(play)
    waiting.client.finished = True
    play.loop.advance(5_000)
    assert waiting.broker.take() == b""
    assert waiting.session.closed
    assert (charged(play), play.throttling.dropped) == (before, 1)


def test_partial_acks_0_produce_of_closed_client_is_forwarded() -> None:
    play = in_debt()
    waiting = Another(play)
    request = produce(2, 5 * KIB, acks=0)
    assert waiting.send(request[:KIB]) == b""
    waiting.client.finished = True
    play.loop.advance(5_000)
    assert waiting.broker.take() == request[:KIB]
    assert waiting.send(request[KIB:]) == request[KIB:]


def test_broken_request_behind_dropped_produce_is_rejected_as_bad_header() -> None:
    play = in_debt()
    waiting = Another(play)
    broken = produce(3, 10)
    broken = broken[:12] + b"\x7f\xff" + broken[14:]  # a client-id that is longer than the request
    assert waiting.send(produce(2, 10) + broken) == b""
    waiting.client.finished = True
    play.loop.advance(5_000)
    assert waiting.session.closed
    assert [error.cause for _, error in play.rejected] == [Cause.BAD_HEADER]


def test_waiting_fetch_of_closed_client_is_dropped() -> None:
    play = fetch_quota()
    bound = play.engine.resolve("ANONYMOUS", "app", CONSUMER, 1)
    bound.owe(3_000, play.loop.now_ms)
    waiting = Another(play)
    assert waiting.send(fetch(1)) == b""
    waiting.client.finished = True
    play.loop.advance(4_000)
    assert (waiting.broker.take(), waiting.client.take(), play.throttling.dropped) == (b"", b"", 1)


@pytest.mark.parametrize("seen", [False, True], ids=["by the kernel", "by the loop"])
def test_an_answer_that_waits_while_its_client_closes_is_charged_to_nobody(seen: bool) -> None:
    """It was charged at its turn: clients that wait half a second for much, and leave, took the turns of all others."""
    play = fetch_quota()
    bound = play.engine.resolve("ANONYMOUS", "app", CONSUMER, 1)
    waiting = Another(play)
    assert waiting.send(fetch(1))
    play.loop.advance(300)
    assert bound.may_go(play.loop.now_ms) == play.loop.now_ms, "nothing is expected of it any more"
    bound.record(12 * KIB, play.loop.now_ms)
    bound.owe(3_000, play.loop.now_ms)
    before = bound.recorded_total
    waiting.session.answers.feed(fetch_answer(1, 2 * KIB), play.loop.now_ms)
    assert waiting.client.take() == b""
    waiting.client.finished = True
    if seen:
        waiting.session.client_finished()
        assert waiting.session.closed
    play.loop.advance(30_000)
    assert waiting.session.closed
    assert (bound.recorded_total, play.throttling.dropped, waiting.client.take()) == (before, 1, b"")


def test_impatient_clients_keep_nobody_from_a_patient_one() -> None:
    """Nineteen give up after half a second and come again: dead requests were .97 of the quota, the patient one's 0."""
    play = Play(policy=policy((Entity(client_id="app"), 50_000)))
    patient = Connection(play, "alice", size=40_000)
    impatient = [Impatient(play, "alice", size=40_000) for _ in range(19)]
    for _ in range(60):
        for connection in impatient:
            connection.give_up()
        run(play, [*impatient, patient], 0.5)
    fair = 50_000 / 20
    assert between([patient], 1_010_000, 1_030_000) / 20 >= fair


class Impatient(Connection):
    """Leaves, without a word to a proxy that does not read, when its request has not been answered."""

    def give_up(self) -> None:
        if self.waiting:
            self.client.finished = True
            self.session = self._connected()
