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
def test_what_is_no_time_is_told_the_form(written: str) -> None:
    done = CliRunner().invoke(show, ["--to", written])
    assert done.exit_code == 2
    assert f"{written!r} is not a time: write 2026-01-31, 2026-01-31T18:00 or 2026-01-31T18:00:00+02:00" in done.output
    assert "without an offset it is UTC" in done.output
