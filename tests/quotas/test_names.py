from hashlib import sha256
from sys import getsizeof

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.names import MAX_NAME_BYTES, NameBudget, configured_as, counted_as, desanitise, sanitise


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_sanitised_name_is_safe_for_zookeeper_and_reads_back(name: str) -> None:
    safe = sanitise(name)
    assert desanitise(safe) == name
    assert all(character.isascii() and (character.isalnum() or character in ".-_%") for character in safe)


@pytest.mark.parametrize(
    ("name", "safe"),
    [("~*+ /", "%7E%2A%2B%20%2F"), ("\ud800x", "%3Fx"), ("<default>", "%3Cdefault%3E"), ("a.b-c_D9", "a.b-c_D9")],
)
def test_name_is_sanitised_as_in_kafka(name: str, safe: str) -> None:
    assert sanitise(name) == safe


def test_plus_in_a_sanitised_name_reads_as_space() -> None:
    assert desanitise("a+b%2Bc") == "a b+c"


@pytest.mark.parametrize("text", ["%", "abc%4", "%zz", "%%41"])
def test_a_malformed_escape_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(ValueError, match=f"position {text.index('%')} "):
        desanitise(text)


@pytest.mark.parametrize("name", ["", "app", "x" * 256, "ü" * 128, "漢" * 85, "🎈" * 64, "a" * 191 + "~" + "0" * 64])
def test_a_name_of_up_to_256_bytes_is_itself(name: str) -> None:
    assert counted_as(name) == configured_as(name) == name


@pytest.mark.parametrize("name", ["x" * 257, "ü" * 129, "漢" * 86, "🎈" * 65, "x" * 32_767, "y" * 99 + "\udc80" * 99])
def test_long_name_is_counted_by_its_beginning_and_digest(name: str) -> None:
    beginning, _, digest = counted_as(name).rpartition("~")
    assert digest == sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    assert name.startswith(beginning)
    assert len(counted_as(name).encode()) <= 128
    assert counted_as(name) != counted_as(name + "x")


def test_name_equal_to_a_shortened_one_is_counted_apart() -> None:
    cut = counted_as("x" * 300)
    assert counted_as(cut) not in (cut, "x" * 300)
    assert counted_as("~" + "0" * 64) != "~" + "0" * 64


def test_a_quota_may_be_for_a_long_name_and_for_what_is_shown_of_it() -> None:
    name = "x" * 300
    assert configured_as(name) == configured_as(counted_as(name)) == counted_as(name)


@given(st.text(max_size=400), st.text(max_size=400))
def test_no_two_names_are_counted_as_one_and_none_is_too_long(name: str, other: str) -> None:
    assert (counted_as(name) == counted_as(other)) is (name == other)
    assert len(counted_as(name).encode("utf-8", "surrogatepass")) <= MAX_NAME_BYTES


def test_name_budget_counts_bytes_of_names_in_memory() -> None:
    room = NameBudget(getsizeof("漢" * 100))
    room.take("漢" * 99)
    assert not room.full
    room.take("a")
    assert room.full
    room.give_back("a")
    assert not room.full
