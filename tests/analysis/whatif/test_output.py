"""``whatif --out`` replaces what an earlier what-if made, and nothing else."""

from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from analysis.cli import analyze
from analysis.spark import session
from tests.analysis.golden import warehouse_of
from tests.analysis.loads import MB, Load, documents
from tests.analysis.whatif.recorded import uneven


@pytest.fixture(scope="module")
def recorded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    made = documents([Load("alice", "app", uneven(2 * MB, 1, 60))])
    return warehouse_of(spark, made, tmp_path_factory.mktemp("warehouse"))


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object) -> NoReturn:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "start", start)


def run(warehouse: str, out: str, folder: Path) -> Result:
    path = folder / "proposed.yaml"
    path.write_text("quotas:\n- {entity: {user: alice}, producer_byte_rate: 1MB}\n")
    return CliRunner().invoke(analyze, ["whatif", "--warehouse", warehouse, "--quotas", str(path), "--out", out])


@pytest.mark.spark
@pytest.mark.slow
def test_whatif_output_replaces_that_of_an_earlier_run(recorded: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for _ in range(2):
        ran = run(recorded, f"{out}/", tmp_path)
        assert ran.exit_code == 0, ran.output
        assert ran.stderr.endswith(f"{out}/whatif.html\n")
        assert pq.read_table(out / "whatif").num_rows == 1


@pytest.mark.spark
@pytest.mark.slow
def test_whatif_output_leaves_foreign_files_in_place(recorded: str, tmp_path: Path) -> None:
    assert run(recorded, str(tmp_path), tmp_path).exit_code == 0
    theirs = tmp_path / "whatif" / "joined.parquet"
    pq.write_table(pa.table({"a": [1]}), theirs)
    assert run(recorded, str(tmp_path), tmp_path).exit_code == 0
    assert pq.read_table(theirs).num_rows == 1


@pytest.mark.parametrize("out", ["usage", "usage/date=2026-03-01", "rejected/x"])
def test_whatif_output_into_a_warehouse_table_is_refused(no_spark: None, tmp_path: Path, out: str) -> None:
    ran = run(str(tmp_path), f"{tmp_path}/{out}", tmp_path)
    assert ran.exit_code == 2
    assert "a table of the warehouse: name another directory" in ran.stderr


@pytest.mark.parametrize("out", ["file", "file/sub", "taken", "file:{}/file"])
def test_whatif_output_into_a_file_is_refused(no_spark: None, tmp_path: Path, out: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "whatif").touch()
    ran = run("nowhere", out.format(tmp_path) if ":" in out else f"{tmp_path}/{out}", tmp_path)
    assert ran.exit_code == 2
    assert "cannot be written" in ran.stderr
