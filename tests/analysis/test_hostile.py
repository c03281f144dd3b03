"""Documents by somebody who wants no report to succeed: refused, or harmless to every sum that is made of them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from analysis.cli import analyze
from analysis.gold.build import make
from analysis.gold.tables import MOST_SUM
from analysis.ingest import files
from analysis.ingest.columns import UnreadableError, most_of
from analysis.ingest.documents import HEADER, read, table
from analysis.ingest.job import Ingestion, Tally
from analysis.ingest.running import run
from analysis.kernel.cells import Cells, SeriesRows
from analysis.kernel.censoring import Recorded
from analysis.kernel.target import parse_target
from analysis.recommend.figures import FIGURES, Search
from analysis.schema import COLUMNS, FLAG, LEAST_LIMIT, LIMIT, MOST_LIMIT, TEXT
from analysis.whatif.figures import Replay
from quotas.rate import Window
from tests.analysis.records import BEGIN_MS, Document, document, row, write_jsonl

HUGE = [2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30, -1, -(2**63)]
SAID = {field.name: field for field in HEADER if field.type != TEXT and field.name != "time_ms"}
NUMBERS = [column for column in COLUMNS if column.type not in (TEXT, FLAG)]


@st.composite
def hostile(draw: st.DrawFn) -> Document:
    """Some fields and columns at the edge of what is taken, and sometimes beyond it."""
    beyond = draw(st.booleans())
    fields: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from(sorted(SAID)), unique=True)):
        edges = [SAID[name].least or 0, most_of(SAID[name], 0)]
        fields[name] = draw(st.sampled_from([*edges, *(HUGE if beyond else ())]))
    interval_ms = min(fields.get("interval_ms", 1000), 10**12)
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        columns: dict[str, Any] = {"produce_rule": "user=eve", "produce_limit": 1e6}
        for column in draw(st.lists(st.sampled_from(NUMBERS), unique_by=lambda each: each.name)):
            of_limits: list[float] = [0, LEAST_LIMIT, MOST_LIMIT]
            most = of_limits if column.type == LIMIT else [column.least or 0, most_of(column, interval_ms)]
            columns[column.name] = draw(st.sampled_from([*most, *(HUGE if beyond else ())]))
        rows.append(row(draw(st.sampled_from(["eve", "mallory"])), "app", **columns))
    if beyond and draw(st.booleans()):
        fields["time_ms"] = draw(st.sampled_from([0, 1, BEGIN_MS * 1000, *HUGE]))
    return {**document(0, rows, second=draw(st.integers(0, 5))), **fields}


def taken(documents: Sequence[Document]) -> pa.Table | None:
    """What is stored of them, as workers are given it."""
    found = []
    for each in documents:
        try:
            found.append(read(json.dumps(each).encode(), BEGIN_MS + 86_400_000))
        except UnreadableError:
            continue
    return table(found) if found else None


def finite(values: Any) -> bool:
    return bool(np.isfinite(np.asarray(values, dtype=float)).all() and (np.asarray(values) >= 0).all())


@given(st.lists(hostile(), min_size=1, max_size=6), st.sampled_from([1e-3, 1e6, 1e32]))
def test_replay_of_hostile_documents_stays_finite(documents: list[Document], limit: float) -> None:
    rows = taken(documents)
    if rows is None:
        return
    begin_ms = rows["time"].cast("int64").to_numpy() // 1000
    interval_ms = np.clip(rows["interval_ms"].to_numpy(), 1, 10_000)
    _, number = np.unique(rows["user"].to_pylist(), return_inverse=True)
    columns = [rows[f"produce_{name}"].to_numpy().astype(float) for name in ("bytes", "muted_ms")]
    cells = Cells.of(SeriesRows(number, begin_ms - begin_ms.min(), interval_ms, columns[0], columns[1]))
    units = int(number.max()) + 1
    requests = np.bincount(number, rows["produce_requests"].to_numpy(), units).astype(float)
    recorded = Recorded.of(cells, np.arange(units), requests, int(cells.second.max()) + 1)
    replay = Replay(Window(), np.full(units, limit), np.full((2, units), np.nan))
    for work in (replay, Search(Window(), parse_target("p99 throttle < 100 ms"))):
        found = work(np.arange(units), recorded)
        assert finite(found), found


def test_idle_client_beside_a_huge_one_needs_no_quota() -> None:
    number, begin_ms, interval_ms = np.arange(2), np.array([0, 30_000]), np.full(2, 1000)
    cells = Cells.of(SeriesRows(number, begin_ms, interval_ms, np.array([1e12, 0.0]), np.zeros(2)))
    recorded = Recorded.of(cells, number, np.ones(2), 31)
    found = Search(Window(), parse_target("p99 throttle < 100 ms"))(number, recorded)
    needed = found[FIGURES.index("needed")]
    assert needed[0] > 0
    assert needed[1] == 0


HONEST = [
    document(
        second,
        [
            row(
                bytes_in=1000,
                produce_bytes=990,
                requests=1,
                produce_requests=1,
                connections=1,
                produce_limit=1e6,
                produce_rule="user=alice",
            )
        ],
        boot="honest",
    )
    for second in range(120)
]
HOUR_MS = 3_600_000
MOST_BYTES = 125_000_000 * (HOUR_MS + 60_000)
COUNTS: dict[str, Any] = {
    **dict.fromkeys(("bytes_in", "bytes_out", "produce_bytes", "fetch_bytes"), MOST_BYTES),
    **dict.fromkeys(
        ("requests", "produce_requests", "fetch_requests", "produce_throttled"), 10**6 * (HOUR_MS + 60_000)
    ),
    **dict.fromkeys(("request_time_ms", "produce_throttle_ms", "fetch_throttle_ms"), 10**15),
    **dict.fromkeys(("produce_muted_ms", "fetch_muted_ms"), HOUR_MS + 60_000),
    **dict.fromkeys(("produce_rule", "fetch_rule"), "user=eve"),
    "produce_limit": 1e-3,
    "fetch_limit": 1e32,
    "connections": 10**8,
}
WORST = row("eve", **COUNTS)
ACCEPTED = [document(seq, [WORST] * 1000, second=seq, boot="worst", interval_ms=HOUR_MS) for seq in range(3)] + [
    document(0, [row("mallory", bytes_in=7)], boot="long", interval_ms=86_400_000),
    document(0, [row("mallory", bytes_in=7)], boot="old", time_ms=1_577_836_800_000),
    document(0, [row("mallory", bytes_in=7)], boot="window", samples=1, sample_ms=1),
    document(2**53, [row("mallory", bytes_in=7)], second=1, boot="window", samples=24, sample_ms=3_600_000),
]
"""All of eve's come to more than 2^60 bytes."""
REFUSED = [
    document(0, [WORST], boot="x", interval_ms=2**62),
    document(0, [WORST], boot="x", samples=0),
    document(0, [WORST], boot="x", samples=2**31 - 1),
    document(0, [{**WORST, "bytes_in": 2**62}], boot="x"),
    document(0, [{**WORST, "produce_limit": 1e308}], boot="x"),
    document(0, [WORST], boot="x", time_ms=253_402_300_799_000),
]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_report_of_a_period_with_hostile_documents_is_made(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    write_jsonl(folder / "edge.jsonl", [*HONEST, *REFUSED[:3], "{" * 1000, *ACCEPTED, *REFUSED[3:]])
    told: list[str] = []
    place = str(tmp_path / "warehouse")
    ingestion = Ingestion(files.source(spark, str(folder), 1000), place, told.append, lambda: BEGIN_MS + 3_600_000)
    run(ingestion, str(tmp_path / "checkpoint"), None)
    make(spark, place)
    rows = len(HONEST) + 3 * 1000 + 4
    assert ingestion.total == Tally(
        documents=len(HONEST) + len(ACCEPTED), rows=rows, rejected=7, wrong_clock=1, missing=2**53 - 1
    )
    rejected = [line for line in told if line.startswith("rejected")]
    assert [line.partition(": ")[2].rpartition("/")[2] for line in rejected] == [
        "edge.jsonl, line 121: interval_ms is 4611686018427387904, and may be from 1 to 86400000",
        "edge.jsonl, line 122: samples is 0, and may be from 1 to 1000",
        "edge.jsonl, line 123: samples is 2147483647, and may be from 1 to 1000",
    ]
    quotas = tmp_path / "proposed.yaml"
    quotas.write_text("quotas: [{entity: {user: {default: true}}, producer_byte_rate: 1000}]\n", encoding="utf-8")
    for command in (
        ["report", "--out", str(tmp_path / "out")],
        ["whatif", "--quotas", str(quotas), "--json"],
        [
            "recommend",
            "--target",
            "p99 throttle < 100 ms",
            "--out",
            str(tmp_path / "new.yaml"),
            "--accept-low-confidence",
        ],
    ):
        done = CliRunner().invoke(analyze, [command[0], "--warehouse", place, *command[1:]])
        assert done.exit_code == 0, (command, done.output, done.exception)
    clients = spark.read.parquet(*map(str, tmp_path.glob("out/report=*/talkers*"))).collect()
    sums = {each.user: each for each in clients}
    assert (sums["alice"].bytes_in, sums["alice"].requests) == (120_000, 120)
    assert sums["eve"].bytes_in == MOST_SUM
