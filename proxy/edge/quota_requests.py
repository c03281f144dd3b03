"""Describe and Alter of client quotas in a worker: relayed to the supervisor, which owns the quota store."""

from collections.abc import Awaitable, Callable, Collection
from typing import Final

from protocol.client_quotas import ALTER
from protocol.errors import ProtocolError
from proxy.runtime.tasks import spawn
from proxy.session.serving import Done, LocalRequest
from quotas.names import configured_as

Ask = Callable[[bytes, str, str, str], Awaitable[bytes]]
"""(request with its size, user, client-id, peer) → the complete answer. Raises ProtocolError if the request is
malformed."""


MOST_BYTES: Final = 1 << 20
"""Largest request of an admin: some 8,000 quotas in one Alter."""
MOST_BYTES_OF_OTHERS: Final = 8 * 1024
"""Largest request of any other user: enough to refuse each entity by name. A longer one is not buffered."""


class QuotaRequests:
    """Relays requests to ``ask``, one per connection at a time. ``admins``: user names."""

    def __init__(self, ask: Ask, admins: Collection[str]) -> None:
        self._ask = ask
        self._admins = frozenset(map(configured_as, admins))

    def most_bytes(self, api_key: int, user: str) -> int:
        """Return the longest request, as ``Answerer``. Users who may not see the proxy's quotas see the broker's, if
        it allows that (docs/decisions/0048). All may be told that they may not change them.
        """
        if user in self._admins:
            return MOST_BYTES
        return MOST_BYTES_OF_OTHERS if api_key == ALTER else 0

    def answer(self, request: LocalRequest, done: Done) -> bytes | None:
        spawn(self._relay(request, done), "answer a quota request")
        return None

    async def _relay(self, request: LocalRequest, done: Done) -> None:
        try:
            answer = await self._ask(request.frame, request.user, request.client_id, request.peer)
        except ProtocolError as refusal:
            done(refusal)
        except BaseException:  # also when the worker stops: a client never waits in vain
            done(None)
            raise
        else:
            done(answer)
