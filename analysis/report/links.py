"""The indexes of an output directory, and links between its pages: static files, brought up to date by each report.

A page has an element for its neighbours in time, and each client's name on it has the directories that its own reports
would be in. Both are filled from what is there.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

from analysis.page import words
from analysis.page.html import page
from analysis.warehouse import Disk, Store, located, on_disk

_NEAR: Final = re.compile(r"<nav class=near>.*?</nav>")
_OF: Final = re.compile(r'data-of="([^"]*)"(?: href="[^"]*")?')
_STAMP: Final = "%Y%m%dT%H%M%SZ"


def folder(begin: datetime, end: datetime) -> str:
    """Return the name of a report's directory."""
    return f"report={begin.astimezone(UTC):{_STAMP}}-{end.astimezone(UTC):{_STAMP}}"


def refresh(out: str, of: str, report: str) -> None:
    """Link a new report in ``of`` ("": of everybody, or the directory of a client). Raises OSError."""
    root = on_disk(out)
    files = Store(*located(out)) if root is None else Disk(root)
    clients, names = sorted(files.names("", "client=")), sorted(files.names(of, "report="))
    at = names.index(report)
    for near in range(max(at - 1, 0), min(at + 2, len(names))):
        _link(files, of, names, near, clients)
    if of:
        _write(files, f"{of}/index.html", _index("Reports of a client", names, ()))
        names = sorted(files.names("", "report="))
        if report in names:
            _link(files, "", names, names.index(report), clients)
    _write(files, "index.html", _index("Reports", names, clients))


def _link(files: Disk | Store, of: str, names: Sequence[str], at: int, clients: Iterable[str]) -> None:
    """Fill the links of the report ``names[at]``; those to reports of clients are on the page of everybody."""
    path = f"{of}/{names[at]}/report.html".lstrip("/")
    try:
        text = files.read(path).decode()
    except FileNotFoundError:
        return
    wanted = {each for match in _OF.finditer(text) for each in match[1].split()} & set(clients)
    there = {each for each in wanted if names[at] in files.names(each, "report=")}

    def to_client(match: re.Match[str]) -> str:
        href = next((f' href="../{each}/{names[at]}/report.html"' for each in match[1].split() if each in there), "")
        return f'data-of="{match[1]}"{href}'

    near = [
        f'<a href="../{names[place]}/report.html">{said}: {_period(names[place])}</a>'
        for said, place in (("before", at - 1), ("after", at + 1))
        if 0 <= place < len(names)
    ]
    nav = f'<nav class=near><a href="../index.html">all reports</a>{"".join(near)}</nav>'
    _write(files, path, _OF.sub(to_client, _NEAR.sub(lambda _: nav, text)))


def _index(title: str, names: Sequence[str], clients: Iterable[str]) -> str:
    reports = [(f"{name}/report.html", _period(name)) for name in reversed(names)]
    of_clients = [(f"{each}/index.html", each.removeprefix("client=")[:-9]) for each in clients]
    return page("report/index.html.j2", {"title": title, "reports": reports, "clients": of_clients})


def _period(name: str) -> str:
    """Return the period in a directory's name, in UTC."""
    try:
        begin, end = (datetime.strptime(each, _STAMP) for each in name.removeprefix("report=").split("-"))  # noqa: DTZ007  "Z"
    except ValueError:
        return escape(name)
    return f"{words.from_to(begin, end)} UTC"


def _write(files: Disk | Store, path: str, text: str) -> None:
    if isinstance(files, Disk):
        unfinished = files.root / f".unfinished-{path.replace('/', '-')}"
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(files.root / path)
        return
    with files.files.open_output_stream(f"{files.root}/{path}") as stream:
        stream.write(text.encode())
