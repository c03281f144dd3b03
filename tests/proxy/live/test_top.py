"""``sluice top`` as a person sees it, on a terminal of 80 columns and 24 lines."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from textual.pilot import Pilot

from proxy.live.api import Api
from proxy.live.top import Top
from tests.proxy.live.fake_admin import INSTANCE, FakeAdmin, client, throttled

pytestmark = pytest.mark.asyncio
ROWS = 16
"""On 24 lines."""


def words(*lines: str) -> str:
    """Return lines with one space between words."""
    return " ".join(" ".join(lines).split())


class Screen:
    """The terminal: keys go in, lines come out."""

    def __init__(self, pilot: Pilot[None]) -> None:
        self.pilot = pilot

    async def settle(self) -> None:
        await self.pilot.app.workers.wait_for_complete()
        await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.pilot.press(key)
            await self.settle()

    @property
    def lines(self) -> list[str]:
        strips = self.pilot.app.screen._compositor.render_strips()
        return [strip.text.rstrip() for strip in strips]

    @property
    def rows(self) -> list[list[str]]:
        """The words of each line below the header."""
        return [line.split() for line in self.lines[3 : 3 + ROWS] if line]

    @property
    def status(self) -> str:
        return self.lines[22]

    def styled(self, number: int, style: str) -> str:
        """The words of a line that have a style."""
        strip = self.pilot.app.screen._compositor.render_strips()[number]
        return "".join(each.text for each in strip if each.style and getattr(each.style, style)).strip()


@asynccontextmanager
async def top(admin: FakeAdmin, width: int = 80, height: int = 24, *, of_all: bool = False) -> AsyncIterator[Screen]:
    async with Top(Api(admin.url, all_instances=of_all)).run_test(size=(width, height)) as pilot:
        screen = Screen(pilot)
        await pilot.pause()
        await screen.settle()
        yield screen


async def test_top_starts_with_throttled_clients_and_details_below(admin: FakeAdmin) -> None:
    async with top(admin) as screen:
        assert screen.lines[0] == "sluice 0.1.0  edge-1  demo  enforce  ready"
        assert screen.lines[1] == " 1 throttled 1  2 clients  3 brokers  4 workers"
        assert screen.styled(1, "reverse") == "1 throttled 1"
        assert screen.lines[2] == "user       client-id  kind     broker       used      limit     wanted until"
        assert screen.lines[3] == "alice      web        produce       1    2 MiB/s    1 MiB/s    5 MiB/s 16:00:03"
        assert words(*screen.lines[19:22]) == (
            "user alice client-id web owed 3.2 s waiting 4 rule user=alice mode enforce listener PLAIN "
            "peers 10.0.0.1:50000,10.0.0.2:50001"
        )
        assert screen.status == "1-1 of 1 by owed, largest first  16:00:00 UTC"
        assert all(word in screen.lines[23] for word in ("Filter", "Sort", "Quit"))


async def test_a_wide_terminal_has_all_columns(admin: FakeAdmin) -> None:
    async with top(admin, 200, 50) as screen:
        assert words(screen.lines[2]) == (
            "user client-id kind broker used limit wanted until owed waiting rule mode listener peers"
        )
        await screen.press("2")
        assert screen.lines[2].split()[-4:] == ["broker", "connections", "rule", "listener"]


async def test_keys_go_to_the_other_tables(admin: FakeAdmin) -> None:
    async with top(admin) as screen:
        await screen.press("2")
        assert words(screen.lines[2]) == "user client-id kind used limit ratio 1m in"
        assert words(*screen.lines[3 : 3 + ROWS]) == "alice web produce 512 KiB/s 1 MiB/s 50 % 25 % 1.5 KiB/s"
        await screen.press("tab")
        assert screen.styled(1, "reverse") == "3 brokers"
        assert screen.rows[0][1:] == ["kafka-1.example.com"[:15] + "…", "9092", "yes", "-", "-", "-", "2"]
        await screen.press("tab")
        assert screen.rows == [["-", "yes", "0", "12.5", "2"]]
        await screen.press("tab")
        assert screen.styled(1, "reverse") == "1 throttled 1"


async def test_only_the_rows_on_the_screen_are_asked_for_and_pages_turn(admin: FakeAdmin) -> None:
    admin.rows["clients"] = [client(f"u{number:04}", ratio=1 - number / 2000) for number in range(2000)]
    async with top(admin) as screen:
        await screen.press("2")
        asked = [query for name, query in admin.asked if name == "clients"]
        assert asked == [{"sort": "-ratio", "offset": "0", "limit": str(ROWS)}]
        assert [row[0] for row in screen.rows] == [f"u{number:04}" for number in range(ROWS)]
        await screen.press("pagedown", "pagedown")
        assert screen.rows[0][0] == f"u{2 * ROWS:04}"
        assert screen.status.startswith(f"{2 * ROWS + 1}-{3 * ROWS} of 2000 by ratio")
        await screen.press(*["pageup"] * 5)
        assert screen.status.startswith(f"1-{ROWS} of 2000")
        admin.rows["clients"] = admin.rows["clients"][: ROWS + 2]
        await screen.press(*["pagedown"] * 3)
        assert screen.status.startswith(f"{ROWS + 1}-{ROWS + 2} of {ROWS + 2}")


async def test_sorting_by_keys_and_by_a_click_on_a_column(admin: FakeAdmin) -> None:
    admin.rows["clients"] = [client(name, used=used, ratio=0.1) for name, used in (("b", 1.0), ("a", 3.0), ("c", 2.0))]
    async with top(admin) as screen:
        await screen.press("2")
        assert screen.styled(2, "underline") == "ratio"
        await screen.pilot.click("#rows", offset=(2, 0))
        await screen.settle()
        assert [row[0] for row in screen.rows] == ["a", "b", "c"]
        assert screen.status.startswith("1-3 of 3 by user  ")
        await screen.press("r")
        assert [row[0] for row in screen.rows] == ["c", "b", "a"]
        await screen.press("s", "s", "s")
        assert screen.styled(2, "underline") == "used"
        assert [row[0] for row in screen.rows] == ["a", "c", "b"]
        await screen.pilot.click("#rows", offset=(40, 0))
        await screen.settle()
        assert [row[0] for row in screen.rows] == ["b", "c", "a"]


async def test_filter_keeps_matching_rows_until_escape(admin: FakeAdmin) -> None:
    admin.rows["clients"] = [client("alice"), client("bob"), client("alan")]
    async with top(admin) as screen:
        await screen.press("2", "slash", *"al", "enter")
        assert sorted(row[0] for row in screen.rows) == ["alan", "alice"]
        assert screen.status.endswith("filter: al (Esc: none)")
        await screen.press("slash", "q")  # a letter of the filter, and not the key that quits
        await screen.press("escape")
        assert len(screen.rows) == 3
        assert "filter" not in screen.status
        await screen.press("3", "slash")
        assert screen.styled(1, "reverse") == "3 brokers"
        await screen.press("4")
        assert screen.styled(1, "reverse") == "4 workers"


async def test_a_row_is_selected_and_shown_in_full(admin: FakeAdmin) -> None:
    long = "team-payments-europe-west-4"
    admin.rows["throttled"] = [throttled("alice", owed_ms=2), throttled(long, owed_ms=1)]
    async with top(admin) as screen:
        assert screen.rows[1][0] == f"{long[:9]}…"
        assert screen.styled(3, "reverse").startswith("alice")
        await screen.press("down", "down")
        assert screen.styled(4, "reverse").startswith(long[:9])
        assert screen.lines[19].startswith(f"user {long}  client-id web")
        await screen.press("up")
        assert screen.lines[19].startswith("user alice")
        await screen.pilot.click("#rows", offset=(2, 2))
        assert screen.lines[19].startswith(f"user {long}")


async def test_hostile_and_wide_names_stay_in_their_columns(admin: FakeAdmin) -> None:
    admin.rows["throttled"] = [throttled("[red]x[/]", "\x1b[2J\u202e"), throttled("会計部門会計部門", "日本")]
    async with top(admin) as screen:
        assert screen.lines[3].startswith("[red]x[/]  \\x1b[2J\\u… produce")
        strips = screen.pilot.app.screen._compositor.render_strips()
        assert strips[4].text.startswith("会計部門 … 日本       produce")


async def test_a_proxy_that_does_not_answer_is_named_and_the_last_rows_stay(admin: FakeAdmin) -> None:
    async with top(admin) as screen:
        admin.is_older = True
        await screen.press("r")
        assert f"{admin.url} has no /api/v1/throttled: is it the admin port" in words(*screen.lines[21:23])
        assert screen.rows[0][0] == "alice"
        admin.is_older = False
        await screen.press("r")
        assert screen.status.startswith("1-1 of 1")


async def test_top_without_throttled_clients_shows_why_proxy_is_unready(
    admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.rows["throttled"] = []
    monkeypatch.setitem(INSTANCE, "is_ready", False)
    monkeypatch.setitem(INSTANCE, "reasons", ["cluster demo: no broker answers"])
    async with top(admin) as screen:
        assert screen.lines[0].endswith("not ready: cluster demo: no broker answers")
        assert screen.status.startswith("0-0 of 0")
        await screen.press("down", "pagedown", "r")
        assert screen.rows == []


async def test_top_of_all_instances_names_instance_that_fails(admin: FakeAdmin) -> None:
    admin.rows["throttled"] = [throttled(instance="edge-2")]
    admin.instances = [{"instance": "edge-3", "error": "timed out"}]
    async with top(admin, of_all=True) as screen:
        assert screen.lines[2].startswith("instance   user")
        assert screen.rows[0][0] == "edge-2"
        assert screen.status.endswith("instance edge-3: timed out")


async def test_top_refreshes_until_q_is_pressed(admin: FakeAdmin) -> None:
    async with top(admin) as screen:
        before = len(admin.asked)
        while len(admin.asked) < before + 2:  # a list, and the instance
            await screen.pilot.pause(0.1)
        await screen.pilot.press("q")
        assert screen.pilot.app._exit
