"""Internal errors: contained, counted, and logged once a minute.

Expected failures have their own exceptions and are handled where they occur. This is for unexpected ones: a callback
that raises must not take other work down with it, nor end a job for the life of the process.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar, TypeVarTuple

import structlog

from proxy.runtime.clock import now_ms
from proxy.runtime.log_lines import LineLimit

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

log = structlog.get_logger("sluice.faults")

counts: Final[Counter[str]] = Counter()
"""Errors since startup, by place in the program."""

_lines: Final[LineLimit[str]] = LineLimit()
"""A fault on the data path may recur with every request."""


def report(where: str, error: BaseException) -> None:
    """Count ``error``, and log it with its traceback unless the same place was logged just now. ``where`` is a metric
    label.
    """
    counts[where] += 1
    repeated = _lines.admit(where, "others", now_ms())
    if repeated is not None:
        with suppress(Exception):  # a failing repr must not undo the containment
            log.error("internal error", where=where, repeated=repeated, exc_info=error)


def contained(
    where: str, call: Callable[[*Ts], T], *args: *Ts, otherwise: Callable[[], object] | None = None
) -> T | None:
    """Return the result of ``call``; None, with the fault reported, if it raises.

    ``otherwise`` is then called, contained too: it cuts off the one session that the call was about.
    """
    try:
        return call(*args)
    except Exception as error:  # noqa: BLE001  all errors are contained here
        report(where, error)
    if otherwise is not None:
        contained(where, otherwise)
    return None
