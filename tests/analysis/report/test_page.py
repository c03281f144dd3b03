import dataclasses
import re
from datetime import timedelta
from html.parser import HTMLParser

import pytest

from analysis.report.findings import Comparison, Loss, Missing, PeriodTotals, ReportFindings
from analysis.report.missing import sentence
from analysis.report.page import answer, render
from tests.analysis.report.sample import BEGIN, SCRIPT, busy, quiet

VOID = {"meta", "link"}
SECTIONS = ("throttled", "kinds", "headroom", "talkers", "neighbours", "trend", "chargeback", "made")


class Reader(HTMLParser):
    """Collects tags, attributes and texts, and complains of what is not closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            self.attributes.add(name)
            if name in {"src", "href", "action", "srcset", "data"}:
                self.links.append(value or "")
            if name == "id":
                self.ids.append(value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(params=["busy", "quiet", "silent"])
def found(request: pytest.FixtureRequest) -> ReportFindings:
    silent = dataclasses.replace(quiet(), totals=PeriodTotals(rows=1, refused=1), talkers=[], series=[], charges=[])
    return {"busy": busy(), "quiet": quiet(), "silent": silent}[request.param]


def test_a_page_is_well_formed_and_alone(found: ReportFindings) -> None:
    page = Reader(render(found))
    assert page.open == []
    assert page.links == ["data:,"]
    assert page.tags.isdisjoint({"img", "iframe", "object", "embed", "base", "form"})
    assert not any(name.startswith("on") for name in page.attributes)


def test_every_section_is_there_and_an_empty_one_says_why(found: ReportFindings) -> None:
    html = render(found)
    always = tuple(each for each in Reader(html).ids if each not in {"connections", "loss", "compared"})
    assert always == SECTIONS, "these two are not always there"
    for section in re.findall(r"<section.*?</section>", html):
        assert ("<p class=none>" in section) != ("<p class=says>" in section or "<dl>" in section)


def test_names_are_not_taken_for_markup() -> None:
    html = render(busy())
    assert SCRIPT not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert html.count("<script>") == 1
    assert "\u202e" not in html


def test_no_script_but_the_own_may_run() -> None:
    html = render(busy())
    assert re.search(r"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-[^']{44}'", html)


@pytest.mark.parametrize(
    ("modes", "throttled", "clients", "said"),
    [
        (["enforce"], 1, 1, "<em>1 of 1 client</em> was throttled, for 10 s in all."),
        (["enforce"], 2, 3, "<em>2 of 3 clients</em> were throttled, for 10 s in all."),
        (["shadow"], 2, 3, "<em>2 of 3 clients</em> would have been throttled, for 10 s in all."),
        (["enforce"], 0, 3, "<em>Nobody</em> was throttled."),
        (["off", "shadow"], 0, 3, "<em>Nobody</em> would have been throttled."),
    ],
)
def test_the_answer(modes: list[str], throttled: int, clients: int, said: str) -> None:
    totals = PeriodTotals(throttled=throttled, clients=clients, muted_ms=10_000)
    assert answer(dataclasses.replace(quiet(), modes=modes, totals=totals)) == said


def test_too_short_a_period_for_a_trend_is_said() -> None:
    assert "a trend needs 5 days, and this period has 0" in render(quiet())


def test_what_is_missing_is_said_at_the_top_with_its_worst_hour() -> None:
    html = render(busy())
    top = html[: html.index("<main>")]
    top = re.sub("</?span[^>]*>", "", top)
    assert "<b>2.1 % of the records are missing; of 2026-03-01 13:00 to 14:00 UTC, the worst hour, 13 %.</b>" in top
    assert top.count("<rect") == 4, "of 24 hours those with anything missing"
    assert "13 % is missing, 950 of 7,200 documents" in top
    section = html[html.index('<section id="loss">') :].split("</section>")[0]
    for said in ("3,650</b> of 172,800 documents", "dropped <b>3,200</b>", "2 of them for a clock", "sluice:other"):
        assert said in section
    assert "<b>97.9 %</b> of the records of the period are known, and charged for" in html


def test_nothing_is_said_where_nothing_is_missing() -> None:
    html = render(quiet())
    assert "class=lost" not in html
    assert 'id="loss"' not in html
    assert sentence(quiet().loss) == ""
    assert "none missing" in html


def test_documents_that_nobody_could_read_are_told_though_none_is_missing() -> None:
    loss = Loss(expected=60, rejected=2, places=[Missing(None, None, 0, 0, rejected=2)])
    html = render(dataclasses.replace(quiet(), loss=loss))
    assert "class=lost" not in html
    assert "<b>2</b> could not be read" in html


def test_one_bad_hour_alone_is_not_told_twice() -> None:
    hour = Missing(BEGIN, BEGIN, 100, 3)
    assert sentence(Loss(expected=100, missing=3, worst=hour)) == "3.0 % of the records are missing."


def test_the_period_before(found: ReportFindings) -> None:
    """There if it was wanted; it says what is not stored, where gaps are, and that lengths differ."""
    assert ('<section id="compared">' in render(found)) is (found.comparison is not None)
    html = render(busy())
    said = html[html.index('<section id="compared">') :].split("</section>")[0]
    for text in (
        "Against the period before",
        "That one is 2 d long: its sums are shown for the length of this one.",
        "Mind the gaps: of that one nothing is recorded for 3 h 20 min",
        "Its mode was shadow.",
        "<b>7 clients</b> new: ",
        " and 4 more.",
        "5.31 &times;",
        "-33 %",
        "not in use",
        "977 KiB/s to 1.9 MiB/s",
        "+87",
    ):
        assert text in said, text
    nothing = dataclasses.replace(quiet(), comparison=Comparison(BEGIN - timedelta(hours=1), BEGIN, stored=False))
    assert "of 2026-02-28 23:00 to 2026-03-01 00:00 UTC nothing is stored" in render(nothing)


def test_what_is_said_of_a_neighbour() -> None:
    html = render(busy())
    said = html[html.index('<section id="neighbours">') :].split("</section>")[0]
    for text in (
        "of 11 clients that could be compared",
        "came 10 s after its peaks, in 23 bursts",
        "p &lt; 0.001",
        "not what causes it",
        "on the same limit",
        "Peaks together with",
        "Others' requests took 41.2 ms then, for 16.5 ms expected.",
    ):
        assert text in said, text
    assert said.count('<svg class="event"') == 2
    assert said.count('class="had"') == said.count('class="begin"') == 2
    nobody = render(dataclasses.replace(busy(), neighbours=[]))
    assert "Nothing beyond chance: of 11 clients" in nobody
