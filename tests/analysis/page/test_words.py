from datetime import UTC, datetime, timedelta

import pytest

from analysis.page import words
from analysis.page.html import name


def test_numbers_are_written_with_a_plural() -> None:
    assert words.counted(1, "client") == "1 client"
    assert words.counted(1200, "client") == "1,200 clients"


def test_a_name_is_never_markup() -> None:
    assert name("<script>alert('1')</script>") == (
        "<span class=name>&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;</span>"
    )
    assert name('"><img src=x onerror=alert(1)>' + "z" * 50).count("<") == 2  # the span and its end


def test_a_long_name_is_cut_in_the_middle_and_whole_in_its_title() -> None:
    html = name("a" * 100 + "z" * 100)
    assert f'title="{"a" * 100}{"z" * 100}"' in html
    assert f">{'a' * 21}…{'z' * 21}<" in html


def test_a_period_names_a_date_once() -> None:
    begin = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert words.from_to(begin, begin + timedelta(hours=1)) == "2026-03-01 12:00 to 13:00"
    assert words.from_to(begin, begin + timedelta(hours=12)) == "2026-03-01 12:00 to 2026-03-02 00:00"
    assert words.from_to(begin, begin + timedelta(seconds=5)) == "2026-03-01 12:00:00 to 12:00:05"


def test_client_and_counter_names_are_written_for_readers() -> None:
    assert words.client("alice", "") == "alice / (no client-id)"
    assert words.client(None, None) == "(nobody yet)"
    assert words.counter("alice", None) == "alice"
    assert words.counter(None, "app") == "app"
    assert words.counter("alice", "") == "alice / (no client-id)"


@pytest.mark.parametrize(("said", "text"), [(["a"], "a"), (["a", "b"], "a or b"), (["a", "b", "c"], "a, b or c")])
def test_any_of_joins_with_or(said: list[str], text: str) -> None:
    assert words.any_of(said) == text
