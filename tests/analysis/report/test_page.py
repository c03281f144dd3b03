"""Single sections of the page."""

import html
import re
import shlex
from pathlib import Path

from tests.analysis.report import by_hand
from tests.analysis.report.by_hand import HOUR, client
from tests.analysis.report.test_report import reading, report


def test_limits_are_in_the_order_of_what_is_shown(tmp_path: Path) -> None:
    """The p99; of limits that were used too rarely to have one, the maximum."""
    shares = {"rare": ([1.25], [5]), "steady": ([0.5], [3600]), "rarer": ([0.25], [2]), "often": ([0.75], [600])}
    tables: by_hand.Tables = {
        "client": [client()],
        "counters": [{"counter": n, "unit_user": user} for n, user in enumerate(shares)],
        "readings": [reading(*each, counter=n) for n, each in enumerate(shares.values())],
    }
    by_hand.write(tmp_path / "w", {HOUR: tables})
    page = (report(tmp_path / "w") / "report.html").read_text(encoding="utf-8")
    section = page[page.index("How close to their limits") : page.index("What each quota did")]
    names = re.findall(r"class=who><span class=name>(.*?)</span>", section)
    assert [*zip(names, re.findall(r"class=number>(.*?)<", section), strict=True)] == [
        ("often", "75 %"),
        ("steady", "50 %"),
        ("rare", "at most 125 %"),
        ("rarer", "at most 25 %"),
    ]


def test_use_of_a_client_has_its_limit_as_a_line_and_rates_as_tips(tmp_path: Path) -> None:
    tables: by_hand.Tables = {
        "client": [client(bytes_in=9)],
        "charged": [{"used": 1_800_000_000}, {"used": 360_000_000, "user": "bob"}],
        "counters": [{"is_shared": True}],
        "moments": [{"bytes_in": 10 * 2**20, "at_s": by_hand.HOUR_MS // 1000}],
    }
    by_hand.write(tmp_path / "w", {HOUR: tables})
    page = (report(tmp_path / "w", "--client", "user=alice") / "report.html").read_text(encoding="utf-8")
    use = page[page.index("What it used, and its limits") : page.index("Who shares its counters")]
    assert "this client: 488 KiB/s\nothers: 97.7 KiB/s\nlimit: 977 KiB/s" in use
    assert '<path class="limit"' in use
    assert "alice / app: 512 KiB/s" in page[page.index("Where it goes") :]


def test_page_says_the_command_that_makes_it_again(tmp_path: Path) -> None:
    by_hand.write(tmp_path / "w", {HOUR: {"client": [client(user="the 'other' one")]}})
    page = (report(tmp_path / "w", "--client", "user=the 'other' one") / "report.html").read_text(encoding="utf-8")
    again = html.unescape(re.findall(r"<dt>Again</dt><dd>(.*?)</dd>", page)[0])
    assert shlex.split(again)[3:] == [
        *("--from", "2026-02-28T13:00Z", "--to", "2026-03-01T13:00Z", "--client", "user=the 'other' one")
    ]
