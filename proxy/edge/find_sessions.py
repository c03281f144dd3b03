"""Finds the open sessions of a client."""

import asyncio
from collections.abc import Iterable

from config.units import without_brackets
from proxy.edge.listeners import Listener
from proxy.runtime.tasks import SLICE
from proxy.session.session import Session


async def find(
    listeners: Iterable[Listener], user: str | None = None, client_id: str | None = None, peer: str | None = None
) -> list[Session]:
    """Return the open sessions of a user, of the client-id of their last request, and of a peer; None: of any."""
    wanted = None if peer is None else without_brackets(peer)
    found: list[Session] = []
    sessions = [session for listener in listeners for session in listener.sessions]
    for looked_at, session in enumerate(sessions, 1):
        if looked_at % SLICE == 0:
            await asyncio.sleep(0)
        of = session.identity
        if (
            not session.closed
            and (user is None or of.user == user)
            and (client_id is None or of.account.key.client_id == client_id)
            and (wanted is None or without_brackets(session.peer) == wanted)
        ):
            found.append(session)
    return found
