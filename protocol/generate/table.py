"""Merging the releases into one table: every (api key, version), from the newest release that has it."""

import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_PROGRAM = Path(__file__).with_name("Dump.java")


@dataclass(frozen=True, slots=True)
class Row:
    """One (api key, version) of one release, as Dump.java prints it."""

    api_key: int
    name: str
    version: int
    stable: bool
    client: bool
    request_header: int
    response_header: int
    request: str
    response: str


Rows = Mapping[tuple[int, int], Row]


def dump(jars: Path) -> Rows:
    """Run Dump.java with the jars of a directory; a single-file program needs no build (JEP 330)."""
    command = ["java", "-cp", f"{jars}/*", str(_PROGRAM)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603  our own program
    rows = map(_row, done.stdout.splitlines())
    return {(row.api_key, row.version): row for row in rows}


def _row(line: str) -> Row:
    key, name, version, stable, client, request_header, response_header, request, response = line.split("\t")
    return Row(
        int(key),
        name,
        int(version),
        stable == "1",
        client == "1",
        int(request_header),
        int(response_header),
        request,
        response,
    )


def merge(releases: Iterable[Rows]) -> Rows:
    """Merge the releases, oldest first: names and nullability improve, layouts do not change."""
    merged: dict[tuple[int, int], Row] = {}
    for release in releases:
        merged |= release
    return merged


def render(rows: Rows) -> str:
    """Return the table as JSON, one member a line and equal neighbours joined, so that a new release reads as a
    diff.
    """
    apis: dict[int, list[Row]] = {}
    for _, row in sorted(rows.items()):
        apis.setdefault(row.api_key, []).append(row)
    return json.dumps([_api(api) for api in apis.values()], indent=1) + "\n"


def _api(rows: list[Row]) -> dict[str, object]:
    newest = rows[-1]
    return {
        "key": newest.api_key,
        "name": newest.name,
        "client": newest.client,
        "unstable": [row.version for row in rows if not row.stable],
        "request_header": _runs([(row.version, row.request_header) for row in rows]),
        "response_header": _runs([(row.version, row.response_header) for row in rows]),
        "request": _runs([(row.version, row.request) for row in rows]),
        "response": _runs([(row.version, row.response) for row in rows]),
    }


def _runs(values: list[tuple[int, int]] | list[tuple[int, str]]) -> dict[str, object]:
    runs: list[tuple[int, int, object]] = []
    for version, value in values:
        if runs and runs[-1][1:] == (version - 1, value):
            runs[-1] = (runs[-1][0], version, value)
        else:
            runs.append((version, version, value))
    return {f"{first}-{last}": value for first, last, value in runs}
