"""Numbers, times and names as text, and names as HTML that cannot be markup."""

from datetime import datetime, timedelta
from html import escape
from typing import Final

from quotas.kinds import BYTES, QuotaKind

_MOST_OF_A_NAME: Final = 44
_BYTES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_COUNTS: Final = ("", " k", " M", " G", " T")
NOBODY: Final = "(nobody yet)"
NO_CLIENT_ID: Final = "(no client-id)"
_KINDS: Final = {name: kind for kind in QuotaKind for name in (kind.value, kind.row.word)}
"""By their property names, and by their words in usage records."""


def plain(text: str) -> str:
    """Escape invisible characters, and those that turn the reading direction."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def name(text: str, most: int = _MOST_OF_A_NAME) -> str:
    """Return a name as HTML: a long one is cut in the middle, with the whole name as its title."""
    shown = plain(text)
    if len(shown) <= most:
        return f"<span class=name>{escape(shown)}</span>"
    half = (most - 1) // 2
    return f'<span class=name title="{escape(shown)}">{escape(shown[:half])}…{escape(shown[-half:])}</span>'


def client(user: str | None, client_id: str | None) -> str:
    """Return ``user / client-id`` of a client."""
    if user is None:
        return NOBODY
    return f"{user} / {client_id or NO_CLIENT_ID}"


def counter(user: str | None, client_id: str | None) -> str:
    """Return the names of a counter, those that play no role left out."""
    parts = [text for text in (user, client_id or (NO_CLIENT_ID if client_id == "" else None)) if text is not None]
    return " / ".join(parts) or "(everybody)"


def size(bytes_: float) -> str:
    return _scaled(bytes_, 1024, _BYTES, " ")


def rate(bytes_per_s: float) -> str:
    return f"{size(bytes_per_s)}/s"


def doing(kind: str) -> str:
    """Return what clients are doing under a quota kind: ``producing``."""
    return _KINDS[kind].row.doing


def unit_used(kind: str) -> str:
    """Return the unit of a quota kind in usage records: ``bytes``, ``µs of threads``, ``partitions``."""
    row = _KINDS[kind].row
    return row.columns.used.removeprefix(f"{row.word}_").replace("thread_us", "µs of threads")


def word(kind: str) -> str:
    """Return the word of a quota kind: ``produce``."""
    return _KINDS[kind].row.word


def limit(kind: str, most: float) -> str:
    """``10 MiB/s``, ``50 percent``, ``5 mutations/s``."""
    unit = _KINDS[kind].row.unit
    return rate(most) if unit is BYTES else f"{most:,.4g} {unit.rate.replace('_per_second', '/s')}"


def count(number: float) -> str:
    """``950``, ``12.3 k``, ``4 M``."""
    return _scaled(number, 1000, _COUNTS, "")


def counted(number: int, one: str, many: str | None = None) -> str:
    """``1 client``, ``2 clients``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def percent(share: float) -> str:
    """``12 %``, ``0.4 %``, ``< 0.1 %``: 0 % and 100 % are exact."""
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1:
        return "> 99.9 %"
    return f"{share * 100:.1f} %" if 0 < share < 0.1 or 0.9 < share < 1 else f"{share * 100:,.0f} %"


def duration(seconds: float) -> str:
    """``< 0.1 s``, ``0.4 s``, ``48 s``, ``3 min 20 s``, ``2 h 5 min``, ``3 d 4 h``."""
    if 0 < seconds < 0.05:
        return "< 0.1 s"
    if seconds < 10 and round(seconds, 1) != round(seconds):
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit_s, unit, next_s, below in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit_s:
            rest = whole % unit_s // next_s
            return f"{whole // unit_s} {unit}" + (f" {rest} {below}" if rest else "")
    return f"{whole} s"


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


def _scaled(number: float, step: int, units: tuple[str, ...], space: str) -> str:
    index = 0
    while abs(number) >= step * 0.9995 and index < len(units) - 1:
        number /= step
        index += 1
    digits = 0 if index == 0 or number >= 99.95 else 1
    text = f"{number:.{digits}f}"
    return f"{text.removesuffix('.0')}{space}{units[index]}"
