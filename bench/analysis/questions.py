"""The questions that cost a report most, asked of Spark and of DuckDB over the same Parquet, with the same answers.

``python -m bench.analysis.questions ENGINE WAREHOUSE HEAP FILE`` writes what the answers add up to into a file. What is
measured is the whole process.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.analysis.oracle import usage

Answers = Mapping[str, Mapping[str, float]]
"""Question → what its answer adds up to."""

GAP_MS: Final = 11_000
SPARK, DUCKDB = "spark", "duckdb"

_EPISODES: Final = """
    WITH muted AS (
        SELECT cluster, broker, "user", client_id, '{kind}' AS kind, {kind}_rule AS rule, mode,
            epoch_ms(time) AS begin_ms, epoch_ms(time) + interval_ms AS end_ms, {kind}_muted_ms AS muted_ms
        FROM usage WHERE {kind}_muted_ms > 0
    ), numbered AS (
        SELECT *, CASE WHEN begin_ms - max(end_ms) OVER (
            PARTITION BY cluster, broker, "user", client_id, rule, mode ORDER BY begin_ms, end_ms
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) <= {gap_ms} THEN 0 ELSE 1 END AS begins
        FROM muted
    )
    SELECT sum(begins), sum(muted_ms) FROM numbered
"""
_HEADROOM: Final = """
    WITH counted AS (
        SELECT hash(cluster, instance, broker, {kind}_rule,
                CASE WHEN starts_with({kind}_rule, 'user=') THEN "user" END,
                CASE WHEN regexp_matches({kind}_rule, '^(user=[^,]*, )?client-id=') THEN client_id END) AS counter,
            date, epoch_ms(time) AS time_ms, {kind}_limit AS most, {kind}_bytes AS bytes
        FROM usage WHERE {kind}_limit > 0
    ), windows AS (
        SELECT counter, date, most,
            sum(bytes) OVER (PARTITION BY counter ORDER BY time_ms RANGE BETWEEN 10500 PRECEDING AND CURRENT ROW)
                / (most * 11) AS used,
            coalesce(lead(time_ms) OVER (PARTITION BY counter ORDER BY time_ms) > time_ms, true) AS last
        FROM counted
    ), ranked AS (
        SELECT counter, used, row_number() OVER (PARTITION BY counter ORDER BY used) AS rank,
            count(*) OVER (PARTITION BY counter) AS busy, greatest({intervals}, busy) AS intervals
        FROM windows WHERE last
    )
    SELECT count(DISTINCT counter), sum(used) FILTER (rank = ceil(intervals * 0.99 - (intervals - busy))), max(used)
    FROM ranked
"""
_CLIENTS: Final = """
    WITH clients AS (
        SELECT cluster, instance, broker, "user", client_id, produce_rule, fetch_rule, date, {sums}
        FROM usage GROUP BY ALL
    )
    SELECT count(*), sum(bytes_in + bytes_out), sum(requests) FROM clients
"""
_PERIOD: Final = "SELECT max(epoch_ms(time) + interval_ms) - min(epoch_ms(time)), mode(interval_ms) FROM usage"
_NAMES: Final = {
    "episodes": ("episodes", "muted_ms"),
    "headroom": ("counters", "p99", "most"),
    "clients": ("clients", "bytes", "requests"),
}
_KINDS: Final = ("produce", "fetch")


def main() -> None:
    engine, warehouse, heap, said = sys.argv[1:]
    answers = _of_spark(warehouse, heap) if engine == SPARK else _of_duckdb(Path(warehouse))
    Path(said).write_text(json.dumps(answers), encoding="utf-8")


def _of_duckdb(warehouse: Path) -> Answers:
    import duckdb

    from analysis.metrics.clients import SUMS

    sums = ", ".join(f"sum({name}) AS {name}" for name in SUMS)
    with duckdb.connect() as connection:
        connection.execute("SET memory_limit = '3GB'")
        connection.execute(f"CREATE VIEW usage AS FROM {usage(warehouse)}")

        def ask(question: str, query: str) -> dict[str, float]:
            row = connection.execute(query).fetchone()
            assert row is not None  # noqa: S101  aggregates have a row
            return dict(zip(_NAMES[question], map(float, row), strict=True))

        [(length_ms, interval_ms)] = connection.execute(_PERIOD).fetchall()
        answers = {"clients all": ask("clients", _CLIENTS.format(sums=sums))}
        for question, query in (("episodes", _EPISODES), ("headroom", _HEADROOM)):
            for kind in _KINDS:
                parts = {"kind": kind, "gap_ms": GAP_MS, "intervals": round(length_ms / interval_ms)}
                answers[f"{question} {kind}"] = ask(question, query.format(**parts))
    return answers


def _of_spark(warehouse: str, heap: str) -> Answers:
    import pyarrow as pa
    import pyarrow.compute as pc

    from analysis.metrics import clients, episodes, headroom
    from analysis.metrics.period import look
    from analysis.spark.session import SparkSettings, start
    from analysis.table import reading
    from analysis.table import warehouse as tables

    def ask(question: str, table: pa.Table, sums: Mapping[str, str]) -> dict[str, dict[str, float]]:
        found = table.group_by("kind").aggregate([("kind", "count"), *sums.items()])
        return {
            f"{question} {kind}": dict(zip(_NAMES[question], map(float, row), strict=True))
            for kind, *row in zip(*found.to_pydict().values(), strict=True)
        }

    with start("questions", SparkSettings(conf={"spark.driver.memory": heap})) as spark:
        usage = tables.usage(spark, warehouse)
        period = look(usage)
        assert period is not None  # noqa: S101  an empty warehouse is an AnalysisError
        makings = [clients.making(), episodes.making(period.capped, GAP_MS), headroom.making(usage, period)]
        made = reading.tables(usage, makings, period.rows, period.longest_window_ms)
        every = made[clients.KEPT].whole(["bytes_in", "bytes_out", "requests"])
        moved = pa.table(
            {
                "kind": pa.repeat("all", len(every)),
                "bytes": pc.add(every["bytes_in"], every["bytes_out"]),
                "requests": every["requests"],
            }
        )
        answers = ask("clients", moved, {"bytes": "sum", "requests": "sum"})
        answers |= ask("episodes", made["episodes"].whole(["kind", "muted_ms"]), {"muted_ms": "sum"})
        daily = made[headroom.DAYS].whole(["kind", "date", "p99", "max"])
        answers |= ask("headroom", daily.filter(daily["date"].is_null()), {"p99": "sum", "max": "max"})
    return answers


if __name__ == "__main__":
    main()
