"""The open sessions of all listeners: found by their client, drained, and closed when they would not end by themselves.

While a connection is paused, its close goes unnoticed; while a client does not read, its broker is paused too. So a job
asks the kernel about every session now and then, and the data path counts nothing for it. docs/architecture.md has the
table of timeouts.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import StrEnum
from typing import Final, cast

import structlog

from config.settings import Limits
from config.units import without_brackets
from proxy.edge.kernel import TcpState
from proxy.edge.listeners import Listener
from proxy.edge.stats import Stats
from proxy.edge.wires import LINGER_S, BrokerWire, ClientWire
from proxy.runtime.clock import monotonic_s
from proxy.runtime.faults import contained
from proxy.runtime.tasks import every, in_slices
from proxy.session.session import Session

log = structlog.get_logger("sluice.sessions")

ROUND_S = 5.0
"""Interval between looks at every session."""
_SPREAD: Final = 0.5
"""The share of the drain time over which sessions are told to close, so that clients do not all reconnect at once."""
_STEP_S: Final = 0.05


class CloseReason(StrEnum):
    """The reason why a session was closed: an outcome of ``sluice_connections_total``."""

    IDLE = "idle"
    UNREAD = "unread"
    LOST = "lost"


async def find(
    listeners: Iterable[Listener], user: str | None = None, client_id: str | None = None, peer: str | None = None
) -> list[Session]:
    """Return the open sessions of a user, of the client-id of their last request, and of a peer; None: of any."""
    wanted = None if peer is None else without_brackets(peer)

    def is_meant(session: Session) -> bool:
        return (
            not session.closed
            and user in (None, session.identity.user)
            and client_id in (None, session.identity.account.key.client_id)
            and wanted in (None, without_brackets(session.peer))
        )

    sessions = [session for listener in listeners for session in listener.sessions]
    found = await in_slices(session if is_meant(session) else None for session in sessions)
    return [session for session in found if session is not None]


async def drain(sessions: Collection[Session], timeout_s: float) -> int:
    """Close every session after its last answer; return how many were cut off at the deadline."""
    deadline_s = monotonic_s() + timeout_s
    waiting = list(sessions)
    step_s = min(_STEP_S, timeout_s * _SPREAD / max(len(waiting), 1))
    for session in waiting:
        if session.closed:  # by its client, before its turn
            continue
        contained("drain a session", session.drain, otherwise=session.abort)
        await asyncio.sleep(step_s)
    while (left := [session for session in waiting if not session.closed]) and monotonic_s() < deadline_s:
        await asyncio.sleep(min(_STEP_S, max(0.0, deadline_s - monotonic_s())))
        for session in left:
            contained("drain a session", session.drain, otherwise=session.abort)
    for session in left:
        contained("cut a session off", session.abort)
    return len(left)


class SessionReaper:
    """Closes the sessions of ``listeners`` that are over."""

    def __init__(self, listeners: Sequence[Listener], limits: Limits, stats: Stats, clock: Callable[[], int]) -> None:
        self._listeners = listeners
        self._idle_ms = round(limits.idle_s * 1000)
        self._unread_ms = round(limits.unread_s * 1000)
        self._linger_ms = round(LINGER_S * 1000)
        self._stats = stats
        self._clock = clock
        self._stalled: dict[Session, tuple[int, int]] = {}
        """Sessions with unread output at the last look → (bytes that their client had acknowledged, since when)."""

    def watch(self) -> None:
        every(ROUND_S, self.look, "end sessions that are over")

    async def look(self) -> None:
        before, self._stalled = self._stalled, {}
        sessions = [(listener.name, session) for listener in self._listeners for session in listener.sessions]
        await in_slices(
            contained("look at a session", self._look_at, name, session, before.get(session), otherwise=session.abort)
            for name, session in sessions
            if not session.closed
        )

    def _look_at(self, name: str, session: Session, before: tuple[int, int] | None) -> None:
        now_ms = self._clock()
        client = cast("ClientWire", session.client).look()
        if session.broker is not None:
            cast("BrokerWire", session.broker).keep_alive()
        since_ms = now_ms
        if session.unread or client.is_lost:
            if before is not None and before[0] == client.acked_bytes:
                since_ms = before[1]
            self._stalled[session] = (client.acked_bytes, since_ms)
        reason = self._why_over(session, client, now_ms - since_ms)
        if reason is None:
            return
        self._stats.connections[name, reason.value] += 1
        log.debug("connection closed", listener=name, peer=session.peer, why=reason.value)
        session.close()
        if reason is CloseReason.UNREAD:
            cast("ClientWire", session.client).abort()

    def _why_over(self, session: Session, client: TcpState, unread_ms: int) -> CloseReason | None:
        """Return why ``session`` is over, or None. ``unread_ms``: how long its client has read nothing."""
        if client.is_lost:
            if not session.finished:
                return CloseReason.LOST
            return CloseReason.IDLE if unread_ms >= self._idle_ms else None  # earlier requests are still worked on
        broker = cast("BrokerWire | None", session.broker)
        # That a broker has closed its side goes unnoticed while its connection is paused.
        is_gone = unread_ms >= self._linger_ms and broker is not None and broker.look().peer_finished
        if is_gone or unread_ms >= self._unread_ms:
            return CloseReason.UNREAD
        if client.idle_ms >= self._idle_ms and (client.peer_finished or not session.held):
            return CloseReason.IDLE
        return None
