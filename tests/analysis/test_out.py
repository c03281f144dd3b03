from pathlib import Path

import pytest
from click.testing import CliRunner

from analysis.cli import analyze
from analysis.errors import AnalysisError
from analysis.options import beside, refuse_table


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
        refuse_table(out, warehouse)


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
def test_report_folder_outside_the_tables_is_accepted(out: str, warehouse: str) -> None:
    refuse_table(out, warehouse)


def test_report_folder_linked_into_a_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w" / "usage").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "w" / "usage")
    with pytest.raises(AnalysisError):
        refuse_table(str(tmp_path / "link" / "reports"), str(tmp_path / "w"))


def test_report_into_a_table_is_refused_before_reading() -> None:
    ran = CliRunner().invoke(analyze, ["report", "--warehouse", "/nowhere", "--out", "/nowhere/usage/reports"])
    assert ran.exit_code == 2
    assert "is in usage/, a table of the warehouse" in ran.stderr


@pytest.mark.parametrize(
    ("warehouse", "reports"),
    [
        ("usage", "usage-reports"),
        ("/srv/usage/", "/srv/usage-reports"),
        ("file:///srv/usage", "file:///srv/usage-reports"),
        ("s3a://bucket/usage/", "s3a://bucket/usage-reports"),
        ("hdfs:///sluice", "hdfs:///sluice-reports"),
        ("s3a://bucket", None),
        ("s3a://bucket/", None),
        ("hdfs:///", None),
        ("/", None),
    ],
)
def test_default_report_folder_is_beside_the_warehouse(warehouse: str, reports: str | None) -> None:
    if reports is None:
        with pytest.raises(AnalysisError, match=f"--out is needed.*beside {warehouse}"):
            beside(warehouse)
    else:
        assert beside(warehouse) == reports


def test_relative_warehouse_gets_report_folder_beside_its_real_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "w" / "in").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "w" / "in")
    assert beside(".") == f"{tmp_path}/w/in-reports"
    assert beside("../../w/..") == f"{tmp_path}-reports"
