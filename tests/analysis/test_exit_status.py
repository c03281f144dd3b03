"""An exit status of 1 is an answer of what-if and recommend: no error may look like it."""

from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from analysis.cli import analyze
from analysis.demand import sums
from analysis.errors import RunError
from tests.analysis.golden import warehouse_of
from tests.analysis.loads import MB, Load, documents
from tests.analysis.whatif.recorded import uneven

QUOTAS = "quotas:\n- {entity: {user: alice}, producer_byte_rate: 1MB}\n"
TOLD = "analysis.errors.RunError: part-0.parquet: no footer"


def arguments(command: str, warehouse: str, folder: Path) -> list[str]:
    path = folder / "quotas.yaml"
    path.write_text(QUOTAS)
    more = ["--fail-if-throttled"] if command == "whatif" else ["--target", "p99 throttle < 1 s"]
    return [command, "--warehouse", warehouse, "--quotas", str(path), *more]


@pytest.mark.parametrize("command", ["whatif", "recommend"])
@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (RunError("part-0.parquet: no footer"), 2, "error: part-0.parquet: no footer\n"),
        (RuntimeError(TOLD), 2, "error: part-0.parquet: no footer\n"),
        (ZeroDivisionError("of ours"), 2, "ZeroDivisionError: of ours\n"),
        (BrokenPipeError(), 2, ""),
        (KeyboardInterrupt(), 130, "stopped\n"),
    ],
)
def test_no_error_ends_with_1(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    error: BaseException,
    status: int,
    said: str,
) -> None:
    def start(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(sums, "read", start)
    ran = CliRunner().invoke(analyze, arguments(command, "nowhere", tmp_path))
    assert (ran.exit_code, ran.stdout) == (status, "")
    assert ran.stderr.endswith(said)


def test_the_help_ends_with_0() -> None:
    assert CliRunner().invoke(analyze, ["whatif", "--help"]).exit_code == 0


@pytest.fixture(scope="module")
def damaged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of a warehouse that lost its end."""
    made = documents([Load("alice", "app", uneven(2 * MB, 1, 60))])
    warehouse = warehouse_of(spark, made, tmp_path_factory.mktemp("damaged"))
    first = min(Path(warehouse, "gold", "client_hour").rglob("*.parquet"))
    first.write_bytes(first.read_bytes()[:-20])
    return first


@pytest.mark.spark
@pytest.mark.parametrize("command", ["whatif", "recommend"])
def test_a_file_that_cannot_be_read_is_an_error(damaged: Path, tmp_path: Path, command: str) -> None:
    warehouse = next(str(each.parent) for each in damaged.parents if each.name == "gold")
    ran = CliRunner().invoke(analyze, arguments(command, warehouse, tmp_path))
    assert ran.exit_code == 2
    assert damaged.name in ran.stderr
    assert "Traceback" not in ran.stderr
