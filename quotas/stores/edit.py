"""Edits of a quota file's text: unchanged parts stay as their author wrote them, to the character.

Lines are added and removed, and numbers replaced, at the positions that the parser reports. So comments, order, quotes
and spacing are kept without special code; docs/decisions/0019 lists the alternatives. The caller must parse the result
before it is used.
"""

import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import groupby
from typing import Final

from config.nodes import Plain
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.stores.alteration import Limits
from quotas.stores.layout import Part, Parts, read_layout

_PLAIN: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.@/-]*[A-Za-z0-9_])?", re.ASCII)
_COMMENT: Final = re.compile(r"(?:^|(?<=\s))#[^\r\n]*")
_MOST: Final = 2.0**63
_LIMITS: Final = frozenset(kind.value for kind in QuotaKind)
_DIGITS: Final = 19
_DECIMALS: Final = 9
"""The most digits and decimals of a number in a quota file (``config.units``)."""


def number(limit: float) -> str | None:
    """Return a limit as written in a quota file; None if it cannot be."""
    if limit == _MOST:
        return str(2**63 - 1)  # the same number as a float, and the largest LONG
    if math.isinf(limit):
        return None
    whole, _, decimals = format(Decimal(repr(limit)), "f").partition(".")
    decimals = decimals.rstrip("0")
    if len(whole) > _DIGITS or len(decimals) > _DECIMALS:
        return None
    return f"{whole}.{decimals}" if decimals else whole


def written_name(name: str, *, in_quotes: bool = False) -> str:
    """Return a name as written in a quota file, in double quotes if necessary or requested."""
    if not in_quotes and _PLAIN.fullmatch(name) and not Plain(name).ambiguous:
        return name
    return f'"{"".join(map(_escaped, name))}"'


def edited(text: str, limits: Mapping[Entity, Mapping[QuotaKind, float]], wanted: Mapping[Entity, Limits]) -> str:
    """Return ``text``, which holds ``limits`` in that order, with the limits of ``wanted`` set or, if None, removed.

    An entity without limits is removed. Raises ValueError for a form that cannot be edited.
    """
    places = {entity: place for place, entity in enumerate(limits) if entity in wanted}
    return _Edit(text, {place: wanted[entity] for entity, place in places.items()}).edited(
        [(entity, each) for entity, each in wanted.items() if entity not in places]
    )


class _Edit:
    """The changes of one text, collected and then applied together."""

    def __init__(self, text: str, wanted: Mapping[int, Limits]) -> None:
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self.text = text if text.endswith("\n") else text + self.newline
        self.layout = read_layout(self.text, wanted)
        self.wanted = wanted
        self.changes: list[tuple[int, int, str]] = []

    def edited(self, newcomers: Sequence[tuple[Entity, Limits]]) -> str:
        gone: set[Part] = set()
        for place, limits in self.wanted.items():
            quota = self.layout.quotas.all[place]
            if quota.keys is not None and not self._change(quota.keys, limits):
                gone.add(quota)
        added = [[self._entity(entity), *self._limits(limits)] for entity, limits in newcomers]
        self._change_list(gone, [quota for quota in added if len(quota) > 1])
        return "".join(self._pieces())

    def _pieces(self) -> Iterable[str]:
        position = 0
        for start, end, replacement in sorted(self.changes, key=lambda change: change[:2]):
            if start < position:
                raise ValueError("two changes of the same place")
            yield self.text[position:start]
            yield replacement
            position = end
        yield self.text[position:]

    def _replace(self, start: int, end: int, replacement: str) -> None:
        self.changes.append((start, end, replacement))

    def _change(self, keys: Parts, limits: Limits) -> bool:
        """Change a quota. Returns False if it would keep no limit: then its terms are to go too."""
        there = {part.key: part for part in keys.all}
        if not there.keys() & _LIMITS - {*limits} and all(limit is None for limit in limits.values()):
            return False
        for kind, limit in limits.items():
            if limit is not None and (part := there.get(kind)):
                of_lines = self.text[part.value] in "|>"  # a block scalar ends with its last line
                self._replace(part.value, part.end, _number(limit) + (self.newline if of_lines else ""))
        gone = {there[kind] for kind, limit in limits.items() if limit is None and kind in there}
        self._remove(keys, gone)
        self._add(keys, gone, self._limits({kind: limit for kind, limit in limits.items() if kind not in there}))
        return True

    def _change_list(self, gone: set[Part], added: Sequence[Sequence[str]]) -> None:
        """Remove quotas, and add others, each as its keys and values."""
        quotas = self.layout.quotas
        if not (gone or added):
            return
        is_emptied = gone.issuperset(quotas.all)
        if is_emptied and quotas.is_flow:
            if added and not self.layout.root_in_braces and "\n" not in self.text[quotas.start : quotas.end]:
                self._replace(quotas.start, quotas.end, "")
                self._add_lines(quotas.end, 2, [self._in_lines(quota, 2) for quota in added])
            else:
                self._replace(quotas.start, quotas.end, f"[{', '.join(map(_in_braces, added))}]")
            return
        if is_emptied and not added:
            colon = self.text.index(":", self.layout.key_end) + 1
            self._replace(colon, colon, " []")
        self._remove(quotas, gone)
        if quotas.is_flow or self.text[quotas.all[-1].start] == "{":
            dash = "" if quotas.is_flow else "- "
            self._add(quotas, gone, [f"{dash}{_in_braces(quota)}" for quota in added])
        else:
            self._add(quotas, gone, [self._in_lines(quota, quotas.column) for quota in added])

    # ------------------------------------------------------------------------------------------------- lists and quotas

    def _remove(self, parts: Parts, gone: Container[Part]) -> None:
        """Remove parts. Comments around them stay, on lines of their own."""
        for before, run, after in _runs(parts.all, gone):
            before_key = self.text[self._line_of(run[0]) : run[0].start].strip() if run[0].key else ""
            if not (parts.is_flow or before_key):  # the first key of a quota may follow the dash
                for part in run:
                    self._replace(self._line_of(part), self._line_after(part.end), "")
                continue
            start = run[0].start if before is None else before.end
            end = after.start if before is None and after is not None else run[-1].end
            edges = [start, *(edge for part in run for edge in (part.start, part.end)), end]
            gaps = (self.text[begin:stop] for begin, stop in zip(edges[::2], edges[1::2], strict=True))
            lines = "".join(
                f"{each}{self.newline}{' ' * parts.column}" for gap in gaps for each in _COMMENT.findall(gap)
            )
            self._replace(start, end, f" {lines}" if lines and not self.text[start - 1].isspace() else lines)

    def _add(self, parts: Parts, gone: Container[Part], added: Sequence[str]) -> None:
        """Add parts after the last one that stays, or, if they are on lines, after the last one."""
        if not parts.is_flow:
            self._add_lines(parts.all[-1].end, parts.column, added)
            return
        space = self.text[parts.start + 1 : parts.all[0].start]
        comma = f",{space}" if space.isspace() else ", "
        where = [part for part in parts.all if part not in gone][-1].end
        self._replace(where, where, "".join(f"{comma}{each}" for each in added))

    def _add_lines(self, end: int, column: int, added: Sequence[str]) -> None:
        where = self._line_after(end)
        self._replace(where, where, "".join(f"{' ' * column}{each}{self.newline}" for each in added))

    def _line_of(self, part: Part) -> int:
        """Return the start of the first line of a part; of a quota, the line with its dash."""
        line = self.text.rfind("\n", 0, part.start) + 1
        if not part.key:
            dash = " " * self.layout.quotas.column + "-"
            while not self.text.startswith(dash, line):
                if not line:
                    raise ValueError("a list of quotas whose dashes do not begin lines")
                line = self.text.rfind("\n", 0, line - 1) + 1
        return line

    def _line_after(self, end: int) -> int:
        """Return the start of the line after one that ends at ``end``."""
        return self.text.index("\n", end - 1) + 1

    # ------------------------------------------------------------------------------------------------- what is written

    def _in_lines(self, quota: Sequence[str], column: int) -> str:
        return "- " + f"{self.newline}{' ' * (column + 2)}".join(quota)

    def _limits(self, limits: Limits) -> list[str]:
        return [f"{self._key(kind)}: {_number(limit)}" for kind, limit in limits.items() if limit is not None]

    def _entity(self, entity: Entity) -> str:
        default = f"{{{self._key('default')}: true}}"
        names = (
            f"{self._key(dimension)}: "
            + (written_name(name, in_quotes=self.layout.as_json) if isinstance(name, str) else default)
            for dimension, name in entity.as_data().items()
        )
        return f"{self._key('entity')}: {{{', '.join(names)}}}"

    def _key(self, key: str) -> str:
        return f'"{key}"' if self.layout.as_json else key


def _runs(parts: Sequence[Part], gone: Container[Part]) -> Iterator[tuple[Part | None, list[Part], Part | None]]:
    """Yield each run of removed neighbours, with the kept one before and the kept one after it."""
    runs = [(is_gone, list(run)) for is_gone, run in groupby(parts, gone.__contains__)]
    for place, (is_gone, run) in enumerate(runs):
        if is_gone:
            before = runs[place - 1][1][-1] if place else None
            after = runs[place + 1][1][0] if place + 1 < len(runs) else None
            yield before, run, after


def _in_braces(quota: Iterable[str]) -> str:
    return f"{{{', '.join(quota)}}}"


def _number(limit: float) -> str:
    written = number(limit)
    if written is None:
        raise ValueError(f"{limit} cannot be written")
    return written


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    return f"\\u{ord(character):04x}" if ord(character) < 0x10000 else f"\\U{ord(character):08x}"
