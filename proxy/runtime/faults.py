"""Faults of our own, where no neighbour may suffer from them: contained, counted, and logged once a minute.

What is expected to fail has an error of its own and is handled where it happens. This is for what nobody expected: a
callback that raises must not take along what else was due, nor a job end for the life of the process.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar, TypeVarTuple

import structlog

from proxy.runtime.clock import now_ms

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

INTERVAL_MS: Final = 60_000
"""Between two lines about the same place: a fault on the data path may come with every request."""

log = structlog.get_logger("sluice.faults")

counts: Final[Counter[str]] = Counter()
"""By the place in the program, since the start of the process."""

_quiet_until_ms: Final[dict[str, int]] = {}
_unsaid: Final[Counter[str]] = Counter()


def note(where: str, error: BaseException) -> None:
    """Count ``error``, and log it with its traceback unless it is one of many. ``where``: one of few, it is a label."""
    counts[where] += 1
    at_ms = now_ms()
    if at_ms < _quiet_until_ms.get(where, at_ms):
        _unsaid[where] += 1
        return
    _quiet_until_ms[where] = at_ms + INTERVAL_MS
    with suppress(Exception):  # a text that cannot be made must not undo what is contained here
        log.error("internal error", where=where, repeated=_unsaid.pop(where, 0), exc_info=error)


def contained(
    where: str, call: Callable[[*Ts], T], *args: *Ts, otherwise: Callable[[], object] | None = None
) -> T | None:
    """Return what ``call`` returns; None, with the fault noted, where it raises.

    ``otherwise`` is then called, contained too: it cuts off the one session that the call was about.
    """
    try:
        return call(*args)
    except Exception as error:  # noqa: BLE001  that nothing gets past is what this is for
        note(where, error)
    if otherwise is not None:
        contained(where, otherwise)
    return None
