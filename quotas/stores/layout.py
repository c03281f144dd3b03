"""The positions of everything in the text of a quota file, for edits; reading a file does not need them.

Positions are characters of the text, ends are exclusive. They come from the parser's events, once per edit.
"""

from collections.abc import Container, Iterator
from dataclasses import dataclass, field

import yaml


@dataclass(frozen=True, slots=True)
class Span:
    """A range of characters; the end is exclusive."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A key of a quota and its value; ``start`` is the key's position."""

    key: str
    start: int
    """The start of the key."""
    value: Span

    @property
    def end(self) -> int:
        return self.value.end


@dataclass(slots=True)
class Item:
    """A quota in the list of a file; ``pairs`` is filled for requested quotas only."""

    span: Span
    column: int
    in_braces: bool
    pairs: list[KeyValue] = field(default_factory=list)


@dataclass(slots=True)
class Layout:
    """The list of quotas."""

    key: Span
    """The position of the key ``quotas``."""
    span: Span
    column: int
    """The column of its dashes, if it has any."""
    in_brackets: bool
    root_in_braces: bool
    as_json: bool
    """Keys are in double quotes."""
    items: list[Item]


def read_layout(text: str, wanted: Container[int]) -> Layout:
    """Return the layout of a valid quota file; ``wanted``: indexes of quotas in the list."""
    events = yaml.parse(text, yaml.CSafeLoader)
    root = next(event for event in events if isinstance(event, yaml.MappingStartEvent))
    for key in events:
        assert isinstance(key, yaml.ScalarEvent)  # noqa: S101  mypy: the file has been read
        start = next(events)
        if key.value != "quotas":
            _end(start, events)
            continue
        assert isinstance(start, yaml.SequenceStartEvent)  # noqa: S101  as above
        assert start.start_mark is not None  # noqa: S101  libyaml always says where
        items = list(_items(events, wanted))
        end = items[-1].span.end if items else _start(start)
        return Layout(
            _span(key),
            Span(_start(start), end),
            start.start_mark.column,
            bool(start.flow_style),
            bool(root.flow_style),
            key.style == '"',
            items,
        )
    raise AssertionError("no quotas")


def end_of_brackets(text: str, layout: Layout) -> int:
    """Return the end of a list in brackets, if only a comma, comments and whitespace precede it."""
    position = layout.span.end if layout.items else layout.span.start + 1
    while text[position] != "]":
        position = text.index("\n", position) if text[position] == "#" else position + 1
    return position + 1


def _items(events: Iterator[yaml.Event], wanted: Container[int]) -> Iterator[Item]:
    for number, event in enumerate(events):
        if isinstance(event, yaml.SequenceEndEvent):
            return
        assert isinstance(event, yaml.MappingStartEvent)  # noqa: S101  mypy: the file has been read
        assert event.start_mark is not None  # noqa: S101  libyaml always says where
        item = Item(Span(_start(event), 0), event.start_mark.column, bool(event.flow_style))
        end = _read_pairs(events, item.pairs) if number in wanted else _end(event, events)
        item.span = Span(item.span.start, end)
        yield item


def _read_pairs(events: Iterator[yaml.Event], pairs: list[KeyValue]) -> int:
    """Read a mapping to its end, and return that position."""
    for event in events:
        if isinstance(event, yaml.MappingEndEvent):
            return pairs[-1].end if _is_empty(event) else _span(event).end
        assert isinstance(event, yaml.ScalarEvent)  # noqa: S101  mypy: keys are texts
        value = next(events)
        start = _start(value)
        pairs.append(KeyValue(event.value, _start(event), Span(start, _end(value, events))))
    raise AssertionError("a mapping without an end")


def _end(event: yaml.Event, events: Iterator[yaml.Event]) -> int:
    """Read the node that ``event`` begins, and return its end. (For a block collection libyaml reports the start of the
    next token instead.)
    """
    end = _span(event).end
    depth = int(isinstance(event, yaml.CollectionStartEvent))
    while depth:  # hot: ten events for each quota of a file
        event = next(events)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
            if _is_empty(event):
                continue
        assert event.end_mark is not None  # noqa: S101  libyaml always says where
        end = event.end_mark.index
    return end


def _is_empty(event: yaml.Event) -> bool:
    span = _span(event)
    return span.start == span.end


def _start(event: yaml.Event) -> int:
    return _span(event).start


def _span(event: yaml.Event) -> Span:
    start, end = event.start_mark, event.end_mark
    assert start is not None and end is not None  # noqa: S101, PT018  libyaml always says where
    return Span(start.index, end.index)
