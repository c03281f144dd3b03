import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.names import desanitise, sanitise


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_round_trip_in_characters_that_zookeeper_and_metric_names_take(name: str) -> None:
    safe = sanitise(name)
    assert desanitise(safe) == name
    assert all(character.isascii() and (character.isalnum() or character in ".-_%") for character in safe)


@pytest.mark.parametrize(
    ("name", "safe"),
    [("~*+ /", "%7E%2A%2B%20%2F"), ("\ud800x", "%3Fx"), ("<default>", "%3Cdefault%3E"), ("a.b-c_D9", "a.b-c_D9")],
)
def test_sanitise(name: str, safe: str) -> None:
    assert sanitise(name) == safe


def test_a_plus_is_a_space() -> None:
    assert desanitise("a+b%2Bc") == "a b+c"


@pytest.mark.parametrize("text", ["%", "abc%4", "%zz", "%%41"])
def test_a_malformed_escape_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(ValueError, match=f"position {text.index('%')} "):
        desanitise(text)
