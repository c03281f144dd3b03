"""Requests about quotas, as a worker answers them: it asks the supervisor, which has the store, and waits."""

from collections.abc import Awaitable, Callable
from typing import Final

from protocol.errors import ProtocolError
from proxy.runtime.tasks import spawn
from proxy.session.local_answers import Done, LocalRequest

Ask = Callable[[bytes, str, str, str], Awaitable[bytes]]
"""(request, size included; user; client-id; peer) → the whole answer. Raises ProtocolError for what is no request."""


class QuotaRequests:
    """Has requests answered by ``ask``, one of each connection at a time."""

    most_bytes: Final = 1 << 20
    """Some 8,000 quotas in one Alter."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def answer(self, request: LocalRequest, done: Done) -> bytes | None:
        spawn(self._relay(request, done), "answer a request about quotas")
        return None

    async def _relay(self, request: LocalRequest, done: Done) -> None:
        try:
            answer = await self._ask(request.frame, request.user, request.client_id, request.peer)
        except ProtocolError as refusal:
            done(refusal)
        except BaseException:  # and where the worker stops: a client is never left waiting
            done(None)
            raise
        else:
            done(answer)
