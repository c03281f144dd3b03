"""The ceiling of a process's memory (``limits.memory``), and what is done when its resident set comes near.

| of the ceiling | what is done                                                                                  |
|----------------|-----------------------------------------------------------------------------------------------|
| 85 %           | unused memory is given back; if it stays above, new connections are refused until below 80 %  |
| 95 %           | the sessions with the largest buffers are closed, until 90 % are left                         |

Each session is bounded by itself (``HIGH_WATER_BYTES``, ``limits.gathered``): this is for very many of them.
"""

import ctypes
import os
from collections.abc import Callable, Iterable
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple, cast

import structlog

from protocol.errors import Cause, ProtocolError
from proxy.edge.wires import AsyncioWire
from proxy.runtime.faults import contained
from proxy.runtime.tasks import every
from proxy.session.flow import CLIENT
from proxy.session.session import Session

log = structlog.get_logger("sluice.memory")

_REFUSED_FROM: Final = 0.85
_ACCEPTED_BELOW: Final = 0.80
_CLOSED_FROM: Final = 0.95
_CLOSED_UNTIL: Final = 0.90
_LEAST_BYTES: Final = 32 * 1024
"""A session that buffers less is not closed: that would free next to nothing."""
_NEAR: Final = 0.5
_LOOK_EVERY_S: Final = {False: 0.1, True: 0.01}
"""Whether the ceiling is near → when to look again: sessions may take hundreds of megabytes a second. A look takes
30 µs.
"""
_IN_VAIN_S: Final = 0.5
"""The pause after a look that found nothing to close: with very many small sessions each look would take long."""

_STATM: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_give_back: Final = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)
"""A function of glibc: without it, memory that is free between pieces in use stays in the resident set."""


class Verdict(NamedTuple):
    """The measures at so much memory."""

    refuses: bool
    """New connections are refused."""
    excess_bytes: int
    """Sessions with so much in their buffers are closed."""


def judge(used_bytes: int, ceiling_bytes: int, *, refuses: bool) -> Verdict:
    """Return what happens at so much memory; ``refuses``: new connections are refused already."""
    share = used_bytes / ceiling_bytes
    excess_bytes = used_bytes - int(_CLOSED_UNTIL * ceiling_bytes) if share >= _CLOSED_FROM else 0
    return Verdict(share >= (_ACCEPTED_BELOW if refuses else _REFUSED_FROM), excess_bytes)


def resident_bytes() -> int:
    return int(_STATM.read_bytes().split()[1]) * _PAGE_BYTES


class MemoryCeiling:
    """Holds a worker below ``ceiling_bytes``, if it has such a ceiling. ``sessions`` returns the open ones."""

    def __init__(self, ceiling_bytes: int | None, sessions: Callable[[], Iterable[Session]]) -> None:
        self.ceiling_bytes = ceiling_bytes
        self._sessions = sessions
        self.used_bytes = 0
        """As of the last look."""
        self.refuses = False
        """New connections are refused."""
        self._in_vain = False
        """More was in use than may be, and no session had large buffers."""

    def watch(self) -> None:
        if self.ceiling_bytes is not None:
            every(self._pause_s, self.look, "hold memory below its ceiling")

    def tidy(self) -> None:
        """Give back what became free since new connections are refused: it is what ends that."""
        if self.refuses:
            _give_back(0)

    @property
    def why_not_ready(self) -> str | None:
        return "new connections are refused until less is in use: limits.memory" if self.refuses else None

    def look(self) -> None:
        if self._judge() != (self.refuses, 0):
            _give_back(0)
        refuses, excess_bytes = self._judge()
        if refuses is not self.refuses:
            self.refuses = refuses
            said = "memory is short: new connections are refused" if refuses else "memory suffices again"
            log.warning(said, used_bytes=self.used_bytes, ceiling_bytes=self.ceiling_bytes)
        self._in_vain = excess_bytes > 0 and not self._close_largest(excess_bytes)

    def _judge(self) -> Verdict:
        assert self.ceiling_bytes is not None  # noqa: S101  for mypy: else nobody looks
        self.used_bytes = resident_bytes()
        return judge(self.used_bytes, self.ceiling_bytes, refuses=self.refuses)

    def _pause_s(self) -> float:
        if self._in_vain:
            return _IN_VAIN_S
        return _LOOK_EVERY_S[self.ceiling_bytes is not None and self.used_bytes > _NEAR * self.ceiling_bytes]

    def _close_largest(self, excess_bytes: int) -> bool:
        """Close sessions with so much in their buffers; return whether any was closed."""
        found = False
        sizes = ((buffered_bytes(session), session) for session in self._sessions() if not session.closed)
        for size, session in sorted(sizes, key=itemgetter(0), reverse=True):
            if excess_bytes <= 0 or size < _LEAST_BYTES:
                break
            found = True
            said = f"memory is short (limits.memory), and this connection's buffers of {size} bytes are the largest"
            contained("close a large session", session.reject, CLIENT, ProtocolError(Cause.MEMORY, said))
            contained("close a large session", session.abort)
            excess_bytes -= size
        return found


def buffered_bytes(session: Session) -> int:
    """Return how much a session holds that is not sent, or not whole, in either direction."""
    wires = cast("list[AsyncioWire]", [each for each in (session.client, session.broker) if each is not None])
    held = session.requests.splitter.held_bytes + session.answers.splitter.held_bytes
    return held + sum(each.unsent_bytes for each in wires)
