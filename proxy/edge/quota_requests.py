"""Requests about quotas, as a worker answers them: it asks the supervisor, which has the store, and waits."""

from collections.abc import Awaitable, Callable, Collection
from typing import Final

from protocol.errors import ProtocolError
from proxy.runtime.tasks import spawn
from proxy.session.local_answers import Done, LocalRequest
from quotas.names import configured_as

Ask = Callable[[bytes, str, str, str], Awaitable[bytes]]
"""(request, size included; user; client-id; peer) → the whole answer. Raises ProtocolError for what is no request."""


MOST_BYTES: Final = 1 << 20
"""Some 8,000 quotas in one Alter."""
MOST_BYTES_OF_OTHERS: Final = 8 * 1024
"""Of who is no admin: enough for each entity to be refused by name. What is longer is not gathered."""


class QuotaRequests:
    """Has requests answered by ``ask``, one of each connection at a time. ``admins`` are users by their names."""

    def __init__(self, ask: Ask, admins: Collection[str]) -> None:
        self._ask = ask
        self._admins = frozenset(map(configured_as, admins))

    def most_bytes(self, user: str) -> int:
        return MOST_BYTES if user in self._admins else MOST_BYTES_OF_OTHERS

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
