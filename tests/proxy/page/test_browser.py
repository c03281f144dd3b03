"""The page in a real browser, by what a person sees."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness import browser
from tests.proxy.page.fake_state import HOSTILE, client, throttled
from tests.proxy.page.serving import TOKEN, Served, serving

pytestmark = [
    pytest.mark.spark,  # not that it needs Spark: it needs what `make setup` installs
    pytest.mark.skipif(browser.installed() is None, reason="chromium is not installed: run `make setup`"),
]

CLIENT = "/client?user=greedy&client_id=app"
PAGES = ("/?all=1", "/?q=greedy", CLIENT, "/quotas", "/login")
TEXT = "document.body.innerText"
IS_LIVE = "document.getElementById('state').textContent === 'live'"

See = Callable[[Served, browser.Page], Awaitable[Any]]


def look(see: See, where: str = "/", token_file: Path | None = None, **how: Any) -> None:
    """Show a page, and let ``see`` look at it: it has asked for nothing but this port."""

    async def shown() -> None:
        async with serving(token_file) as (served, _), browser.page() as page:
            served.state.items["throttled"] += [throttled(name) for name in HOSTILE]
            served.state.items["clients"] += [client(name, name) for name in HOSTILE]
            await page.open(served.url + where, **{"width": 1200} | how)
            await see(served, page)
            assert {url for url in page.requests if not url.startswith(served.url)} <= {"data:,"}

    asyncio.run(shown())


async def as_row(page: browser.Page, heading: str) -> list[str]:
    """Return the rows of a section's table as text."""
    rows = f"document.querySelectorAll('section:has(#{heading}) tbody tr')"
    found: list[str] = await page.evaluate(f"[...{rows}].map(row => row.innerText)")
    return found


@pytest.mark.parametrize("javascript", [True, False])
def test_throttled_client_is_shown_with_and_without_javascript(javascript: bool) -> None:
    async def see(_: Served, page: browser.Page) -> None:
        row = (await as_row(page, "throttled"))[0]
        for said in ("greedy / app", "produce", "user=greedy", "1.2 MiB/s of 1 MiB/s", "124 %", "4.8 MiB/s", "4.2 s"):
            assert said in row
        assert "until 12:00:09" in row
        assert "In the last minute: greedy / app 31 % of the time." in await page.evaluate(TEXT)
        assert page.complaints == []

    look(see, javascript=javascript)


def test_a_throttled_client_appears_without_a_reload_and_focus_stays() -> None:
    async def see(served: Served, page: browser.Page) -> None:
        await page.until(IS_LIVE)
        await page.evaluate("document.querySelector('#live a[href*=greedy]').focus()")
        served.state.items["throttled"].insert(0, throttled("newcomer"))
        await page.until(f"{TEXT}.includes('newcomer')")
        assert "newcomer" in (await as_row(page, "throttled"))[0]
        assert "greedy" in await page.evaluate("document.activeElement.href")
        served.state.items["throttled"].clear()
        await page.until(f"{TEXT}.includes('No client is throttled.')")

    look(see)


def test_paused_page_shows_new_client_after_resume() -> None:
    async def see(served: Served, page: browser.Page) -> None:
        await page.until(IS_LIVE)
        await page.evaluate("document.getElementById('pause').click()")
        assert await page.evaluate("document.getElementById('state').textContent") == "paused"
        served.state.items["throttled"] = [throttled("newcomer")]
        await page.evaluate("document.getElementById('pause').click()")
        await page.until(f"{TEXT}.includes('newcomer')")

    look(see)


@pytest.mark.parametrize("javascript", [True, False])
def test_search_finds_a_client_and_its_page(javascript: bool) -> None:
    async def see(_: Served, page: browser.Page) -> None:
        # With the keyboard alone: the skip link, three links, then the search box.
        await page.evaluate("document.querySelector('[name=q]').focus()")
        for letter in "GREEDY":
            await page.press(letter, letter)
        await page.press("Enter", "\r")
        await page.loaded()
        assert [row.split("\n")[0] for row in await as_row(page, "clients")] == ["greedy / app throttled"]
        await page.evaluate("document.querySelector('section:has(#clients) tbody a').focus()")
        await page.press("Enter", "\r")
        await page.loaded()
        said = await page.evaluate(TEXT)
        for each in (
            "produce: 1 MiB/s by user=greedy",
            "the most specific",
            "wins",
            "Fetch: no limit.",
            "10.1.2.3:50412",
            "A cap applies too",
        ):
            assert each in said

    look(see, javascript=javascript)


def test_the_keyboard_reaches_everything() -> None:
    async def see(_: Served, page: browser.Page) -> None:
        await page.until(IS_LIVE)
        await page.evaluate("document.getElementById('pause').click()")
        await page.evaluate("document.activeElement.blur()")
        wanted = await page.evaluate("document.querySelectorAll('a[href], button, input').length")
        reached = set()
        for _press in range(wanted + 5):
            await page.press("Tab")
            at = "[...document.querySelectorAll('a[href], button, input')].indexOf(document.activeElement)"
            reached.add(await page.evaluate(at))
        assert len(reached - {-1}) == wanted

    look(see)


STICKS_OUT = (
    "[...document.querySelectorAll('section *')].filter(each => each.getBoundingClientRect().right >"
    " each.closest('section').getBoundingClientRect().right && !each.closest('thead')).map(each => each.outerHTML)"
)
SIZES = ((360, False), (360, True), (700, False), (1100, True), (1101, False), (1205, False), (1600, False))


@pytest.mark.parametrize("where", PAGES)
def test_every_page_fits_each_width_without_axe_violations(where: str, tmp_path: Path) -> None:
    (token := tmp_path / "token").write_text(TOKEN)

    async def see(served: Served, page: browser.Page) -> None:
        served.state.instance["instance"] = "sluice-0"
        served.state.instances = [{"instance": "sluice-1", "error": "timed out"}]
        for width, dark in SIZES:
            await page.open(served.url + where, width=width, dark=dark)
            wide = await page.evaluate("document.documentElement.scrollWidth")
            paper = await page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert await page.evaluate(STICKS_OUT) == []
            assert (wide <= width, paper == "rgb(18, 21, 24)", await page.violations()) == (True, dark, []), width

    look(see, where, token)


def test_axe_reports_search_field_without_label() -> None:
    async def see(_: Served, page: browser.Page) -> None:
        await page.evaluate("document.querySelector('[name=q]').removeAttribute('aria-label')")
        await page.evaluate("document.querySelector('[name=q]').removeAttribute('placeholder')")
        assert any(each.startswith("label: ") for each in await page.violations())

    look(see)


def test_hostile_names_are_text() -> None:
    async def see(_: Served, page: browser.Page) -> None:
        assert await page.evaluate("document.title") == "Who is throttled · Sluice"
        assert await page.evaluate("document.querySelectorAll('[onmouseover], #live script').length") == 0
        said = await page.evaluate(TEXT)
        for shown in ("<script>document.title='hacked'</script>", "tab\\there\\x07\\x1b[31m\\u202eevil", "half\\ud800"):
            assert shown in said
        # Between "/" and the client-id of its row, the name from right to left turns nothing around it.
        assert "مستهلك-الطلبات / app" in (await as_row(page, "throttled"))[5]
        assert page.complaints == []

    look(see)


@pytest.mark.parametrize("javascript", [True, False])
def test_logged_in_user_sets_limit_and_mode_then_logs_out(javascript: bool, tmp_path: Path) -> None:
    (token := tmp_path / "token").write_text(TOKEN)

    async def see(served: Served, page: browser.Page) -> None:
        assert await page.evaluate("document.querySelectorAll('.act').length") == 0
        await page.go(served.url + "/login")
        await page.evaluate(f"document.querySelector('[name=token]').value = '{TOKEN}'")
        await page.evaluate("document.querySelector('.act button').click()")
        await page.loaded()
        await page.go(served.url + CLIENT)
        await page.evaluate("document.querySelector('[name=limit]').value = '2MiB'")
        await page.evaluate("document.querySelector('.act button').click()")
        await page.loaded()
        assert "user=greedy, client-id=app" in (await as_row(page, "rules"))[0]
        assert (await page.evaluate("location.pathname + location.search")) == CLIENT
        assert not javascript or await page.violations() == []
        await page.evaluate("document.querySelector('[name=end]').click()")
        await page.loaded()
        assert await as_row(page, "rules") == []
        await page.evaluate("document.querySelector('[type=checkbox]').click()")
        await page.evaluate("[...document.querySelectorAll('.act button')].at(-1).click()")
        await page.loaded()
        assert served.closed == [("greedy", "app", None)]
        await page.go(served.url + "/quotas")
        await page.evaluate("document.querySelector('[name=mode]').value = 'shadow'")
        await page.evaluate("document.querySelector('.act button').click()")
        await page.loaded()
        assert served.switch.mode == "shadow"
        await page.evaluate("document.querySelector('.out button').click()")
        await page.loaded()
        assert "Log in" in await page.evaluate(TEXT)

    look(see, CLIENT, token, javascript=javascript)
