"""Looks up the user, the login and the waiting request of an open client connection."""

import asyncio
from collections.abc import Iterable
from typing import TypedDict

from proxy.edge.listeners import Listener
from proxy.runtime.slices import SLICE
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
    wanted = peer.replace("[", "").replace("]", "")
    looked_at = 0
    for listener in listeners:
        for session in list(listener.sessions):
            looked_at += 1
            if looked_at % SLICE == 0:
                await asyncio.sleep(0)
            if session.peer.replace("[", "").replace("]", "") == wanted and not session.closed:
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
