"""The documented line of spark-submit, by a real master and two workers on loopback; nothing else is needed."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import duckdb
import pytest

from tests.analysis.records import document, row, write_jsonl
from tests.integration.standalone import Standalone, python_without_us

pytestmark = [pytest.mark.spark, pytest.mark.matrix]

ROOT: Final = Path(__file__).parents[2]
DOCUMENTS: Final = 180
"""One a minute: three hours."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("standalone")) as started:
        yield started


def documented(cluster: Standalone, folder: Path) -> list[str]:
    """The arguments of the line in docs/analysis.md, with this cluster, a directory, and files for brokers."""
    text = (ROOT / "docs" / "analysis.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"Spark standalone:\n\n```sh\n(?:PYSPARK_PYTHON=\S+ )?spark-submit (.*?)```", text, re.DOTALL)
    words = shlex.split(line.replace("\\\n", " "))
    ours = {
        "--master": cluster.url,
        "--packages": None,  # of the connector, whose jars are tested elsewhere
        "--warehouse": str(folder / "warehouse"),
        "--bootstrap": None,
    }
    found: list[str] = []
    for at, word in enumerate(words):
        if at and words[at - 1] in ours:
            continue
        value = ours.get(word, "")
        if value is not None:
            found += [word, value] if word in ours else [word]
    found[found.index("$ANALYSIS")] = str(ROOT / "analysis" / "__main__.py")
    return [*found, "--files", str(folder / "files")]


def test_documented_spark_submit_line_runs_on_standalone_cluster(cluster: Standalone, tmp_path: Path) -> None:
    """Then a report and a compaction, by the same line with another command."""
    (tmp_path / "files").mkdir()
    for part in range(4):
        documents = [
            document(seq, [row("alice", bytes_in=seq), row("bob")], second=60 * seq)
            for seq in range(part, DOCUMENTS, 4)
        ]
        write_jsonl(tmp_path / "files" / f"{part}.jsonl", documents)
    line = documented(cluster, tmp_path)
    at = line.index("ingest")
    settings = {"spark.executor.memory": "512m", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    conf = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    environment = {"PYSPARK_PYTHON": str(python_without_us(tmp_path)), "SPARK_LOCAL_IP": "127.0.0.1"}

    def submit(*command: str) -> str:
        status, output = cluster.submit(command[0], [*conf, *line[:at], *command], environment)
        assert status == 0, output
        return output

    assert f"{DOCUMENTS} documents, {2 * DOCUMENTS} rows" in submit(*line[at:])
    warehouse = ["--warehouse", str(tmp_path / "warehouse")]
    submit("report", *warehouse, "--out", str(tmp_path / "out"))
    (page,) = (tmp_path / "out").glob("report=*/report.html")
    assert "alice" in page.read_text(encoding="utf-8")
    submit("compact", *warehouse)
    table = f"{tmp_path}/warehouse/usage/date=*/hour=*/batch=*/*.parquet"
    found = duckdb.execute(
        "SELECT count(*), sum(bytes_in), count(DISTINCT filename) FROM read_parquet(?, filename=true)", [table]
    )
    rows, total, files = found.fetchall()[0]
    assert (rows, total) == (2 * DOCUMENTS, sum(range(DOCUMENTS)))
    assert files >= 3
