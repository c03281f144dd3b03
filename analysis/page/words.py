"""Clients and times as the reports name them."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from quotas.kinds import QuotaKind

NOBODY: Final = "(nobody yet)"
NO_CLIENT_ID: Final = "(no client-id)"
_KINDS: Final = {name: kind for kind in QuotaKind for name in (kind.value, kind.row.word)}
"""By their property names, and by their words in usage records."""


def client(user: str | None, client_id: str | None) -> str:
    """Return ``user / client-id`` of a client."""
    if user is None:
        return NOBODY
    return f"{user} / {client_id or NO_CLIENT_ID}"


def counter(user: str | None, client_id: str | None) -> str:
    """Return the names of a counter, those that play no role left out."""
    parts = [text for text in (user, client_id or (NO_CLIENT_ID if client_id == "" else None)) if text is not None]
    return " / ".join(parts) or "(everybody)"


def doing(kind: str) -> str:
    """Return what clients are doing under a quota kind: ``producing``."""
    return _KINDS[kind].row.doing


def unit_used(kind: str) -> str:
    """Return the unit of a quota kind in usage records: ``bytes``, ``µs of threads``, ``partitions``."""
    row = _KINDS[kind].row
    return row.columns.used.removeprefix(f"{row.word}_").replace("thread_us", "µs of threads")


def counted(number: int, one: str, many: str | None = None) -> str:
    """``1 client``, ``2 clients``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def any_of(said: Sequence[str]) -> str:
    """``producing, consuming or connecting``."""
    return " or ".join(filter(None, (", ".join(said[:-1]), said[-1])))


def moment(time: datetime, *, of: timedelta | None = None) -> str:
    """Return a time in its zone; for a tick of a plot of length ``of``, only the part that differs between ticks."""
    if of is None:
        return f"{time:%Y-%m-%d %H:%M:%S}"
    if of >= timedelta(days=3):
        return f"{time:%b %d}"
    return f"{time:%H:%M}" if of >= timedelta(hours=1) else f"{time:%H:%M:%S}"


def from_to(begin: datetime, end: datetime) -> str:
    """``2026-03-01 12:00 to 13:00``: the second date only if it differs."""
    form = "%H:%M" if begin.second == end.second == 0 else "%H:%M:%S"
    last = end.strftime(form) if begin.date() == end.date() else end.strftime(f"%Y-%m-%d {form}")
    return f"{begin.strftime(f'%Y-%m-%d {form}')} to {last}"
