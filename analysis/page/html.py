"""The few forms that sections are made of. What is not made here or in ``words`` and ``draw`` is escaped."""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from analysis.page import words


@dataclass(frozen=True, slots=True)
class Cell:
    """``html`` as it is shown, and by which number it is sorted; None: by its text."""

    html: str
    value: float | None = None

    def __str__(self) -> str:
        number = "" if self.value is None else f' class=n data-v="{self.value}"'
        return f"<td{number}>{self.html}</td>"


def section(anchor: str, title: str, says: str, *content: str) -> str:
    return f'<section id="{anchor}"><h2>{escape(title)}</h2><p class=says>{says}</p>{"".join(content)}</section>'


def empty(anchor: str, title: str, why: str) -> str:
    """A section that has nothing to show says why."""
    return f'<section id="{anchor}"><h2>{escape(title)}</h2><p class=none>{escape(why)}</p></section>'


def line(who: str, plot: str, number: str, *, ends: bool = False) -> str:
    """A row of a plot: who, what, how much. One that ``ends`` them carries the axis."""
    css = "line ends" if ends else "line"
    parts = {"who": who, "what": plot, "number": number}
    return f'<div class="{css}">{"".join(f"<div class={name}>{html}</div>" for name, html in parts.items())}</div>'


def whose(names: str, rest: str) -> str:
    """Return the names of a client or a counter, with what else tells it from others below."""
    return f"{words.name(names)}<small>{rest}</small>"


def rule(text: str) -> str:
    return words.name(text, 60) if text else "no rule"


def table(heads: Sequence[tuple[str, str]], rows: Iterable[Sequence[Cell]]) -> str:
    """A table that can be sorted; ``heads`` are names and their explanations."""
    cells = [[*row] for row in rows]
    numbers = [all(row[column].value is not None for row in cells) for column in range(len(heads))]
    head = "".join(
        f'<th{" class=n" * number} title="{escape(said)}">{escape(name)}</th>'
        for (name, said), number in zip(heads, numbers, strict=True)
    )
    body = "".join(f"<tr>{''.join(map(str, row))}</tr>" for row in cells)
    return f"<div class=scroll><table class=sorted><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def key(*entries: tuple[str, str]) -> str:
    """The legend of a plot: classes and what they mean."""
    marks = "".join(f'<li><i class="{css}"></i>{text}</li>' for css, text in entries)
    return f"<ul class=key>{marks}</ul>"


def document(title: str, body: str, *, loads: bool = False, is_local: bool = False) -> str:
    """Return a whole page, with ``title`` as text and ``body`` as HTML; it asks for nothing from outside.

    ``loads``: its script may load others, as it does from the folder ``search`` beside the page (decision 0030).
    ``is_local``: its times are shown in the zone of the reader. They all have to be of ``words.when``, or ``between``.
    """
    style, script, search = (
        files("analysis.page").joinpath(name).read_text(encoding="utf-8")
        for name in ("page.css", "page.js", "search.js")
    )
    script += search if loads else ""
    # No request is allowed, and no script but ours: a name that got through the escapes could still do nothing.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    trusted = " 'strict-dynamic'" if loads else ""
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'{trusted}; img-src data:; "
        "base-uri 'none'"
    )
    local = " data-local" if is_local else ""
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name=viewport content="width=device-width, initial-scale=1"><link rel=icon href="data:,">'
        f"<title>{escape(title)}</title><style>{style}</style></head>"
        f"<body{local}>{body}<script>{script}</script></body></html>\n"
    )
