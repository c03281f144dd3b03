"""The gold tables in docs/analysis-tables.md, by the heads of their queries: ``python -m analysis.gold.described``."""

import re
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Final

from analysis.gold.tables import TABLES

BEGIN: Final = "<!-- begin of what python -m analysis.gold.described writes -->\n"
END: Final = "<!-- end of what python -m analysis.gold.described writes -->\n"
_NAMES: Final = re.compile(r"(?:[a-z_]+, )*[a-z_]+")


def columns(table: str) -> dict[str, str]:
    """Return what a table's columns are, by their names as its head groups them: "begin_ms, end_ms"."""
    found: dict[str, str] = {}
    head = iter(_head(table))
    for line in head:
        if line.startswith(" reads: "):
            break
    for line in head:
        if line.startswith("     "):
            found[[*found][-1]] += f" {line.strip()}"
        elif line.startswith("   ") and (names := _NAMES.match(line.strip())):
            found[names[0]] = line.strip()[names.end() + 2 :]
    return found


def updated(page: str) -> str:
    """Return the page with the table between the two marks made again."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n| table | a row for each | columns |\n|---|---|---|\n{''.join(_rows())}\n{END}{after}"


def _rows() -> Iterator[str]:
    for table in TABLES:
        head = " ".join(line.strip() for line in _head(table))
        what = head.partition(" reads: ")[0].partition("a row for each ")[2]
        of_columns = "; ".join(
            ", ".join(f"`{name}`" for name in names.split(", ")) + (f": {said}" if said else "")
            for names, said in columns(table).items()
        )
        yield f"| `{table}` | {what} | {of_columns} |\n"


def _head(table: str) -> list[str]:
    text = files("analysis.gold").joinpath("sql", f"{table}.sql").read_text(encoding="utf-8")
    return [line.removeprefix("--") for line in text.splitlines() if line.startswith("--")]


if __name__ == "__main__":
    path = Path("docs/analysis-tables.md")
    path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")
    sys.exit()
