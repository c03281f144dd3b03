"""All episodes as pages that a browser loads when somebody searches: ``search/*.js`` beside the report.

A page that is opened from a disk may not read files, but its own script may load others (docs/decisions/0030): so these
call a function with their content. ``index.js`` has of each page its times; ``clients-N.js`` in which pages a client
is; ``page-N.js`` the episodes, by their begin. Each is of bounded size, however many there are.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from analysis.page import words
from analysis.spark.folder import Folder
from analysis.table.parts import Parts
from analysis.table.schema import COUNT, LIMIT, TEXT, TIME

FOLDER: Final = "search"
PAGE_ROWS: Final = 2000
"""Episodes of a page, or clients; fewer where names are long."""
PAGE_BYTES: Final = 512 * 1024
_MOST_OF_A_NAME: Final = 300
"""Characters; records of others than a proxy may have names of 256 KiB."""
_READ: Final = (
    *("begin", "end", "cluster", "user", "client_id", "broker", "kind", "rule", "mode"),
    *("muted_ms", "throttled", "limit"),
)
_ORDER: Final = ("begin", "end", "cluster", "user", "client_id", "broker", "kind", "rule", "mode")
_IN_MEMORY: Final = 500_000
"""Episodes, about; more where as many begin in one moment."""
_AT_ONCE: Final = 20_000
"""Lines of pages."""
_CLIENTS: Final = pa.struct([("user", TEXT), ("client_id", TEXT), ("episodes", COUNT), ("muted_ms", COUNT)])
_PAGES: Final = pa.schema([("rows", TEXT), ("begin_s", LIMIT), ("end_s", LIMIT), ("clients", pa.list_(_CLIENTS))])


def write(folder: Folder, episodes: Parts) -> None:
    """Write the files of all ``episodes`` (``analysis.metrics.episodes``) into ``folder``, instead of earlier ones."""
    folder.remove(FOLDER)
    for name, content in files(_pages_of(episodes)):
        folder.write(f"{FOLDER}/{name}.js", content)


def files(found: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield names and contents, from rows of ``pages``."""
    times: list[list[float]] = []
    clients: list[pa.Table] = []
    for number, page in enumerate(found):
        yield _call(f"page-{number}", page["rows"])
        times.append([page["begin_s"], page["end_s"]])
        mine = pa.Table.from_pylist(page["clients"], pa.schema(list(_CLIENTS)))
        clients.append(mine.append_column("page", pa.array(np.full(len(mine), number))))
    written = -1
    for written, rows in enumerate(_packed(_client_rows(clients))):
        yield _call(f"clients-{written}", rows)
    yield _call("index", _json({"pages": times, "clients": written + 1}))


def _pages_of(episodes: Parts) -> Iterator[Mapping[str, Any]]:
    for some in _in_order(episodes):
        for page in pages(some.to_batches(max_chunksize=_AT_ONCE)):
            yield from page.to_pylist()


def _in_order(episodes: Parts) -> Iterator[pa.Table]:
    """Yield all episodes by their begin: so many in memory as begin within a span of time."""
    begins = [each["begin"].cast(COUNT).to_numpy() for each in episodes.tables(["begin"])]
    every = np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *begins]))
    firsts = np.unique(every[::_IN_MEMORY]).tolist()
    for first, last in pairwise([*firsts, None]):
        most = None if last is None else pa.scalar(last - 1, TIME)
        some = episodes.within("begin", pa.scalar(first, TIME), most).whole(_READ)
        yield some.sort_by([(name, "ascending") for name in _ORDER])


def pages(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield a table of one row for each page of sorted episodes."""
    for batch in batches:
        lines = [_json(row) for row in _rows(batch)]
        begins, ends = (
            np.array([time.timestamp() for time in batch.column(name).to_pylist()]) for name in ("begin", "end")
        )
        for first, last in _cuts(lines):
            part = pa.Table.from_batches([batch.slice(first, last - first)])
            page = {
                "rows": f"[{','.join(lines[first:last])}]",
                "begin_s": float(begins[first:last].min()),
                "end_s": float(ends[first:last].max()),
                "clients": _clients(part),
            }
            yield pa.Table.from_pylist([page], _PAGES)


def _rows(batch: pa.RecordBatch) -> Iterator[list[object]]:
    """Yield [begin, end (Unix s), user, client-id, broker, kind, rule, mode, muted ms, throttled, limit in words]."""
    for row in batch.to_pylist():
        yield [
            *(round(row[name].timestamp(), 3) for name in ("begin", "end")),
            *(_shown(row[name]) for name in ("user", "client_id")),
            row["broker"],
            row["kind"],
            *(_shown(row[name]) for name in ("rule", "mode")),
            *(row[name] for name in ("muted_ms", "throttled")),
            words.limit(row["kind"], row["limit"]) if row["limit"] else "",
        ]


def _clients(part: pa.Table) -> list[dict[str, Any]]:
    found = part.group_by(["user", "client_id"], use_threads=False).aggregate(
        [("muted_ms", "count"), ("muted_ms", "sum")]
    )
    rows = found.rename_columns(["user", "client_id", "episodes", "muted_ms"]).to_pylist()
    return [{**row, **{name: _shown(row[name]) for name in ("user", "client_id")}} for row in rows]


def _client_rows(found: list[pa.Table]) -> Iterator[str]:
    """Yield [user, client-id, episodes, muted ms, pages] of each client, as JSON; pages as 0-3,7."""
    if not found:
        return
    together = pa.concat_tables(found).group_by(["user", "client_id"], use_threads=False)
    sums = together.aggregate([("episodes", "sum"), ("muted_ms", "sum"), ("page", "list")])
    order = [("user", "ascending"), ("client_id", "ascending")]
    for batch in sums.sort_by(order).to_batches(max_chunksize=PAGE_ROWS):
        for row in batch.to_pylist():
            sums_ = [row[name] for name in ("user", "client_id", "episodes_sum", "muted_ms_sum")]
            yield _json([*sums_, _ranges(row["page_list"])])


def _ranges(numbers: list[int]) -> str:
    whole = np.unique(np.array(numbers))
    parts = np.split(whole, np.flatnonzero(np.diff(whole) > 1) + 1)
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else f"{part[0]}" for part in parts)


def _packed(lines: Iterable[str]) -> Iterator[str]:
    """Yield JSON arrays of some lines each, of bounded size."""
    waiting: list[str] = []
    size = 0
    for line in lines:
        if waiting and (len(waiting) == PAGE_ROWS or size + len(line) > PAGE_BYTES):
            yield f"[{','.join(waiting)}]"
            waiting, size = [], 0
        waiting.append(line)
        size += len(line) + 1
    if waiting:
        yield f"[{','.join(waiting)}]"


def _cuts(lines: list[str]) -> Iterator[tuple[int, int]]:
    """Yield where pages begin and end."""
    first, size = 0, 0
    for at, line in enumerate(lines):
        if at > first and (at - first == PAGE_ROWS or size + len(line) > PAGE_BYTES):
            yield first, at
            first, size = at, 0
        size += len(line) + 1
    if lines:
        yield first, len(lines)


def _shown(name: str | None) -> str | None:
    """Return a name as pages show it: what is not seen as an escape, and too long a one cut."""
    if name is None:
        return None
    plain = words.plain(name[: _MOST_OF_A_NAME + 1])
    return plain if len(plain) <= _MOST_OF_A_NAME else f"{plain[:_MOST_OF_A_NAME]}…"


def _json(value: object) -> str:
    """Return JSON that is also JavaScript, and harmless wherever it is put: no character of markup or outside ASCII."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").replace(">", "\\u003e")


def _call(name: str, content: str) -> tuple[str, str]:
    return name, f'sluiceFound("{name}",{content});\n'
