"""Sessions that would not end by themselves: idle ones, clients that read nothing, ends that went away unseen.

While an end is not read, its close is not noticed; while a client does not read, its broker is not read either. So
one job looks at every session now and then, and asks the kernel: nothing is counted where bytes are moved.
docs/architecture.md has the table of who is closed when.
"""

import asyncio
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final, Protocol, cast

import structlog

from config.settings import Limits
from proxy.edge.end import LINGER_S
from proxy.edge.kernel import Tcp
from proxy.edge.stats import Stats
from proxy.edge.transports import BrokerEnd, ClientEnd
from proxy.runtime.faults import contained
from proxy.runtime.tasks import every
from proxy.session.session import Session
from proxy.session.wires import Wire

log = structlog.get_logger("sluice.sessions")

ROUND_S = 5.0
"""How often every session is looked at."""
_SLICE: Final = 100
"""Sessions looked at in one turn of the loop, which takes well below a millisecond."""


class Ending(StrEnum):
    """Why a session was closed that would not have ended by itself: outcomes of ``sluice_connections_total``."""

    IDLE = "idle"
    UNREAD = "unread"
    LOST = "lost"


class Sessions(Protocol):
    """A listener, with the sessions made there."""

    @property
    def name(self) -> str: ...
    @property
    def sessions(self) -> set[Session]: ...


class Endings:
    """Looks at the sessions of ``listeners`` and closes those that are over."""

    def __init__(self, listeners: Sequence[Sessions], limits: Limits, stats: Stats, clock: Callable[[], int]) -> None:
        self._listeners = listeners
        self._idle_ms = round(limits.idle_s * 1000)
        self._unread_ms = round(limits.unread_s * 1000)
        self._linger_ms = round(LINGER_S * 1000)
        self._stats = stats
        self._clock = clock
        self._stalled: dict[Session, tuple[int, int]] = {}
        """Sessions whose clients did not take what was written at the last look: what they had taken, since when."""

    def watch(self) -> None:
        """Look at every session, round after round."""
        every(ROUND_S, self.look, "end sessions that are over")

    async def look(self) -> None:
        """Look at every session once."""
        before, self._stalled = self._stalled, {}
        sessions = [(listener.name, session) for listener in self._listeners for session in listener.sessions]
        for number, (name, session) in enumerate(sessions, 1):
            if not session.closed:
                contained(
                    "look at a session", self._look_at, name, session, before.get(session), otherwise=session.abort
                )
            if not number % _SLICE:
                await asyncio.sleep(0)

    def _look_at(self, name: str, session: Session, before: tuple[int, int] | None) -> None:
        now_ms = self._clock()
        client = cast("ClientEnd", session.client).look()
        if session.broker is not None:
            cast("BrokerEnd", session.broker).keep_alive()
        since_ms = now_ms
        if session.unread or client.is_lost:
            if before is not None and before[0] == client.acked_bytes:
                since_ms = before[1]
            self._stalled[session] = (client.acked_bytes, since_ms)
        ending = self._why_over(session, client, now_ms - since_ms)
        if ending is None:
            return
        self._stats.connections[name, ending.value] += 1
        log.debug("connection closed", listener=name, peer=session.peer, why=ending.value)
        session.close()
        if ending is Ending.UNREAD:
            cast("ClientEnd", session.client).abort()

    def _why_over(self, session: Session, client: Tcp, unread_ms: int) -> Ending | None:
        """Return why ``session`` is over, None if it is not. ``unread_ms``: its client took nothing for so long."""
        if client.is_lost:
            if not session.finished:
                return Ending.LOST
            return Ending.IDLE if unread_ms >= self._idle_ms else None  # what it sent before is still worked on
        if unread_ms >= self._unread_ms or (unread_ms >= self._linger_ms and _is_gone(session.broker)):
            return Ending.UNREAD
        if client.idle_ms >= self._idle_ms and (client.peer_finished or not session.held):
            return Ending.IDLE
        return None


def _is_gone(broker: Wire | None) -> bool:
    """Whether a broker has closed its side, which is not noticed while nobody reads what it sends."""
    return broker is not None and cast("BrokerEnd", broker).look().peer_finished
