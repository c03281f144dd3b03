"""What may begin and end the reasons of a session: the table at the head of ``proxy.session.flow``, as a check."""

import ast
import re
from pathlib import Path
from typing import Final, NamedTuple

from proxy.session import flow
from proxy.session.flow import ANSWERING, CROWDED, DRAINING, THROTTLED, Event

_SOURCE: Final = Path(flow.__file__).with_name("flow.py")
_AGAIN: Final = THROTTLED | ANSWERING | CROWDED | DRAINING
"""The reasons that may begin where they have begun already: a longer throttle, one more request, a second stop."""


class Row(NamedTuple):
    """Of the table: what an event may begin and end on either side."""

    begins: int
    ends: int


def _table() -> dict[Event, Row]:
    text = ast.get_docstring(ast.parse(_SOURCE.read_text(encoding="utf-8"))) or ""
    rows: dict[Event, Row] = {}
    event = None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 4 or cells[0] == "event" or cells[0].startswith("-"):
            continue
        event = Event[cells[0]] if cells[0] else event
        assert event is not None, line
        begins, ends = rows.get(event, Row(0, 0))
        for sign, name in re.findall(r"([+-])([A-Z_]+)", " ".join(cells[2:])):
            if sign == "+":
                begins |= getattr(flow, name)
            else:
                ends |= getattr(flow, name)
        rows[event] = Row(begins, ends)
    return rows


TABLE: Final = _table()


class UnnamedTransitionError(AssertionError):
    """A transition that is not in the table."""


def check(event: Event, before: int, begun: int, ended: int) -> None:
    """Raise UnnamedTransitionError for what the table does not have."""
    row = TABLE[event]
    if begun & ~row.begins or ended & ~row.ends:
        raise UnnamedTransitionError(f"{event.name} begins {begun:b} and ends {ended:b}")
    if ended & ~before:
        raise UnnamedTransitionError(f"{event.name} ends {ended:b}, and {before:b} is what there is")
    if begun & before & ~_AGAIN:
        raise UnnamedTransitionError(f"{event.name} begins {begun:b}, and there is {before:b}")
    if event is Event.ANSWERED and before & THROTTLED:
        raise UnnamedTransitionError("ANSWERED while THROTTLED")
