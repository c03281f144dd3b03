"""The files of a report that programs and spreadsheets read."""

import csv
import json
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from analysis.cli import analyze
from tests.analysis.report import by_hand
from tests.analysis.report.by_hand import HOUR, HOUR_MS, Row, busy, client, quiet
from tests.analysis.report.test_report import report, table

FORMULAS: Final = (
    "=cmd|' /C calc'!A0",
    "x;=cmd",
    'x;"=cmd',
    "x\t=cmd",
    "x,@sum",
    "x\n+1",
    "x\r\n-1",
    "x;;;\u200b\uff1dcmd",
    "x; \"'=cmd",
    "\t=cmd",
    "\ralice",
)
_IGNORED: Final = ' \t\r\n"\u200b'


def named(*users: str) -> by_hand.Tables:
    """An hour of clients with these names."""
    return {
        "client": [client(user=user, bytes_in=5) for user in users],
        "users": [{"user": user, "bytes_in": 5, "exempt": False} for user in users],
        "documents": by_hand.documents(HOUR, range(3)),
    }


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_no_cell_is_a_formula_whatever_separates_cells(tmp_path: Path, separator: str) -> None:
    by_hand.write(tmp_path / "w", {HOUR: named(*FORMULAS)})
    folder = report(tmp_path / "w", "--csv")
    for path in (folder / "chargeback.csv", folder / "talkers.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            cells = [cell for row in csv.reader(file, delimiter=separator) for cell in row]
        assert not [each for each in cells if each.lstrip(_IGNORED)[:1] in {*"=+-@\uff1d"}]
    with (folder / "chargeback.csv").open(encoding="utf-8", newline="") as file:
        users = {each["SubAccountId"] for each in csv.DictReader(file)}
    assert {each.replace("'", "") for each in users} == {each.replace("'", "") for each in FORMULAS}


def test_texts_are_in_quotes_and_numbers_are_not(tmp_path: Path) -> None:
    by_hand.write(tmp_path / "w", {HOUR: named("alice")})
    lines = (report(tmp_path / "w") / "chargeback.csv").read_text(encoding="utf-8").splitlines()
    assert all('"alice","alice","bytes_' in line or '"alice","alice","requests"' in line for line in lines[1:])
    assert any('"bytes_in",5,' in line for line in lines)


def test_a_null_stays_null_in_every_table(tmp_path: Path) -> None:
    """Requests have no bytes; a sum beyond a BIGINT becomes the largest."""
    held = {"begin_ms": HOUR_MS, "end_ms": HOUR_MS + 1000, "muted_ms": 9, "throttled": 1}
    muted: list[Row] = [
        {**held, "kind": "request", "rule": "user=alice", "bytes": None},
        *({**held, "user": "mallory", "bytes": 2**62} for _ in range(3)),
    ]
    by_hand.write(tmp_path / "w", {HOUR: quiet() | {"muted": muted}})
    folder = report(tmp_path / "w")
    assert {each["kind"]: each["bytes"] for each in table(folder, "episodes")} == {
        "request": None,
        "produce": 2**63 - 1,
    }
    for path in folder.glob("*.parquet"):
        large = [name for each in table(folder, path.stem) for name, value in each.items() if value == 2**63 - 1]
        assert large == (["bytes"] if path.stem == "episodes" else []), path.name


def test_json_has_the_answer_and_all_rows(tmp_path: Path) -> None:
    by_hand.write(tmp_path / "w", {HOUR: busy()})
    made = CliRunner().invoke(analyze, ["report", "--warehouse", str(tmp_path / "w"), "--json"])
    found = json.loads(made.stdout)
    assert found["answer"].startswith("6 of 6 clients were throttled")
    assert found["begin"] == "2026-03-01T12:00:00+00:00"
    folder = Path(found["page"]).parent
    assert {path.stem for path in folder.glob("*.parquet")} == found["tables"].keys()
    for name, rows in found["tables"].items():
        assert len(rows) == len(table(folder, name)), name
    assert {each["muted_ms"] for each in found["tables"]["episodes"]} == {1000 * (n + 1) for n in range(18)}


def test_csv_has_every_table(tmp_path: Path) -> None:
    by_hand.write(tmp_path / "w", {HOUR: busy()})
    folder = report(tmp_path / "w", "--csv")
    for path in folder.glob("*.parquet"):
        with path.with_suffix(".csv").open(encoding="utf-8", newline="") as file:
            rows = [*csv.DictReader(file)]
        assert len(rows) == len(table(folder, path.stem)), path.stem
