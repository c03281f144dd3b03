"""Whom the proxy takes the client of a connection for."""

import asyncio
from collections.abc import Iterable
from typing import TypedDict

from proxy.edge.listeners import Listener
from proxy.runtime.slices import SLICE
from quotas.entities import ANONYMOUS


class Identity(TypedDict):
    """Of one client connection: what its quotas are looked up by, and how that came to be known."""

    listener: str
    peer: str
    user: str
    authenticated: bool
    """The user was proved, by SASL or by a certificate; else it is ANONYMOUS."""
    mechanism: str | None
    """Of SASL, as the broker accepted it; None where there was none."""


async def identify(listeners: Iterable[Listener], peer: str) -> Identity | None:
    """Return who ``peer`` (``host:port``, as the proxy sees it) is, None if no such connection is open.

    Looks at every session, some at a time: for people who ask, not for programs that poll.
    """
    wanted = peer.replace("[", "").replace("]", "")
    looked_at = 0
    for listener in listeners:
        for session in list(listener.sessions):
            looked_at += 1
            if looked_at % SLICE == 0:
                await asyncio.sleep(0)
            if session.peer.replace("[", "").replace("]", "") == wanted and not session.closed:
                user = session.user
                return {
                    "listener": listener.name,
                    "peer": session.peer,
                    "user": user,
                    "authenticated": session.sasl.authenticated or user != ANONYMOUS,
                    "mechanism": session.sasl.mechanism,
                }
    return None
