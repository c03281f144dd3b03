from datetime import UTC, datetime, timedelta

import pytest

from analysis.page import words


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"), (0.04, "< 0.1 s"), (0.4, "0.4 s"), (9.96, "10 s"), (59.6, "1 min"), (200, "3 min 20 s"),
        (7200, "2 h"), (7501, "2 h 5 min"), (273_600, "3 d 4 h"),
    ],
)  # fmt: skip
def test_duration_is_written_in_readable_units(seconds: float, said: str) -> None:
    assert words.duration(seconds) == said


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (0, "0 %"),
        (0.0004, "< 0.1 %"),
        (0.034, "3.4 %"),
        (0.5, "50 %"),
        (0.9995, "> 99.9 %"),
        (1, "100 %"),
        (31, "3,100 %"),
    ],
)
def test_share_is_written_as_a_percentage(share: float, said: str) -> None:
    assert words.percent(share) == said


@pytest.mark.parametrize(
    ("bytes_", "said"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1_048_575, "1 MiB"),
        (10_485_760, "10 MiB"),
        (3.25 * 2**40, "3.2 TiB"),
    ],
)
def test_size_is_written_in_binary_units(bytes_: float, said: str) -> None:
    assert words.size(bytes_) == said


def test_count_is_written_with_unit_and_plural() -> None:
    assert [words.count(number) for number in (0, 999, 1000, 12_340, 4e6)] == ["0", "999", "1 k", "12.3 k", "4 M"]
    assert words.counted(1, "client") == "1 client"
    assert words.counted(1200, "client") == "1,200 clients"


def test_a_name_is_never_markup() -> None:
    assert words.name("<script>alert('1')</script>") == (
        "<span class=name>&lt;script&gt;alert(&#x27;1&#x27;)&lt;/script&gt;</span>"
    )
    assert words.name('"><img src=x onerror=alert(1)>', most=10).count("<") == 2  # the span and its end


def test_a_name_is_seen_as_it_is() -> None:
    assert words.plain("\u202ecod.exe\0\n") == "\\u202ecod.exe\\x00\\n"
    assert words.plain("café 日本") == "café 日本"


def test_a_long_name_is_cut_in_the_middle_and_whole_in_its_title() -> None:
    name = words.name("a" * 100 + "z" * 100)
    assert f'title="{"a" * 100}{"z" * 100}"' in name
    assert f">{'a' * 21}…{'z' * 21}<" in name


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
