import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.identity.java import characters
from proxy.identity.java.characters import Characters

POINTS = st.integers(0, 0x10FFFF)
SETS = st.lists(st.tuples(POINTS, st.integers(0, 200))).map(
    lambda ranges: characters.united((first, min(first + more, 0x10FFFF)) for first, more in ranges)
)


def holds(found: Characters, point: int) -> bool:
    return any(first <= point <= last for first, last in found)


@given(SETS, POINTS)
def test_all_but_holds_what_is_not_held(found: Characters, point: int) -> None:
    assert holds(characters.all_but(found), point) != holds(found, point)
    assert characters.all_but(characters.all_but(found)) == found


@given(SETS, POINTS)
def test_what_is_written_matches_what_is_held(found: Characters, point: int) -> None:
    matches = re.fullmatch(characters.written(found), chr(point)) is not None
    assert matches == holds(found, point)


@pytest.mark.parametrize("point", [*range(0x80), ord("ü"), ord("Ü"), 0x212A, 0x17F])
def test_in_any_case_joins_the_cases_of_ascii(point: int) -> None:
    joined = characters.in_any_case(((point, point),))
    wanted = {point, ord(chr(point).lower()), ord(chr(point).upper())} if point < 0x80 else {point}
    assert {held for held in range(0x2200) if holds(joined, held)} == wanted


@pytest.mark.parametrize(
    ("name", "pattern"),
    [("Alpha", "[A-Za-z]"), ("Alnum", "[A-Za-z0-9]"), ("XDigit", "[0-9A-Fa-f]"), ("Space", r"[ \t-\r]")],
)
def test_the_posix_classes(name: str, pattern: str) -> None:
    assert all(holds(characters.POSIX[name], p) == bool(re.match(pattern, chr(p))) for p in range(0x300))
    assert holds(characters.POSIX["Graph"], 0x20) is False
    assert sum(last - first + 1 for first, last in characters.POSIX["Punct"]) == 32
