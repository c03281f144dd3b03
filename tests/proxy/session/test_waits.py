"""What waits for its turn, and what a fault of ours does there. The law: test_crowds.py, test_hostile_peers.py."""

from unittest.mock import patch

import pytest
from structlog.testing import capture_logs

from proxy.runtime.faults import counts
from proxy.session import admission
from proxy.session.admission import Ended
from proxy.session.flow import TURN
from proxy.session.request_stream import RequestStream
from quotas.admission_queue import AdmissionQueue
from tests.proxy.playbook import (
    KIB,
    PRODUCER,
    Play,
    heartbeat,
    heartbeat_answer,
    produce,
    produce_answer,
    produce_quota,
    throttle_of,
)
from tests.proxy.session.another import Another


def in_debt() -> Play:
    """Two seconds of it."""
    play = produce_quota()
    play.from_client(produce(1, 12 * KIB))
    return play


def fail(*_: object) -> None:
    raise KeyError


@pytest.mark.uncompiled("the fault is put in place of a method")
def test_a_session_that_fails_at_its_turn_is_the_only_one_that_ends() -> None:
    play = in_debt()
    broken, fine = Another(play), Another(play)
    assert broken.send(produce(1, 10)) == fine.send(produce(2, 10)) == b""
    before = counts["turn"]
    go_on = RequestStream.go_on

    def fail_for_one(self: RequestStream, now_ms: int, wait: Ended | None = None) -> None:
        if self is broken.session.requests:
            raise KeyError
        go_on(self, now_ms, wait)

    with patch.object(RequestStream, "go_on", fail_for_one):
        play.loop.advance(5_000)
    assert counts["turn"] == before + 1
    assert broken.session.closed
    assert fine.broker.take() == produce(2, 10)
    later = Another(play)
    assert later.send(produce(3, 10)) == produce(3, 10)


@pytest.mark.uncompiled("the fault is put in place of a method")
def test_a_session_that_fails_after_others_had_their_turn_ends() -> None:
    play = produce_quota()
    before = counts["a session's turn"]
    with patch.object(play.session.requests.__class__, "go_on", fail):
        play.session.next_turn(TURN)
    assert counts["a session's turn"] == before + 1
    assert play.session.closed


@pytest.mark.uncompiled("a method of a compiled class is called directly, not as it is patched")
def test_a_line_that_cannot_be_dissolved_keeps_no_other_from_it() -> None:
    play = in_debt()
    waiting = Another(play)
    assert waiting.send(heartbeat(1)) == heartbeat(1)
    waiting.session.answers.feed(heartbeat_answer(1), play.loop.now_ms)
    assert waiting.send(produce(2, 10)) == b""
    before = counts["line"]
    with patch.object(AdmissionQueue, "dissolve", fail):
        play.throttling.reconsider()
    assert counts["line"] == before + 1
    play.loop.advance(3_000)
    assert waiting.broker.take() == produce(2, 10)


def test_claimed_bytes_behind_queue_do_not_delay_others() -> None:
    """Headers wait for their turn, and nothing comes behind them: others are told to wait for what is there."""
    play = in_debt()
    honest, *claims = [Another(play) for _ in range(11)]
    assert honest.send(produce(2, 12 * KIB)) == b""
    for claim in claims:
        assert claim.send(produce(1, 900 * KIB)[:100]) == b""
    play.loop.advance(2_100)
    assert honest.broker.take() == produce(2, 12 * KIB)
    owed_ms = play.engine.resolve("", "app", PRODUCER, 1).owed_ms(play.loop.now_ms)
    honest.session.answers.feed(produce_answer(2), play.loop.now_ms)
    assert owed_ms <= throttle_of(honest.client.take()) <= owed_ms + 1_100


def test_a_connection_tells_where_its_request_waits() -> None:
    play = in_debt()

    def described(connection: Another) -> str | None:
        return connection.session.ticket.describe(play.loop.now_ms)

    waiting = Another(play)
    assert waiting.send(produce(1, 10)) == b""
    play.loop.advance(500)
    assert described(waiting) == (
        "its request has waited 0.5 s for producer_byte_rate of client-id=app, number 1 of 1 in the queue, "
        "with 1.5 s of debt"
    )
    behind = Another(play)
    assert behind.send(produce(2, 10)) == b""
    assert "number 2 of 2 in the queue behind user=ANONYMOUS, client-id=app, " in (described(behind) or "")
    play.loop.advance(5_000)
    assert described(waiting) is None


@pytest.mark.uncompiled("a function is replaced inside")
def test_queue_of_waiting_request_is_in_debug_log() -> None:
    play = in_debt()
    with capture_logs() as logged, patch.object(admission, "is_debug", return_value=True):
        Another(play).send(produce(1, 10))
    assert [(line["event"], line["peer"]) for line in logged] == [("waits", "10.0.0.2:6")]
    assert logged[0]["request"].startswith("its request has waited 0.0 s for producer_byte_rate of client-id=app")
