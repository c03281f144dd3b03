"""Graceful shutdown: requests in flight are answered, idle sessions are closed one after the other."""

import asyncio
from collections.abc import Collection
from typing import Final

from proxy.runtime.clock import monotonic_s
from proxy.runtime.faults import contained
from proxy.session.session import Session

_SPREAD: Final = 0.5
"""The share of the drain time over which sessions are told to close, so that clients do not all reconnect at once."""
_STEP_S: Final = 0.05


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
