"""Edits of a quota file's text: unchanged parts stay as their author wrote them, to the character.

Lines are added and removed, and numbers replaced, at the positions that the parser reports. So comments, order, quotes
and spacing are kept without special code; docs/decisions/0019 lists the alternatives. The caller must parse the result
before it is used.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import chain, groupby
from typing import Final, TypeVar

from config.nodes import Plain
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.stores.alteration import Limits
from quotas.stores.layout import Item, KeyValue, Span, end_of_brackets, read_layout

_PLAIN: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.@/-]*[A-Za-z0-9_])?", re.ASCII)
_COMMENT: Final = re.compile(r"(?:^|(?<=\s))#[^\r\n]*")
_MOST: Final = 2.0**63
_LIMITS: Final = frozenset(kind.value for kind in QuotaKind)
_DIGITS: Final = 19
_DECIMALS: Final = 9
"""The most digits and decimals of a number in a quota file (``config.units``)."""

_T = TypeVar("_T")


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
        gone = {
            place for place, limits in self.wanted.items() if not self._left(self.layout.items[place].pairs, limits)
        }
        for place, limits in self.wanted.items():
            if place not in gone:
                self._change(self.layout.items[place], limits)
        added = [(entity, {k: v for k, v in limits.items() if v is not None}) for entity, limits in newcomers]
        self._change_list(gone, [(entity, limits) for entity, limits in added if limits])
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

    # ------------------------------------------------------------------------------------------------- one quota

    @staticmethod
    def _left(pairs: Sequence[KeyValue], limits: Limits) -> bool:
        """Whether a quota keeps any limit: its terms are removed with the last one."""
        kept = {pair.key for pair in pairs} & _LIMITS - {str(kind) for kind in limits}
        return bool(kept) or any(limit is not None for limit in limits.values())

    def _change(self, item: Item, limits: Limits) -> None:
        there = {pair.key: pair for pair in item.pairs}
        added = []
        for kind, limit in limits.items():
            if limit is None:
                continue
            pair = there.get(kind.value)
            if pair is None:
                added.append((kind, limit))
            else:
                of_lines = self.text[pair.value.start] in "|>"  # a block scalar ends with its last line
                self._replace(pair.value.start, pair.end, _number(limit) + (self.newline if of_lines else ""))
        gone = {kind.value for kind, limit in limits.items() if limit is None}
        kept = [pair for pair in item.pairs if pair.key not in gone]
        for before, run, after in _runs(item.pairs, lambda pair: pair.key in gone):
            if not item.in_braces:
                self._cut_lines(run, after, item.column)
                continue
            start = before.end if before is not None else run[0].start
            end = after.start if before is None and after is not None else run[-1].end
            self._cut(start, end, Span(start, end), item.column + 1)
        if item.in_braces:
            pairs = "".join(f", {self._key(kind.value)}: {_number(limit)}" for kind, limit in added)
            self._replace(kept[-1].end, kept[-1].end, pairs)
        else:
            where, indent = self._line_after(kept[-1].end), " " * item.column
            lines = (f"{indent}{kind}: {_number(limit)}{self.newline}" for kind, limit in added)
            self._replace(where, where, "".join(lines))

    def _cut_lines(self, run: Sequence[KeyValue], after: KeyValue | None, column: int) -> None:
        """Remove keys on lines of their own; the first key of a quota follows its dash."""
        start = self._line_of(run[0].start)
        if self.text[start : run[0].start].isspace() or start == run[0].start:
            # Comments between the lines belong to no quota, and stay.
            for pair in run:
                self._replace(self._line_of(pair.start), self._line_after(pair.end), "")
        elif after is not None:
            between = (
                f"{comment}{self.newline}{' ' * column}" for comment in self._comments(run[0].start, after.start)
            )
            self._replace(run[0].start, after.start, "".join(between))

    def _cut(self, start: int, end: int, of_comments: Span, column: int) -> None:
        """Remove a part of brackets or braces, keeping comments in ``of_comments`` on lines of their own."""
        comments = self._comments(of_comments.start, of_comments.end)
        indent = f"{self.newline}{' ' * column}"
        self._replace(start, end, " " * bool(comments) + "".join(f"{comment}{indent}" for comment in comments))

    def _comments(self, start: int, end: int) -> list[str]:
        """Return the comments in a stretch whose only names are those of limits."""
        return _COMMENT.findall(self.text[start:end])

    # ------------------------------------------------------------------------------------------------- the list

    def _change_list(self, gone: set[int], added: Sequence[tuple[Entity, Limits]]) -> None:
        layout = self.layout
        kept = [item for place, item in enumerate(layout.items) if place not in gone]
        if layout.in_brackets:
            self._change_brackets(gone, kept, added)
            return
        for place in gone:
            item = layout.items[place]
            self._replace(self._dash_line(item), self._line_after(item.span.end), "")
        if added:
            last = layout.items[-1]
            where = self._line_after(last.span.end)
            self._replace(where, where, self._lines(added, layout.column, in_braces=last.in_braces))
        elif not kept:
            colon = self.text.index(":", layout.key.end) + 1
            self._replace(colon, colon, " []")

    def _change_brackets(self, gone: set[int], kept: Sequence[Item], added: Sequence[tuple[Entity, Limits]]) -> None:
        layout = self.layout
        if not gone and not added:
            return
        end = end_of_brackets(self.text, layout)
        if not kept:
            if added and not layout.root_in_braces and "\n" not in self.text[layout.span.start : end]:
                self._replace(layout.span.start, end, "")
                where = self._line_after(end)
                self._replace(where, where, self._lines(added, 2, in_braces=False))
            else:
                self._replace(layout.span.start, end, f"[{', '.join(self._in_braces(added))}]")
            return
        stay = {id(item) for item in kept}
        for before, run, after in _runs(layout.items, lambda item: id(item) not in stay):
            first, last = run[0].span.start, run[-1].span.end
            if before is not None:
                self._cut(before.span.end, last, Span(before.span.end, first), layout.items[0].column)
            elif after is not None:
                self._cut(first, after.span.start, Span(last, after.span.start), layout.items[0].column)
        space = self.text[layout.span.start + 1 : layout.items[0].span.start]
        comma = f",{space}" if space and space.isspace() else ", "
        where = kept[-1].span.end
        self._replace(where, where, "".join(f"{comma}{each}" for each in self._in_braces(added)))

    def _lines(self, added: Iterable[tuple[Entity, Limits]], column: int, *, in_braces: bool) -> str:
        indent = " " * column
        if in_braces:
            lines: Iterable[str] = (f"{indent}- {each}" for each in self._in_braces(added))
        else:
            lines = chain.from_iterable(
                (
                    f"{indent}- {self._key('entity')}: {self._entity(entity)}",
                    *(f"{indent}  {self._key(kind.value)}: {_number(limit)}" for kind, limit in limits.items()),
                )
                for entity, limits in added
            )
        return "".join(f"{line}{self.newline}" for line in lines)

    def _in_braces(self, added: Iterable[tuple[Entity, Limits]]) -> list[str]:
        return [
            f"{{{self._key('entity')}: {self._entity(entity)}, "
            + ", ".join(f"{self._key(kind.value)}: {_number(limit)}" for kind, limit in limits.items())
            + "}"
            for entity, limits in added
        ]

    def _entity(self, entity: Entity) -> str:
        names = {"user": entity.user, "client-id": entity.client_id, "ip": entity.ip}
        default = f"{{{self._key('default')}: true}}"
        return (
            "{"
            + ", ".join(
                f"{self._key(dimension)}: {default if isinstance(name, Default) else self._name(str(name))}"
                for dimension, name in names.items()
                if name is not None
            )
            + "}"
        )

    def _key(self, key: str) -> str:
        return f'"{key}"' if self.layout.as_json else key

    def _name(self, name: str) -> str:
        return written_name(name, in_quotes=self.layout.as_json)

    # ------------------------------------------------------------------------------------------------- lines

    def _line_of(self, position: int) -> int:
        return self.text.rfind("\n", 0, position) + 1

    def _line_after(self, end: int) -> int:
        """Return the start of the line after one that ends at ``end``."""
        return self.text.index("\n", end - 1) + 1

    def _dash_line(self, item: Item) -> int:
        """Return the start of the line with an item's dash: usually the item's own line."""
        column, line = self.layout.column, self._line_of(item.span.start)
        while self.text[line : line + column + 1] != " " * column + "-":
            line = self._line_of(line - 1)
        return line


def _runs(places: Sequence[_T], is_gone: Callable[[_T], bool]) -> Iterator[tuple[_T | None, list[_T], _T | None]]:
    """Yield each run of removed neighbours, with the kept one before and the kept one after it."""
    runs = [(gone, list(run)) for gone, run in groupby(places, is_gone)]
    for place, (gone, run) in enumerate(runs):
        if gone:
            before = runs[place - 1][1][-1] if place else None
            after = runs[place + 1][1][0] if place + 1 < len(runs) else None
            yield before, run, after


def _number(limit: float | None) -> str:
    written = None if limit is None else number(limit)
    if written is None:
        raise ValueError(f"{limit} cannot be written")
    return written


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    return f"\\u{ord(character):04x}" if ord(character) < 0x10000 else f"\\U{ord(character):08x}"
