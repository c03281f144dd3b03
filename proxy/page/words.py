"""Numbers, times and names as the page shows them."""

from datetime import UTC, datetime
from math import isinf
from typing import Final

from proxy.runtime.names import shown
from quotas.kinds import BYTES, PERCENT, QuotaKind

UNKNOWN: Final = "–"  # noqa: RUF001  a dash
_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_MOST_OF_A_NAME: Final = 44
_KINDS: Final = {kind.value: kind.row for kind in QuotaKind}


def short(text: str) -> str:
    """Return a name without its middle, if it is long."""
    text, half = shown(text), _MOST_OF_A_NAME // 2
    return text if len(text) <= _MOST_OF_A_NAME else f"{text[:half]}…{text[-half:]}"


def kind(name: str | None) -> str:
    """Return the word of a quota kind: ``produce``."""
    return _KINDS[name].word if name in _KINDS else name or UNKNOWN


def rate(bytes_per_s: float | None) -> str:
    """``10.0 MiB/s``."""
    if bytes_per_s is None:
        return UNKNOWN
    index = 0
    while bytes_per_s >= 1024 * 0.9995 and index < len(_SIZES) - 1:
        bytes_per_s /= 1024
        index += 1
    return f"{bytes_per_s:.{0 if index == 0 or bytes_per_s >= 99.95 else 1}f} {_SIZES[index]}/s"


def amount(value: float | str | None, of_kind: str | None) -> str:
    """Return a rate or a limit in the unit of its kind: ``10.0 MiB/s``, ``50 %``, ``5 /s``."""
    if value is None or of_kind not in _KINDS:
        return UNKNOWN
    if isinf(number := float(value)):
        return "unlimited"
    unit = _KINDS[of_kind].unit
    if unit is BYTES:
        return rate(number)
    return f"{number:,.3g} %" if unit is PERCENT else f"{number:,.3g} /s"


def percent(share: float | None) -> str:
    """``83 %``, ``0.4 %``."""
    if share is None:
        return UNKNOWN
    if 0 < share < 0.001:
        return "< 0.1 %"
    return f"{share * 100:.{1 if 0 < share < 0.01 else 0}f} %"


def duration(ms: float | None) -> str:
    """``300 ms``, ``4.2 s``, ``3 min 20 s``, ``2 h 5 min``, ``3 d 4 h``."""
    if ms is None:
        return UNKNOWN
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 9_950:
        return f"{ms / 1000:.1f} s"
    whole = round(ms / 1000)
    for unit_s, unit, next_s, below in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit_s:
            rest = whole % unit_s // next_s
            return f"{whole // unit_s} {unit}" + (f" {rest} {below}" if rest else "")
    return f"{whole} s"


def moment(time: str | None) -> str:
    """``2026-03-01 12:00:05``, in UTC."""
    return UNKNOWN if time is None else f"{_parsed(time):%Y-%m-%d %H:%M:%S}"


def away(time: str | None, now: str) -> str:
    """Return how far a time is from ``now``, in either direction: ``3 min 20 s``."""
    return UNKNOWN if time is None else duration(abs((_parsed(time) - _parsed(now)).total_seconds()) * 1000)


def _parsed(time: str) -> datetime:
    return datetime.fromisoformat(time).astimezone(UTC)
