"""What a worker asks its supervisor about quotas: relayed, and never left without an end."""

import asyncio

import pytest
from structlog.testing import capture_logs

from protocol.client_quotas import Describing, describe_request
from protocol.errors import Cause, ProtocolError
from proxy.edge.quota_requests import MOST_BYTES_OF_OTHERS, QuotaRequests
from proxy.runtime import faults
from proxy.session.serving import LocalRequest
from tests.proxy.playbook import Play, request

pytestmark = pytest.mark.asyncio

REQUEST = LocalRequest(describe_request(Describing()).frame("tool", 1), "alice", "tool", "10.0.0.1:5")
WRONG = ProtocolError(Cause.BAD_BODY, "ends too early")


async def relayed(answer: bytes | Exception) -> list[bytes | ProtocolError | None]:
    """What the session is told; the answer takes a turn of the loop."""
    asked: list[tuple[bytes, str, str, str]] = []
    told: list[bytes | ProtocolError | None] = []
    over = asyncio.Event()

    async def ask(frame: bytes, user: str, client_id: str, peer: str) -> bytes:
        asked.append((frame, user, client_id, peer))
        await asyncio.sleep(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def done(said: bytes | ProtocolError | None) -> None:
        told.append(said)
        over.set()

    assert QuotaRequests(ask, ()).answer(REQUEST, done) is None
    assert told == []
    await over.wait()
    await asyncio.sleep(0)
    assert asked == [(REQUEST.frame, "alice", "tool", "10.0.0.1:5")]
    return told


async def test_an_answer_and_a_refusal_are_passed_on() -> None:
    assert await relayed(b"answer") == [b"answer"]
    assert await relayed(WRONG) == [WRONG]


async def test_failed_quota_request_closes_connection_and_is_counted() -> None:
    before = faults.counts["answer a quota request"]
    with capture_logs():
        assert await relayed(ZeroDivisionError()) == [None]
    assert faults.counts["answer a quota request"] == before + 1


class TestRequestSizeLimit:
    """On the wire: what is too long for its user ends with its first bytes, and nothing of it is kept."""

    ALTER = 49

    def play(self, *admins: str) -> Play:
        async def ask(frame: bytes, user: str, client_id: str, peer: str) -> bytes:
            raise AssertionError(user)

        return Play(answerers={self.ALTER: QuotaRequests(ask, admins)})

    async def test_long_alter_by_non_admin_closes_at_its_header(self) -> None:
        play = self.play("admin")
        play.from_client(request(self.ALTER, 0, 1, bytes(500_000))[:60])
        assert [error.cause for _, error in play.rejected] == [Cause.FRAME_TOO_LARGE]
        assert "quotas.admins" in str(play.rejected[0][1])
        assert play.session.closed

    async def test_long_alter_by_admin_is_accepted(self) -> None:
        play = self.play("ANONYMOUS")
        play.from_client(request(self.ALTER, 0, 1, bytes(500_000))[:60])
        assert play.rejected == []

    async def test_alter_by_non_admin_up_to_byte_limit_is_accepted(self) -> None:
        play = self.play()
        play.from_client(request(self.ALTER, 0, 1, bytes(MOST_BYTES_OF_OTHERS - 20))[:60])
        assert play.rejected == []
