"""What may begin and end the reasons of a session: the table at the head of ``proxy.session.flow``, as a check."""

import ast
from pathlib import Path
from typing import Final, NamedTuple

from proxy.session import flow
from proxy.session.flow import ANSWERING, THROTTLED, Flow
from proxy.session.request_stream import RequestStream

_SOURCE: Final = Path(flow.__file__).with_name("flow.py")


class Row(NamedTuple):
    """Of the table: whether a reason is one of the client's side, or the broker's, begins again, and ends."""

    client: bool
    broker: bool
    begins_again: bool
    ends: bool


def _table() -> dict[str, Row]:
    text = ast.get_docstring(ast.parse(_SOURCE.read_text(encoding="utf-8"))) or ""
    rows: dict[str, Row] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 3 or cells[0] == "reason" or cells[0].startswith("-"):
            continue
        name, _, again = cells[0].partition(" ")
        assert cells[1] in {"client", "broker", "both"}, line
        assert again in {"", "*"}, line
        rows[name] = Row(
            cells[1] != "broker", cells[1] != "client", again == "*", "to the session's end" not in cells[2]
        )
    return rows


TABLE: Final = _table()


def reasons(*, client: bool = False, broker: bool = False, begins_again: bool = False, ends: bool = False) -> int:
    """Return the reasons whose rows have one of these."""
    wanted = Row(client, broker, begins_again, ends)
    return sum(
        getattr(flow, name)
        for name, row in TABLE.items()
        if any(asked and has for asked, has in zip(wanted, row, strict=True))
    )


_CLIENT: Final = reasons(client=True)
_BROKER: Final = reasons(broker=True)
_AGAIN: Final = reasons(begins_again=True)
_ENDS: Final = reasons(ends=True)


class UnnamedTransitionError(AssertionError):
    """A transition that is not in the table."""


def check(side: Flow, begun: int, ended: int) -> None:
    """Raise UnnamedTransitionError for what the table does not have."""
    before = side.reasons
    its_own = _CLIENT if isinstance(side, RequestStream) else _BROKER
    if (begun | ended) & ~its_own or ended & ~_ENDS:
        raise UnnamedTransitionError(f"begins {begun:b} and ends {ended:b}")
    if ended & ~before:
        raise UnnamedTransitionError(f"ends {ended:b}, and {before:b} is what there is")
    if begun & before & ~_AGAIN:
        raise UnnamedTransitionError(f"begins {begun:b}, and there is {before:b}")
    if ended & ANSWERING and before & THROTTLED & ~ended:
        raise UnnamedTransitionError("ends ANSWERING while THROTTLED")
