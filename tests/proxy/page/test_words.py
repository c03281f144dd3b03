import pytest

from proxy.page import draw, words


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        (0, "producer_byte_rate", "0 B/s"), (1_048_576, "producer_byte_rate", "1.0 MiB/s"),
        (1_048_575.9, "consumer_byte_rate", "1.0 MiB/s"), (2**63, "producer_byte_rate", "8192 PiB/s"),
        (float("inf"), "producer_byte_rate", "unlimited"), (50.0, "request_percentage", "50 %"),
        (2.5, "controller_mutation_rate", "2.5 /s"), (None, "producer_byte_rate", words.UNKNOWN),
        (1, None, words.UNKNOWN),
    ],
)  # fmt: skip
def test_amounts_are_in_the_unit_of_their_kind(value: float | None, kind: str | None, said: str) -> None:
    assert words.amount(value, kind) == said


@pytest.mark.parametrize(
    ("ms", "said"),
    [(None, words.UNKNOWN), (0, "0 ms"), (999, "999 ms"), (4200, "4.2 s"), (9960, "10 s"), (59_600, "1 min"),
     (200_000, "3 min 20 s"), (7_501_000, "2 h 5 min"), (273_600_000, "3 d 4 h")],
)  # fmt: skip
def test_durations_are_written_in_at_most_two_units(ms: float | None, said: str) -> None:
    assert words.duration(ms) == said


@pytest.mark.parametrize(
    ("share", "said"),
    [(None, words.UNKNOWN), (0, "0 %"), (0.0004, "< 0.1 %"), (0.004, "0.4 %"), (0.83, "83 %"), (12.4, "1240 %")],
)
def test_shares_are_written_as_rounded_percent(share: float | None, said: str) -> None:
    assert words.percent(share) == said


def test_times_with_offset_are_shown_in_utc() -> None:
    assert words.moment("2026-03-01T12:00:05.250Z") == "2026-03-01 12:00:05"
    assert words.moment("2026-03-01T13:00:05+01:00") == "2026-03-01 12:00:05"
    assert words.away("2026-03-01T12:00:00Z", "2026-03-01T12:03:20Z") == "3 min 20 s"


def test_a_long_name_is_cut_in_the_middle() -> None:
    assert words.short("\u202ecod.exe") == "\\u202ecod.exe"
    assert words.short("a" * 100 + "z" * 100) == f"{'a' * 22}…{'z' * 22}"


def test_a_line_is_drawn_to_the_right_edge_and_has_gaps() -> None:
    svg = draw.hour([1.0, None, 0.5], [0, 0, 0.4], limit=1.0)
    assert '<path class="line" d="M57 2.1H58M59 12.5H60"/>' in svg
    assert '<rect class="hot" x="59" y="22.0" width="1" height="2.0"/>' in svg
    assert '<path class="limit" d="M0 2.1H60"/>' in svg


def test_chart_without_points_has_no_line() -> None:
    assert 'class="line"' not in draw.hour([None] * 60, [None] * 60)
    assert 'd="M0 23.0H1"' in draw.hour([0.0], []).replace("M59", "M0").replace("H60", "H1")


@pytest.mark.parametrize(("ratio", "css", "width"), [(None, "cool", 0.0), (0.8, "warm", 80.0), (7, "hot", 100.0)])
def test_a_bar_shows_how_near_the_limit_is(ratio: float | None, css: str, width: float) -> None:
    assert f'<rect class="{css}" width="{width}" height="6"/>' in draw.bar(ratio)
