"""Options that commands have in common."""

from datetime import UTC, datetime

import click
import pytest
from click.testing import CliRunner

from analysis import options


@click.command()
@options.period_options
def show(begin: datetime | None, end: datetime | None) -> None:
    click.echo(f"{begin} {end}")


@pytest.mark.parametrize(
    ("written", "moment"),
    [
        ("2026-03-01", datetime(2026, 3, 1, tzinfo=UTC)),
        ("2026-03-01T18:00", datetime(2026, 3, 1, 18, tzinfo=UTC)),
        ("2026-03-01 18:00:30", datetime(2026, 3, 1, 18, 0, 30, tzinfo=UTC)),
        ("2026-03-01T00:00:00+02:00", datetime(2026, 2, 28, 22, tzinfo=UTC)),
        ("2026-03-01T00:00-05:30", datetime(2026, 3, 1, 5, 30, tzinfo=UTC)),
        ("2026-03-01T00:00Z", datetime(2026, 3, 1, tzinfo=UTC)),
    ],
)
def test_times_may_have_an_offset(written: str, moment: datetime) -> None:
    done = CliRunner().invoke(show, ["--from", written])
    assert done.output == f"{moment} None\n"


@pytest.mark.parametrize(
    "written", ["yesterday", "2026-13-01", "2026-03-01T25:00", "1772323200", "", "0001-01-01T00:00+02:00"]
)
def test_invalid_time_option_is_refused_with_the_form(written: str) -> None:
    done = CliRunner().invoke(show, ["--to", written])
    assert done.exit_code == 2
    assert f"{written!r} is not a time: write 2026-01-31, 2026-01-31T18:00 or 2026-01-31T18:00:00+02:00" in done.output
    assert "without an offset it is UTC" in done.output


@pytest.mark.parametrize("last", ["2026-02-28", "2026-03-01", "2026-03-01T01:00+02:00"])
def test_a_period_ends_after_it_begins(last: str) -> None:
    done = CliRunner().invoke(show, ["--from", "2026-03-01", "--to", last])
    assert done.exit_code == 2
    assert "--from and --to: 2026-03-01 00:00:00 to 2026-0" in done.output
    assert "UTC ends before it begins" in done.output
    assert CliRunner().invoke(show, ["--from", "2026-03-01", "--to", "2026-03-01T00:00:01"]).exit_code == 0


@click.command()
@click.option("--number", type=options.FiniteRange(0))
def number(number: float | None) -> None:
    click.echo(number)


@pytest.mark.parametrize("written", ["nan", "inf", "-inf", "1e999", "NaN", "-1", "x"])
def test_number_option_refuses_infinite_and_negative_values(written: str) -> None:
    done = CliRunner().invoke(number, ["--number", written])
    assert done.exit_code == 2
    assert "Invalid value for '--number'" in done.output
    assert CliRunner().invoke(number, ["--number", "2.5"]).output == "2.5\n"
