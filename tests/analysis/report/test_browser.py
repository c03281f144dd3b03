"""The page in a real browser, with the network cut: it asks for nothing, complains of nothing, and fits."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from analysis.report.episodes import files, pages
from analysis.report.page import render
from tests.analysis.report import browser
from tests.analysis.report.sample import SCRIPT, busy, quiet
from tests.analysis.report.test_episodes import recorded

pytestmark = [
    pytest.mark.spark,  # not that it needs Spark: it needs what `make setup` installs
    pytest.mark.skipif(browser.installed() is None, reason="chromium is not installed: run `make setup`"),
]

SIZES = [(390, False), (390, True), (1600, False), (1600, True)]
FIRST_CELLS = "[...document.querySelectorAll('#throttled tbody tr')].map(row => row.cells[{0}].dataset.v)"


@pytest.fixture(params=["busy", "quiet"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "report.html"
    path.write_text(render({"busy": busy, "quiet": quiet}[request.param]()), encoding="utf-8")
    return path


def look(file: Path, *expressions: str, width: int = 1000, dark: bool = False, zone: str = "") -> list[Any]:
    """Return what expressions are worth on the page; it must be content, and have asked for nothing but itself."""

    async def answers() -> list[Any]:
        async with browser.page() as page:
            if zone:
                await page.call("Emulation.setTimezoneOverride", timezoneId=zone)
            await page.open(file, width=width, dark=dark)
            found = [await page.evaluate(expression) for expression in expressions]
            assert page.complaints == []
            assert page.requests == [file.as_uri()]
            assert len(await page.screenshot()) > 10_000
            return found

    return asyncio.run(answers())


@pytest.mark.parametrize(("width", "dark"), SIZES)
def test_it_fits_and_asks_for_nothing(file: Path, width: int, dark: bool) -> None:
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


@pytest.mark.parametrize("file", ["busy"], indirect=True)
def test_times_are_those_of_the_reader(file: Path) -> None:
    over, zone, tip, first, title, last, command = look(
        file,
        "document.querySelector('.over').textContent",
        "document.querySelector('#throttled .zone').textContent",
        "[...document.querySelectorAll('.lost rect title')].at(0).textContent",
        "document.querySelector('#throttled .when').textContent",
        "document.querySelector('#throttled .when').title",
        "[...document.querySelectorAll('#throttled .tick')].at(-1).textContent",
        "document.querySelector('#made').textContent",
        zone="Asia/Kolkata",
    )
    assert "2026-03-01 05:30 to 2026-03-02 05:30 Asia/Kolkata" in over.replace("Calcutta", "Kolkata")
    assert zone in {"Asia/Kolkata", "Asia/Calcutta"}
    assert tip == "2026-03-01 18:30 to 19:30: 13 % is missing, 950 of 7,200 documents (2026-03-01 13:00 to 14:00 UTC)"
    assert (first, title) == ("2026-03-01 05:30:00", "2026-03-01 00:00:00 UTC")
    assert last == "05:30"
    assert "--from 2026-03-01T00:00:00 --to 2026-03-02T00:00:00, in UTC" in command


FOUND = "[...document.querySelectorAll('.search tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))"
SAID = "document.querySelector('.search [role=status]').textContent"
PRESS = (
    "(async () => {{ const fill = {values}; for (const input of document.querySelectorAll('.search input'))"
    " input.value = fill[input.name] ?? '';"
    " document.querySelector('.search button').click();"
    " const said = document.querySelector('.search [role=status]');"
    " while (!/found|first|None|cannot/.test(said.textContent)) await new Promise(done => setTimeout(done, 10)); }})()"
)


def searched(
    file: Path, *asked: dict[str, str], zone: str = "UTC"
) -> tuple[list[tuple[str, list[list[str]]]], browser.Page]:
    """Return what the page says and shows for each search; it may ask for the pages of the search, and nothing else."""

    async def answers() -> tuple[list[tuple[str, list[list[str]]]], browser.Page]:
        async with browser.page() as page:
            await page.call("Emulation.setTimezoneOverride", timezoneId=zone)
            await page.open(file, width=1000)
            found = []
            for values in asked:
                await page.evaluate(PRESS.format(values=json.dumps(values)), wait=True)
                found.append((await page.evaluate(SAID), await page.evaluate(FOUND)))
            return found, page

    return asyncio.run(answers())


def write_pages(folder: Path, episodes: int) -> None:
    (folder / "search").mkdir()
    batches = pa.Table.from_pylist(recorded(episodes)).to_batches()
    for name, content in files(row for page in pages(batches) for row in page.to_pylist()):
        (folder / "search" / f"{name}.js").write_text(content, encoding="utf-8")


@pytest.mark.parametrize("file", ["busy"], indirect=True)
def test_all_episodes_can_be_searched(file: Path) -> None:
    """From a file on a disk, and with the network cut: 5,000 episodes in three pages."""
    write_pages(file.parent, 5000)
    (of_bob, of_nobody, of_time, of_rule, of_all), page = searched(
        file,
        {"user": "BOB", "client-id": "script", "to": "2026-03-01T02:00"},
        {"user": "nobody at all"},
        {"from": "2026-03-04", "to": "2026-03-04 00:05"},
        {"rule": "user=carol"},
        {},
    )
    assert of_bob[0] == "12 found; these are all of them."
    assert [row[0] for row in of_bob[1]] == ["bob"] * 12
    assert of_bob[1][0][1] == SCRIPT, "as a text"
    assert of_bob[1][0][5] == "2026-03-01 00:02:00"
    assert of_nobody == ("None found.", [])
    assert [row[5] for row in of_time[1]][-5:] == [f"2026-03-04 00:0{minute}:00" for minute in range(5)]
    assert of_rule[0] == "The first 200 in the order of time."
    assert {row[2] for row in of_rule[1]} == {"user=carol produce"}
    assert len(of_all[1]) == 200
    assert page.complaints == []
    place = file.parent.as_uri()
    assert set(page.requests[1:]) == {f"{place}/search/{name}.js" for name in LOADED}


@pytest.mark.parametrize("file", ["busy"], indirect=True)
def test_the_search_is_in_the_times_of_the_reader(file: Path) -> None:
    """They are read and shown as on the rest of the page; those with UTC behind them are of UTC."""
    write_pages(file.parent, 300)
    within = [
        {"from": "2026-03-01 05:32", "to": "2026-03-01T05:35"},
        {"from": "2026-03-01 00:02 UTC", "to": "2026-03-01T00:05Z"},
        {"to": "2026-03-01 05:30:01"},
        {"from": "2026-03-01", "to": "2026-03-01 05:29"},
        {"from": "noon"},
    ]
    (local, utc, first, before, wrong), page = searched(file, *within, zone="Asia/Kolkata")
    assert [row[5] for row in local[1]][-3:] == [f"2026-03-01 05:3{minute}:00" for minute in (2, 3, 4)]
    assert utc == local
    assert [row[5] for row in first[1]] == ["2026-03-01 05:30:00"]
    assert before == ("None found.", [])
    assert "noon is no time" in wrong[0]
    assert re.search(r", in Asia/(Kolkata|Calcutta), or 2026-01-31 12:00 UTC$", wrong[0])
    assert page.complaints == []


@pytest.mark.parametrize("file", ["busy"], indirect=True)
def test_what_the_search_found_has_titles_in_utc(file: Path) -> None:
    write_pages(file.parent, 10)

    async def answers() -> list[Any]:
        async with browser.page() as page:
            await page.call("Emulation.setTimezoneOverride", timezoneId="Asia/Kolkata")
            await page.open(file, width=1000)
            await page.evaluate(PRESS.format(values="{}"), wait=True)
            return [
                await page.evaluate("document.querySelectorAll('.search tbody tr')[1].cells[5].firstChild.title"),
                await page.evaluate("document.querySelectorAll('.search th')[5].textContent"),
                await page.evaluate("document.querySelector('.search input[name=from]').placeholder"),
            ]

    title, head, asked = asyncio.run(answers())
    assert title == "2026-03-01 00:01:00 UTC"
    assert head in {"from (Asia/Kolkata)", "from (Asia/Calcutta)"}
    assert asked in {"from 2026-01-31 12:00 (Asia/Kolkata)", "from 2026-01-31 12:00 (Asia/Calcutta)"}


LOADED = ("index", "clients-0", "page-0", "page-2")
"""What no search needed was not asked for."""


@pytest.mark.parametrize("file", ["busy"], indirect=True)
def test_a_page_without_its_folder_says_what_is_missing(file: Path) -> None:
    [(said, rows), (wrong, _)], _ = searched(file, {"user": "bob"}, {"from": "noon"})
    assert said == "It cannot be searched: search/index.js is not beside this file, where it was made"
    assert rows == []
    assert wrong.startswith("It cannot be searched: ")


def test_the_browser_would_have_noticed(tmp_path: Path) -> None:
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
