"""The page in a real browser, with the network cut: it asks for nothing, complains of nothing, and fits."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from analysis.cli import analyze
from tests.analysis.report import by_hand
from tests.analysis.report.by_hand import HOUR, busy, quiet
from tests.harness import browser

pytestmark = [
    pytest.mark.spark,  # not that it needs Spark: it needs what `make setup` installs
    pytest.mark.skipif(browser.installed() is None, reason="chromium is not installed: run `make setup`"),
]

SIZES = [(390, False), (390, True), (1600, False), (1600, True)]
FIRST_CELLS = "[...document.querySelectorAll('#throttled tbody tr')].map(row => row.cells[{0}].dataset.v)"


@pytest.fixture(scope="module", params=["busy", "quiet"])
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("reported") / "warehouse"
    by_hand.write(place, {HOUR: {"busy": busy, "quiet": quiet}[request.param]()})
    made = CliRunner().invoke(analyze, ["report", "--warehouse", str(place)])
    assert made.exit_code == 0, made.output
    return Path(made.output.splitlines()[-1])


def look(file: Path, *expressions: str, width: int = 1000, dark: bool = False) -> list[Any]:
    """Return what expressions are worth on the page; it must be content, and have asked for nothing but itself."""

    async def answers() -> list[Any]:
        async with browser.page() as page:
            await page.open(file, width=width, dark=dark)
            found = [await page.evaluate(expression) for expression in expressions]
            assert page.complaints == []
            assert page.requests == [file.as_uri()]
            assert len(await page.screenshot()) > 10_000
            return found

    return asyncio.run(answers())


@pytest.mark.parametrize(("width", "dark"), SIZES)
def test_report_page_fits_the_window_and_follows_dark_mode(file: Path, width: int, dark: bool) -> None:
    [wide, paper] = look(
        file,
        "document.documentElement.scrollWidth",
        "getComputedStyle(document.body).backgroundColor",
        width=width,
        dark=dark,
    )
    assert wide <= width
    assert (paper == "rgb(18, 21, 24)") is dark


@pytest.mark.parametrize("file", ["busy"], indirect=True)
def test_names_have_room_on_a_telephone(file: Path) -> None:
    cells = "Math.min(...[...document.querySelectorAll('td:has(.name)')].map(cell => cell.offsetWidth))"
    [least] = look(file, cells, width=390)
    assert least >= 150


@pytest.mark.parametrize("file", ["busy"], indirect=True)
def test_tables_sort_and_find(file: Path) -> None:
    sort = "document.querySelectorAll('#throttled th')[6].click()"
    find = (
        "(() => { const find = document.querySelector('#throttled .find'); find.value = 'CAROL';"
        " find.dispatchEvent(new Event('input'));"
        " return [...document.querySelectorAll('#throttled tbody tr')].filter(row => !row.hidden)"
        ".every(row => row.textContent.includes('carol')); })()"
    )
    cells = FIRST_CELLS.format(6)
    _, downwards, _, upwards, only = look(file, sort, cells, sort, cells, find)
    muted = [int(text) for text in downwards]
    assert muted == sorted(muted, reverse=True)
    assert [int(text) for text in upwards] == muted[::-1]
    assert only is True


def test_browser_check_notices_requests_and_errors_of_bad_page(tmp_path: Path) -> None:
    """A page that does ask for something, and does complain, is told from one that does not."""
    file = tmp_path / "bad.html"
    file.write_text(
        "<script src='http://192.0.2.1/x.js'></script><script>nothing()</script>" + "<p>x</p>" * 2000, encoding="utf-8"
    )

    async def noticed() -> tuple[list[str], list[str]]:
        async with browser.page() as page:
            await page.open(file, width=1000)
            return page.complaints, page.requests

    complaints, requests = asyncio.run(noticed())
    assert any("nothing is not defined" in each for each in complaints)
    assert "http://192.0.2.1/x.js" in requests
