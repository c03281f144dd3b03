import pytest

from quotas import texts
from quotas.texts import amount, count, duration, duration_of_ms, kind_word, share, shortened, shown, size


@pytest.mark.parametrize(
    ("bytes_", "said"),
    [
        (0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (1_048_575.9, "1 MiB"),
        (10_485_760, "10 MiB"), (120.4 * 2**20, "120 MiB"), (3.25 * 2**40, "3.2 TiB"), (2**63, "8192 PiB"),
    ],
)  # fmt: skip
def test_sizes_are_in_binary_units(bytes_: float, said: str) -> None:
    assert size(bytes_) == said
    assert texts.rate(bytes_) == f"{said}/s"


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        (10_485_760, "producer_byte_rate", "10 MiB/s"), (1536.0, "consumer_byte_rate", "1.5 KiB/s"),
        (float("inf"), "producer_byte_rate", "no limit"), ("Infinity", "request_percentage", "no limit"),
        (50.0, "request_percentage", "50 %"), (12.5, "request", "12.5 %"), (1234.5, "request_percentage", "1,234 %"),
        (2.5, "controller_mutation_rate", "2.5 /s"), (30, "connection_creation_rate", "30 /s"), (7, None, "7 /s"),
    ],
)  # fmt: skip
def test_amounts_are_in_the_unit_of_their_kind(value: float | str, kind: str | None, said: str) -> None:
    assert amount(value, kind) == said


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (0, "0 %"), (0.0004, "<0.1 %"), (0.005, "0.5 %"), (0.034, "3.4 %"), (0.05, "5 %"), (0.5, "50 %"),
        (0.97, "97 %"), (0.9995, "99.9 %"), (1, "100 %"), (31, "3,100 %"),
    ],
)  # fmt: skip
def test_shares_are_percent_and_only_nothing_is_zero(part: float, said: str) -> None:
    assert share(part) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"), (0.0001, "<1 ms"), (0.4, "400 ms"), (0.9996, "1 s"), (4.2, "4.2 s"), (9.96, "10 s"),
        (59.6, "1 min"), (200, "3 min 20 s"), (7200, "2 h"), (7501, "2 h 5 min"), (273_600, "3 d 4 h"),
    ],
)  # fmt: skip
def test_durations_have_at_most_two_units(seconds: float, said: str) -> None:
    assert duration(seconds) == duration_of_ms(seconds * 1000) == said


def test_counts_are_in_decimal_units() -> None:
    assert [count(number) for number in (0, 999, 1000, 12_340, 4e6)] == ["0", "999", "1 k", "12.3 k", "4 M"]


def test_kinds_are_known_by_property_and_by_word() -> None:
    assert [kind_word(name) for name in ("producer_byte_rate", "fetch", "new\n")] == ["produce", "fetch", "new\\n"]


def test_a_name_is_seen_as_it_is() -> None:
    assert shown("\u202ecod.exe\0\n") == "\\u202ecod.exe\\x00\\n"
    assert shown("café 日本") == "café 日本"


def test_a_long_name_is_cut_in_the_middle() -> None:
    assert shortened("\u202ecod.exe") == "\\u202ecod.exe"
    assert shortened("a" * 100 + "z" * 100) == f"{'a' * 21}…{'z' * 21}"
