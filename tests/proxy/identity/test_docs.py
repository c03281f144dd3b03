"""docs/security.md names what is there."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.identity import java_regex

TESTS = Path(__file__).parents[2]
PAGE = (TESTS.parent / "docs" / "security.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ([0-9]+) \|([^|]*)\|([^|]*)\|([^|]*)\|$", PAGE, flags=re.MULTILINE)


def named(cell: str) -> Iterator[tuple[str, str]]:
    """Yield file and test of each name in a cell; one without a file is in the file before it."""
    file = ""
    for written, test in re.findall(r"`(\w+\.py)?::(\w+)`", cell):
        file = written or file
        yield file, test


def test_every_attempt_has_its_row() -> None:
    assert [int(number) for number, *_ in ROWS] == list(range(1, 13))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1].strip())
def test_the_tests_exist(row: tuple[str, str, str, str]) -> None:
    _, _, sans_io, with_broker = row
    assert list(named(sans_io))
    for folder, cell in ((TESTS / "proxy" / "identity", sans_io), (TESTS / "integration", with_broker)):
        for file, test in named(cell):
            tree = ast.parse((folder / file).read_text(encoding="utf-8"))
            there = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
            assert test in there, f"{file} has no {test}"


def test_what_is_refused_of_javas_patterns_is_the_same_in_code_and_page() -> None:
    doc = java_regex.__doc__ or ""
    refused = doc.split("Refused are\n")[1].strip()
    assert refused in PAGE, "copy the list from proxy/identity/java_regex.py"
