"""A quota kind is a row: with one more in the table, and nothing else, everything that goes by kinds has it.

The table is read where the program starts, so it is changed in a copy of the program, which checks itself.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("analysis", "config", "protocol", "proxy", "quotas", "tests")
REQUEST = "    REQUEST_PERCENTAGE = (\n"
ROW = """    TRANSACTION_RATE = (
        "transaction_rate",
        Row(
            word="commit",
            doing="committing",
            unit=Unit("commits_per_second", "commits", "Commits charged.", "halves", per_used=0.5),
            written=Written.NUMBER,
        ),
    )
"""
CHANGES = {
    "transaction_rate": (REQUEST, ROW + REQUEST),
    "request_percentage": (REQUEST, REQUEST),
}
"""By kind: one that Kafka has not, and one that is there already, of a unit of its own."""


@pytest.fixture
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    table = tmp_path / "quotas" / "kinds.py"
    before, after = CHANGES[request.param]
    text = table.read_text(encoding="utf-8")
    assert text.count(before) == 1
    table.write_text(text.replace(before, after), encoding="utf-8")
    return str(request.param)


def checked(kind: str, folder: Path, checks: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", checks],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "ADDED_KIND": kind},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.uncompiled("a copy of the sources is changed")
@pytest.mark.parametrize(
    "kind",
    [
        "transaction_rate",
        pytest.param("request_percentage", marks=pytest.mark.slow),  # a second process
    ],
    indirect=True,
)
def test_added_kind_reaches_quota_file_counters_usage_records_and_metrics(kind: str, tmp_path: Path) -> None:
    checked(kind, tmp_path, "tests/proxy/added_kind.py")


@pytest.mark.spark
@pytest.mark.matrix
@pytest.mark.parametrize("kind", ["request_percentage"], indirect=True)
def test_added_kind_reaches_the_analysis_tables(kind: str, tmp_path: Path) -> None:
    checked(kind, tmp_path, "tests/analysis/added_kind.py")
