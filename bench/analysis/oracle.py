"""Checks of Spark's tables with DuckDB: all rows, and the readings of gold."""

import math
from pathlib import Path
from typing import Any, Final

import duckdb

from bench.analysis.generated import Generated
from bench.errors import BenchError

_ROUNDING: Final = 1e-9
_KINDS: Final = ("produce", "fetch")
_READINGS: Final = """
    WITH used AS (
        SELECT hash(cluster, instance, broker, {kind}_rule,
                CASE WHEN starts_with({kind}_rule, 'user=') THEN "user" END,
                CASE WHEN regexp_matches({kind}_rule, '^(user=[^,]*, )?client-id=') THEN client_id END) AS counter,
            epoch_ms(time) // 1000 AS second, {kind}_limit AS most, {kind}_bytes AS bytes
        FROM usage WHERE {kind}_limit > 0 AND {kind}_bytes > 0
    ), changes AS (
        SELECT counter, second, sum(bytes) AS bytes, max(most) AS most FROM (
            FROM used UNION ALL SELECT counter, second + 11, NULL, -bytes FROM used) GROUP BY ALL
    ), runs AS (
        SELECT counter, sum(bytes) OVER past / (11 * last_value(most IGNORE NULLS) OVER past) AS share,
            lead(second) OVER (PARTITION BY counter ORDER BY second) - second AS seconds
        FROM changes WINDOW past AS (PARTITION BY counter ORDER BY second ROWS UNBOUNDED PRECEDING)
    ), counters AS (
        SELECT sum(seconds) AS busy, sum(seconds) FILTER (share > 1) AS over, max(share) AS most
        FROM runs WHERE share > 0 GROUP BY counter
    )
    SELECT count(*), sum(busy), sum(over), sum(most) FROM counters
"""
"""The reading of a second: the usage in its window over the limit; seconds without usage in the window have 0."""
_GOLD: Final = """
    WITH readings AS (SELECT r.* FROM gold_readings r JOIN gold_counters c USING (date, hour, counter)
        WHERE c.kind = '{kind}' AND c.rule IS NOT NULL AND c.role = 'quota' AND r.limit > 0),
    counters AS (SELECT sum(busy_s) AS busy, sum(over_s) AS over, max(max) AS most FROM readings GROUP BY counter)
    SELECT count(*), sum(busy), sum(over), sum(most) FROM counters
"""
_FIGURES: Final = ("counters", "seconds with use", "seconds over the limit", "sum of most")


def require_all(world: Generated) -> None:
    """Raise BenchError unless the warehouse has exactly the generated rows: figures of lost rows are worthless."""
    names = list(world.sums)
    sums = ", ".join(f"sum({name})::BIGINT" for name in names)
    with _opened(world.warehouse) as connection:
        found = _ask(connection, f"SELECT count(*), {sums} FROM usage")  # noqa: S608  names of ours
        found += _ask(connection, "SELECT count(DISTINCT (instance, boot, seq)) FROM stored_documents")
    expected = [world.rows, *world.sums.values(), world.documents]
    _require_same(["rows", *names, "documents"], found, expected)


def require_readings(world: Generated) -> None:
    """Raise BenchError unless gold has the readings that DuckDB computes from the rows."""
    with _opened(world.warehouse) as connection:
        for name in ("readings", "counters"):
            files = f"{world.warehouse}/gold/{name}_hour/*/*/*/*.parquet"
            connection.execute(f"CREATE VIEW gold_{name} AS FROM read_parquet('{files}', hive_partitioning = true)")
        for kind in _KINDS:
            found = _ask(connection, _GOLD.format(kind=kind))
            expected = _ask(connection, _READINGS.format(kind=kind))
            _require_same([f"{kind}: {figure}" for figure in _FIGURES], found, expected)


def _require_same(names: list[str], found: list[Any], expected: list[Any]) -> None:
    wrong = [
        f"{name} {have:,} instead of {should:,}"
        for name, have, should in zip(names, found, expected, strict=True)
        if not math.isclose(have, should, rel_tol=_ROUNDING)
    ]
    if wrong:
        raise BenchError(f"the warehouse does not have what was generated: {', '.join(wrong)}")


def _opened(warehouse: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET memory_limit = '4GB'")
    for table in ("usage", "keys", "documents"):
        files = f"read_parquet('{warehouse}/{table}/*/*/*/*.parquet', hive_partitioning = true, union_by_name = true)"
        connection.execute(f"CREATE VIEW stored_{table} AS FROM {files}")
    names = "(SELECT DISTINCT * EXCLUDE (date, hour, batch) FROM stored_keys)"
    connection.execute(f"CREATE VIEW usage AS FROM stored_usage JOIN {names} USING (key)")
    return connection


def _ask(connection: duckdb.DuckDBPyConnection, query: str) -> list[Any]:
    row = connection.execute(query).fetchone()
    assert row is not None  # noqa: S101  aggregates have a row
    return list(row)
