"""The positions of everything in the text of a quota file, for edits; reading a file does not need them.

Positions are characters of the text, ends are exclusive. They come from the parser's events, once per edit.
"""

from collections.abc import Container, Iterator
from dataclasses import dataclass, field

import yaml


@dataclass(slots=True, eq=False)
class Part:
    """A quota in the list of a file; or a key of a quota, with its value."""

    start: int
    end: int
    key: str = ""
    value: int = 0
    """The start of the value."""
    keys: "Parts | None" = None
    """The keys of a requested quota."""


@dataclass(slots=True)
class Parts:
    """The quotas of a list, or the keys of a quota."""

    start: int
    end: int
    """The end of brackets or braces."""
    column: int
    """The column of dashes or keys, or the one after a bracket or brace."""
    is_flow: bool
    """In brackets or braces."""
    all: list[Part] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Layout:
    """The list of quotas in a file."""

    quotas: Parts
    key_end: int
    """The end of the key ``quotas``."""
    root_in_braces: bool
    as_json: bool
    """Keys are in double quotes."""


def read_layout(text: str, wanted: Container[int]) -> Layout:
    """Return the layout of a valid quota file; ``wanted``: indexes of the quotas whose keys are requested."""
    events = yaml.parse(text, yaml.CSafeLoader)
    root = next(event for event in events if isinstance(event, yaml.MappingStartEvent))
    for key in events:
        assert isinstance(key, yaml.ScalarEvent)  # noqa: S101  mypy: the file has been read
        start = next(events)
        if key.value == "quotas":
            return Layout(_quotas(start, events, wanted), _span(key)[1], bool(root.flow_style), key.style == '"')
        _end(start, events)
    raise AssertionError("no quotas")


def _quotas(start: yaml.Event, events: Iterator[yaml.Event], wanted: Container[int]) -> Parts:
    quotas = _begin(start)
    for number, event in enumerate(events):
        if isinstance(event, yaml.SequenceEndEvent):
            quotas.end = _span(event)[1]
            break
        keys = _keys(event, events) if number in wanted else None
        quotas.all.append(Part(_span(event)[0], keys.end if keys else _end(event, events), keys=keys))
    return quotas


def _keys(start: yaml.Event, events: Iterator[yaml.Event]) -> Parts:
    keys = _begin(start)
    for event in events:
        if isinstance(event, yaml.MappingEndEvent):
            keys.end = _span(event)[1] if keys.is_flow else keys.all[-1].end
            break
        assert isinstance(event, yaml.ScalarEvent)  # noqa: S101  mypy: keys are texts
        value = next(events)
        keys.all.append(Part(_span(event)[0], _end(value, events), event.value, _span(value)[0]))
    return keys


def _begin(event: yaml.Event) -> Parts:
    assert isinstance(event, yaml.CollectionStartEvent) and event.start_mark  # noqa: S101, PT018  mypy
    is_flow = bool(event.flow_style)
    return Parts(_span(event)[0], 0, event.start_mark.column + is_flow, is_flow)


def _end(event: yaml.Event, events: Iterator[yaml.Event]) -> int:
    """Read the node that ``event`` begins, and return its end. (For a block collection libyaml reports the start of the
    next token instead.)
    """
    end = _span(event)[1]
    depth = int(isinstance(event, yaml.CollectionStartEvent))
    while depth:  # hot: ten events for each quota of a file
        event = next(events)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
            start, after = _span(event)
            if start == after:
                continue
        assert event.end_mark is not None  # noqa: S101  libyaml always says where
        end = event.end_mark.index
    return end


def _span(event: yaml.Event) -> tuple[int, int]:
    start, end = event.start_mark, event.end_mark
    assert start is not None and end is not None  # noqa: S101, PT018  libyaml always says where
    return start.index, end.index
