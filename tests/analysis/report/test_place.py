from pathlib import Path

import pytest
from click.testing import CliRunner

from analysis.cli import analyze
from analysis.errors import AnalysisError
from analysis.report.place import check


@pytest.mark.parametrize(
    ("out", "warehouse"),
    [
        ("/w/usage", "/w"),
        ("/w/usage/", "/w/"),
        ("/w/usage/date=2026-03-01", "/w"),
        ("/w/x/../rejected/r", "/w"),
        ("file:///w/usage", "/w"),
        ("file:/w/usage/r", "file:///w"),
        ("/w/checkpoints", "/w/./"),
        ("s3a://bucket/w/usage/r", "s3a://bucket/w/"),
        ("hdfs:///w//usage", "hdfs:///w"),
        ("/usage", "/"),
        ("usage/usage", "usage"),
    ],
)
def test_a_table_is_no_place_for_a_report(out: str, warehouse: str) -> None:
    with pytest.raises(AnalysisError, match="name another directory"):
        check(out, warehouse)


@pytest.mark.parametrize(
    ("out", "warehouse"),
    [
        ("/w", "/w"),
        ("/w/reports", "/w"),
        ("/w/usage-reports", "/w"),
        ("/srv/usage", "/w"),
        ("s3a://bucket/w/usage", "s3a://other/w"),
        ("usage", "usage"),
    ],
)
def test_other_places_are(out: str, warehouse: str) -> None:
    check(out, warehouse)


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "w" / "usage").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "w" / "usage")
    with pytest.raises(AnalysisError):
        check(str(tmp_path / "link" / "reports"), str(tmp_path / "w"))


def test_the_command_says_so_before_anything_is_read() -> None:
    ran = CliRunner().invoke(analyze, ["report", "--warehouse", "/nowhere", "--out", "/nowhere/usage/reports"])
    assert ran.exit_code == 2
    assert "is in usage/ of the warehouse" in ran.stderr
