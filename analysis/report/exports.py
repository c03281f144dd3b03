"""Writes the tables of a report: Parquet, CSV that spreadsheets read as text and numbers, and JSON."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from analysis.report.tables import rows

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_SIGNS: Final = "=+@−⁺⁻⁼₊₋₌﬩﹢﹣﹦﹫\N{FULLWIDTH PLUS SIGN}\uff0d\uff1d\uff20⩵⩶-"  # noqa: RUF001
"""The first characters of formulas: signs, and forms of them that NFKC makes one."""
_IGNORED: Final = r"""[\p{Cc}\p{Cf}\p{Zs}\p{Zl}\p{Zp}"'`“”]*"""
HARMLESS: Final = (
    rf"regexp_replace(regexp_replace(name, $$(^|[;,|\p{{Cc}}])({_IGNORED})([{_SIGNS}])$$, "
    r"$$\1\2'\3$$, 'g'), '^(\p{Cc})', $$'\1$$)"
)
"""SQL: ``name``, with a ``'`` before what a spreadsheet could take for the begin of a formula, or of a new cell.

A cell may begin within a name, too: a spreadsheet that separates by ``;`` heeds no quotes around what ``,`` separates.
"""
_MOST: Final = 2**63 - 1
_AS: Final = {
    # Parquet has no HUGEINT, the type of sums; forged records may add up to more than there is. A null stays null.
    "HUGEINT": 'CASE WHEN "{0}" > {1} THEN {1} ELSE "{0}" END::BIGINT',
}
_AS_TEXT: Final = {
    "VARCHAR": 'harmless("{0}")',
    "VARCHAR[]": "harmless(array_to_string(\"{0}\", ' '))",
    "TIMESTAMP WITH TIME ZONE": "strftime(\"{0}\", '%Y-%m-%dT%H:%M:%SZ')",
}


def prepare(connection: "DuckDBPyConnection") -> None:
    """Create the macro of ``csv``."""
    connection.execute(f"CREATE MACRO harmless(name) AS {HARMLESS}")


def parquet(connection: "DuckDBPyConnection", name: str, folder: Path) -> None:
    """Write a table as ``<name>.parquet``."""
    chosen = ", ".join(_columns(connection, name, _AS).values())
    place = _quoted(folder / f"{name}.parquet")
    connection.execute(f"COPY (SELECT {chosen} FROM main.{name}) TO '{place}' (FORMAT parquet, COMPRESSION zstd)")


def csv(connection: "DuckDBPyConnection", name: str, folder: Path) -> None:
    """Write a table as ``<name>.csv``, with all texts in quotes."""
    columns = _columns(connection, name, {**_AS, **_AS_TEXT})
    texts = [f'"{column}"' for column, said in columns.items() if said.startswith(("harmless", "strftime"))]
    force = f", FORCE_QUOTE ({', '.join(texts)})" if texts else ""
    chosen, place = ", ".join(columns.values()), _quoted(folder / f"{name}.csv")
    connection.execute(f"COPY (SELECT {chosen} FROM main.{name}) TO '{place}' (FORMAT csv, HEADER{force})")


def as_json(connection: "DuckDBPyConnection", names: Sequence[str], said: Mapping[str, object]) -> str:
    """Return one JSON object: ``said``, and under ``tables`` the rows of each table."""
    tables = {name: rows(connection, f"FROM main.{name}") for name in names}
    return json.dumps({**said, "tables": tables}, default=_iso)


def _iso(value: Any) -> str:
    return str(value.isoformat())


def _columns(connection: "DuckDBPyConnection", name: str, written: Mapping[str, str]) -> dict[str, str]:
    """Return how each column of a table is selected, by its name."""
    found = {row["column_name"]: row["column_type"] for row in rows(connection, f"DESCRIBE main.{name}")}
    said = {column: written.get(kind, '"{0}"').format(column, _MOST) for column, kind in found.items()}
    return {column: f'{value} AS "{column}"' for column, value in said.items()}


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
