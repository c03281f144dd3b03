"""Looks up open client connections: the user, the login and the waiting request of one, and all of a client."""

import asyncio
from collections.abc import Iterable
from typing import TypedDict

from proxy.edge.listeners import Listener
from proxy.runtime.slices import SLICE
from proxy.session.session import Session
from quotas.entities import ANONYMOUS


class Identity(TypedDict):
    """The identity of one client connection, by which its quotas are looked up, and how it was established."""

    listener: str
    peer: str
    user: str
    authenticated: bool
    """The user was proved, by SASL or by a certificate; if not, it is ANONYMOUS."""
    mechanism: str | None
    """The SASL mechanism that the broker accepted; None without SASL."""
    waits: str | None
    """The request that waits in a counter's queue, and for which quota; None if none does."""


async def identify(listeners: Iterable[Listener], peer: str) -> Identity | None:
    """Return the identity of ``peer`` (``host:port``, as the proxy sees it), None if there is no such connection.

    Scans every session in slices: meant for people, not for programs that poll.
    """
    for listener in listeners:
        for session in await find([listener], peer=peer):
            user = session.identity.user
            return {
                "listener": listener.name,
                "peer": session.peer,
                "user": user,
                "authenticated": session.sasl.authenticated or user != ANONYMOUS,
                "mechanism": session.sasl.mechanism,
                "waits": session.waits,
            }
    return None


async def find(
    listeners: Iterable[Listener], user: str | None = None, client_id: str | None = None, peer: str | None = None
) -> list[Session]:
    """Return the open sessions of a user, of the client-id of their last request, and of a peer; None: of any."""
    wanted = None if peer is None else _without_brackets(peer)
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
            and (wanted is None or _without_brackets(session.peer) == wanted)
        ):
            found.append(session)
    return found


def _without_brackets(peer: str) -> str:
    return peer.replace("[", "").replace("]", "")
