"""Reports in a loop beside ``ingest --every``, which makes gold after each batch: each one that is made is whole."""

import csv
import json
import signal
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Final

import duckdb
import pytest
from click.testing import CliRunner

from analysis.cli import analyze
from quotas import texts
from tests.analysis.records import document, row, write_jsonl
from tests.harness.process import Program

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT: Final = Path(__file__).resolve().parents[2]
SPARK: Final = ("--master", "local[1]", "--conf", "spark.driver.memory=700m")
LASTS_S: Final = 60
DOCUMENTS: Final = 5
"""So many more before each report."""
BEGINS_S: Final = 43_140
"""After noon: a minute before midnight."""
USED: Final = {"alice": 1000, "bob": 500}
MUTED_MS: Final = 250
"""Of each, in each second."""
BUSY: Final = (
    "gold changed while it was read",
    "gold cannot be read",
    "no usage records here",
    "are not made of them yet",
)
"""What a report ends with before there is gold, or if gold is made twice while it is."""
Rows = list[dict[str, Any]]


def add(folder: Path, number: int) -> None:
    seqs = range(number * DOCUMENTS, (number + 1) * DOCUMENTS)
    of = {"produce_rule": "user-group=tenant-a", "produce_limit": 1e3, "produce_throttled": 1, "produce_throttle_ms": 9}
    rows = [
        row(user, "app", bytes_in=used, produce_bytes=used, requests=1, produce_muted_ms=MUTED_MS, **of)
        for user, used in USED.items()
    ]
    made = write_jsonl(folder / "aside", [document(seq, rows, second=BEGINS_S + seq) for seq in seqs])
    made.rename(folder / "files" / f"{number:05}.jsonl")


def figures(tables: Mapping[str, Rows]) -> dict[str, Sequence[float]]:
    """What each table says: all of it grows with the documents."""

    def total(table: str, column: str, **where: object) -> float:
        chosen = [each for each in tables[table] if all(each[name] == value for name, value in where.items())]
        return float(sum(each[column] for each in chosen))

    [totals] = tables["totals"]
    return {
        "documents": [totals["documents"], total("loss", "documents")],
        "rows": [totals["rows"], total("loss", "rows"), total("talkers", "rows")],
        "bytes": [
            totals["bytes_in"],
            total("talkers", "bytes_in"),
            total("over_time", "bytes_in"),
            total("rules", "used", kind="produce"),
            total("chargeback", "ConsumedQuantity", SkuId="bytes_in"),
        ],
        "muted_ms": [
            totals["muted_ms"],
            total("talkers", "muted_ms"),
            total("rules", "muted_ms"),
            total("episodes", "muted_ms"),
            round(total("caused", "caused_ms"), 3),
        ],
        "seconds": [total("headroom", "used_s")],
    }


def test_reports_beside_ingest_are_whole(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    warehouse = str(tmp_path / "w")
    source = ["ingest", "--warehouse", warehouse, "--files", str(tmp_path / "files"), "--every", "1s", *SPARK]
    program = [sys.executable, str(ROOT / "tests" / "analysis" / "ingest_often.py"), *source]
    ends: Counter[str] = Counter()
    seen = []
    with Program("ingest", program, tmp_path / "log", environment={"PYTHONPATH": str(ROOT)}) as ingest:
        add(tmp_path, 0)
        ingest.wait_until(lambda: "gold of" in ingest.output(), "gold", 300)
        end_s, number = monotonic() + LASTS_S, 0
        while monotonic() < end_s:
            number += 1
            add(tmp_path, number)
            ran = CliRunner().invoke(analyze, ["report", "--warehouse", warehouse, "--json"])
            if ran.exit_code:
                ends[next((each for each in BUSY if each in ran.output), ran.output)] += 1
                continue
            seen.append(require_whole(json.loads(ran.stdout)))
        ingest.signal(signal.SIGTERM)
        assert ingest.wait(60) == 0, ingest.tail()
    makings = ingest.output().count("gold of 2026-")
    print(f"{len(seen)} reports of {len(set(seen))} states beside {makings} makings; {dict(ends)}")
    assert set(ends) <= set(BUSY), ends
    assert len(seen) > sum(ends.values())
    assert len(set(seen)) > 1
    assert seen == sorted(seen)


def require_whole(said: dict[str, Any]) -> int:
    """Require that all tables, the bill and the page of a report are of the same documents; return how many."""
    found = figures(said["tables"])
    documents = int(found["documents"][0])
    used, muted_ms = documents * sum(USED.values()), documents * len(USED) * MUTED_MS
    expected = {
        "documents": documents,
        "rows": 2 * documents,
        "bytes": used,
        "muted_ms": muted_ms,
        "seconds": documents,
    }
    assert found == {name: [value] * len(found[name]) for name, value in expected.items()}
    [totals] = said["tables"]["totals"]
    assert said["notes"] or not totals["missing"]  # dates are made one after the other
    page = Path(said["page"])
    text = page.read_text(encoding="utf-8")
    for each in (
        f"<strong>{texts.size(float(used))}</strong><span>in</span>",
        f"<dd>{2 * documents:,} rows of 1 proxy",
        f"for {texts.duration_of_ms(float(muted_ms))} (",
    ):
        assert each in text
    with (page.parent / "chargeback.csv").open(encoding="utf-8") as file:
        billed = sum(int(each["ConsumedQuantity"]) for each in csv.DictReader(file) if each["SkuId"] == "bytes_in")
    stored = duckdb.execute(f"SELECT sum(bytes_in) FROM '{page.parent}/talkers.parquet'").fetchall()  # noqa: S608  a path of ours
    assert (billed, stored) == (used, [(used,)])
    return documents
