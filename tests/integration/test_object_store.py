"""A warehouse in S3: exactly once though killed, a report, its maintenance. moto's server stands in for S3."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pytest
from click.testing import CliRunner

from analysis.cli import analyze
from tests.analysis.records import document, row, write_jsonl
from tests.analysis.report import by_hand
from tests.harness.object_store import ObjectStore
from tests.harness.process import Program

pytestmark = pytest.mark.spark

ROOT: Final = Path(__file__).parents[2]
DOCUMENTS: Final = 180
"""One a minute: three hours."""
WAREHOUSE: Final = f"s3a://{ObjectStore.bucket}/usage"
LOCAL: Final = ("--master", "local[2]", "--conf", "spark.driver.memory=1g")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with ObjectStore(tmp_path_factory.mktemp("store")) as started:
        yield started


def stored(store: ObjectStore, warehouse: str) -> tuple[int, int]:
    """Rows and bytes in the table, as an engine finds them that knows nothing of Spark or of Sluice."""
    files = pafs.S3FileSystem(
        access_key=store.key, secret_key=store.key, endpoint_override=store.address, scheme="http", region="us-east-1"
    )
    table = ds.dataset(f"{warehouse.removeprefix('s3a://')}/usage", filesystem=files, format="parquet").to_table(
        ["bytes_in"]
    )
    return len(table), pc.sum(table["bytes_in"]).as_py()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("batches", [1, pytest.param(2, marks=pytest.mark.matrix)])
def test_killed_ingest_into_s3_stores_every_record_once(store: ObjectStore, tmp_path: Path, batches: int) -> None:
    """Killed at each of several moments of a batch: a file of rows is moved, one of documents, all is told."""
    (tmp_path / "files").mkdir()
    (tmp_path / "notes").mkdir()
    warehouse = f"{WAREHOUSE}-{batches}"
    for part in range(batches):
        seqs = range(part, DOCUMENTS, batches)
        documents = [document(seq, [row("alice", bytes_in=seq), row("bob")], second=60 * seq) for seq in seqs]
        write_jsonl(tmp_path / "files" / f"{part}.jsonl", documents)

    def run(name: str, program: list[str]) -> tuple[int, str]:
        spark = [] if name == "report" else [*LOCAL, *store.conf]
        environment = {"PYTHONPATH": str(ROOT), **store.environment}
        command = [sys.executable, *program, *spark]
        with Program(name, command, tmp_path / f"{name}.log", environment=environment) as started:
            status = started.wait(1200.0)
        return status, started.output()

    killed = [str(ROOT / "tests" / "integration" / "killed_ingest.py"), str(tmp_path / "notes"), "ingest"]
    source = ["--warehouse", warehouse, "--files", str(tmp_path / "files"), "--once", "--max-documents", "1"]
    statuses: list[int] = []
    while not statuses or statuses[-1] == -signal.SIGKILL:
        status, output = run(f"ingest-{len(statuses)}", [*killed, *source])
        assert status in (0, -signal.SIGKILL), output
        statuses.append(status)
    assert len(statuses) >= 2
    expected = (2 * DOCUMENTS, sum(range(DOCUMENTS)))
    assert stored(store, warehouse) == expected
    for command in (["report", "--out", str(tmp_path / "out")], ["compact"]):
        status, output = run(command[0], ["-m", "analysis", *command, "--warehouse", warehouse])
        assert status == 0, output
    (page,) = (tmp_path / "out").glob("report=*/report.html")
    assert "alice" in page.read_text(encoding="utf-8")
    assert stored(store, warehouse) == expected


@pytest.mark.integration
def test_report_reads_gold_from_s3_without_spark(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gold is read, and the report written, by Arrow: without Spark, and by the environment alone."""
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    by_hand.write(tmp_path / "gold", {by_hand.HOUR: by_hand.busy()})
    bucket, _ = pafs.FileSystem.from_uri(f"s3://{store.bucket}")
    pafs.copy_files(str(tmp_path / "gold"), f"{store.bucket}/made", pafs.LocalFileSystem(), bucket)
    bucket.create_dir(f"{store.bucket}/made/usage/date=2026-03-01/hour=12/batch=b-0")
    made = CliRunner().invoke(analyze, ["report", "--warehouse", f"s3a://{store.bucket}/made"])
    assert made.exit_code == 0, made.output
    place = f"{store.bucket}/made-reports/report=20260301T120000Z-20260301T130000Z"
    assert made.output.splitlines()[-1] == f"s3a://{place}/report.html"
    with bucket.open_input_file(f"{place}/report.html") as page:
        said = page.read().decode()
    assert "alice / orders-service" in said
    assert '<a href="../index.html">all reports</a>' in said
    with bucket.open_input_file(f"{store.bucket}/made-reports/index.html") as index:
        assert f'<a href="{place.rpartition("/")[2]}/report.html">' in index.read().decode()
    assert len(ds.dataset(f"{place}/talkers.parquet", filesystem=bucket).to_table()) == len(by_hand.NAMES)
