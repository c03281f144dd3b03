"""Amounts, shares, times, names and tables as text for people, one form for each, in pages, commands and reports.

A program cannot read them back. Limits that may be pasted into a quota file or a command are written elsewhere: exact
numbers by ``quotas.stores.edit.number`` (quota files, `explain`, `recommend`); ``10MiB``, where that is exact, by
``proxy.manage.wording.plain``.
"""

from collections.abc import Iterator, Sequence
from math import isinf
from typing import Final

from quotas.kinds import BYTES, PERCENT, QuotaKind

_SIZES: Final = (" B", " KiB", " MiB", " GiB", " TiB", " PiB")
_COUNTS: Final = ("", " k", " M", " G", " T")
_KINDS: Final = {name: kind.row for kind in QuotaKind for name in (kind.value, kind.row.word)}
"""By their property names, and by their words in usage records."""


def size(bytes_: float) -> str:
    """``1023 B``, ``1.5 KiB``, ``10 MiB``, ``120 GiB``."""
    return _scaled(bytes_, 1024, _SIZES)


def rate(bytes_per_s: float) -> str:
    """``10 MiB/s``."""
    return f"{size(bytes_per_s)}/s"


def count(number: float) -> str:
    """``950``, ``12.3 k``, ``4 M``."""
    return _scaled(number, 1000, _COUNTS)


def amount(value: float | str, of_kind: str | None) -> str:
    """Return a rate or a limit in the unit of its kind: ``10 MiB/s``, ``12.5 %``, ``5 /s``; or ``no limit``."""
    if isinf(number := float(value)):
        return "no limit"
    unit = _KINDS[of_kind].unit if of_kind in _KINDS else None
    if unit is BYTES:
        return rate(number)
    return f"{number:{',.0f' if number >= 100 else '.3g'}} {'%' if unit is PERCENT else '/s'}"


def share(part: float) -> str:
    """``83 %``, ``5.2 %``, ``<0.1 %``, ``99.9 %``: 0 % and 100 % are exact."""
    if 0 < part < 0.001:
        return "<0.1 %"
    if 0.1 <= part < 0.9 or part >= 1:
        return f"{part * 100:,.0f} %"
    return f"{_short(min(part, 0.999) * 100)} %"


def duration(seconds: float) -> str:
    """``0 s``, ``<1 ms``, ``300 ms``, ``4.2 s``, ``48 s``, ``3 min 20 s``, ``2 h 5 min``, ``3 d 4 h``."""
    ms, whole = round(seconds * 1000), round(seconds)
    if not ms:
        return "<1 ms" if seconds else "0 s"
    if ms < 1000:
        return f"{ms} ms"
    if ms < 9_950:
        return f"{_short(seconds)} s"
    for unit_s, unit, next_s, below in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit_s:
            rest = whole % unit_s // next_s
            return f"{whole // unit_s} {unit}" + (f" {rest} {below}" if rest else "")
    return f"{whole} s"


def duration_of_ms(ms: float) -> str:
    """Return ``duration`` of milliseconds."""
    return duration(ms / 1000)


def kind_word(name: str) -> str:
    """Return the word of a quota kind: ``produce``."""
    return _KINDS[name].word if name in _KINDS else shown(name)


def shown(text: str) -> str:
    """Return a text with control characters, line ends and bidirectional controls escaped."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def shortened(text: str, most: int = 44) -> str:
    """Return a name as ``shown``, without its middle if it is long."""
    text, half = shown(text), (most - 1) // 2
    return text if len(text) <= most else f"{text[:half]}…{text[-half:]}"


def aligned(rows: Sequence[Sequence[str]], right: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield rows as aligned lines; the first is the header, columns named in ``right`` are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(rows[0], row, widths, strict=True)
        yield "  ".join(text.rjust(w) if name in right else text.ljust(w) for name, text, w in cells).rstrip()


def _scaled(number: float, step: int, units: Sequence[str]) -> str:
    index = 0
    while number >= step * 0.9995 and index < len(units) - 1:
        number /= step
        index += 1
    return f"{_short(number) if index and number < 99.95 else f'{number:.0f}'}{units[index]}"


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
