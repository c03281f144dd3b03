"""The page of a client whose quota was changed meanwhile, and who shares one; its figures against DuckDB."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.cli import analyze
from analysis.client import job, page
from analysis.client.asked import parse
from analysis.errors import AnalysisError
from analysis.metrics.period import look
from tests.analysis.metrics.conftest import Both
from tests.analysis.metrics.recorded import BEGINS_S, SECONDS
from tests.analysis.records import BEGIN, document, framed, headroom_of, row, usage, usage_frame
from tests.analysis.report.test_page import Reader
from tests.analysis.table.test_warehouse import store

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

FROM = 120
"""Seconds before which all is of the period before."""
BOB = "user=bob,client-id=app"
MINE = "\"user\" = 'bob' and client_id = 'app'"
SCRIPT = "<script>alert(1)</script>"


@dataclass(frozen=True)
class Paged:
    made: job.Made
    place: Path
    both: Both
    begin: datetime

    def oracle(self, what: str, where: str = MINE, *, now: bool = True) -> tuple[object, ...]:
        sign, at = ">=" if now else "<", round(self.begin.timestamp() * 1000)
        query = "select {what} from rows where {where} and t {sign} {at}"
        [found] = self.both.oracle(query, what=what, where=where, sign=sign, at=at)
        return found

    def table(self, query: str, name: str, **parts: object) -> list[tuple[object, ...]]:
        return self.both.oracle(query, table=f"read_parquet('{self.place}/{name}/*.parquet')", **parts)


@pytest.fixture(scope="module")
def paged(both: Both, tmp_path_factory: pytest.TempPathFactory) -> Paged:
    begin = BEGIN + timedelta(seconds=BEGINS_S + FROM)
    end = BEGIN + timedelta(seconds=BEGINS_S + SECONDS + 10)
    usage = replace(both.usage, begin_us=round(begin.timestamp() * 1_000_000))
    out = tmp_path_factory.mktemp("client of 1%")
    wanted = job.ClientRequest(parse(BOB), begin, end, str(out), None, BEGIN)
    made = job.run(usage, both.usage, wanted)
    return Paged(made, Path(made.html).parent, both, begin)


def test_the_page_says_how_long_and_is_harmless(paged: Paged) -> None:
    muted, episodes = (
        paged.oracle("sum(produce_muted_ms + fetch_muted_ms)::bigint")[0],
        paged.table("select count(*), sum(muted_ms)::bigint from {table}", "episodes"),
    )
    assert episodes[0][1] == muted
    assert f"in {episodes[0][0]} episodes." in paged.made.sentence
    html = Path(paged.made.html).read_text(encoding="utf-8")
    assert paged.made.sentence.partition(" was throttled")[0] in html
    assert html.count("<script>") == 1
    page = Reader(html)
    assert page.open == []
    assert page.links == ["data:,"]
    sections = ("who", "limits", "headroom", "episodes", "neighbours", "whatif", "before", "made")
    assert tuple(page.ids) == sections
    assert "strict-dynamic" not in html, "it loads nothing"
    assert "<p class=says>2026-03-0" in html, "the period before"


def test_what_it_used_is_what_rows_say(paged: Paged) -> None:
    for kind, column in (("produce", "produce_bytes"), ("fetch", "fetch_bytes")):
        [(used, muted)] = paged.table(
            "select sum(used)::bigint, sum(muted_ms)::bigint from {table} where kind = '{kind}'", "counters", kind=kind
        )
        assert (used, muted) == paged.oracle(f"sum({column})::bigint, sum({kind}_muted_ms)::bigint")
        # The first and the last step are cut.
        begin, end = paged.oracle("min(t) / 1000, max(t + interval_ms) / 1000", "true")
        [(drawn,)] = paged.table(
            "select sum(mean * (least(epoch(time) + 1, {end}) - greatest(epoch(time), {begin}))) from {table} "
            "where kind = '{kind}'",
            "points",
            kind=kind,
            begin=begin,
            end=end,
        )
        assert drawn == pytest.approx(used)


def test_the_most_of_a_point_is_that_of_an_interval(paged: Paged) -> None:
    """Within a tenth: instances begin between two seconds, and an interval is a few milliseconds longer or shorter."""
    [(most,)] = paged.table("select max(most) from {table} where kind = 'produce'", "points")
    assert most == paged.oracle("max(produce_bytes / interval_ms * 1000)")[0]


def test_what_it_shares_is_of_all_who_share(paged: Paged) -> None:
    """Until its quota was changed it shared one with carol."""
    together = "produce_rule = 'client-id=app' and instance = 'edge-1' and broker = 1"
    last = paged.oracle("max(t) / 1000", f"{together} and {MINE}")[0]
    [(shared, own)] = paged.table(
        "select sum(shared), sum(mean) from {table} where kind = 'produce' and instance = 'edge-1' and broker = 1 "
        "and epoch(time) between {begin} and {last} - 1",
        "points",
        begin=paged.begin.timestamp() + 1,
        last=last,
    )
    theirs = f"{together} and t >= {round(paged.begin.timestamp() * 1000) + 1000} and t < {last} * 1000"
    assert shared == pytest.approx(float(str(paged.oracle("sum(produce_bytes)", theirs)[0])), rel=0.02)
    assert float(str(own)) < float(str(shared))


def test_changes_of_its_limit_are_told(paged: Paged) -> None:
    changes = paged.table(
        "select rule, \"limit\", epoch_ms(since) from {table} where kind = 'produce' and {where}",
        "limits",
        where="instance = 'edge-2' and broker = 2",
    )
    assert [each[:2] for each in changes] == [("client-id=app", 5000.0), ("user=bob", 50_000.0)]
    first = paged.oracle(
        "min(t)",
        f"{MINE} and instance = 'edge-2' and broker = 2 and produce_rule = 'user=bob' and produce_bytes > 0",
    )
    assert changes[1][2] == first[0]


def test_headroom_is_that_of_the_report_of_all(paged: Paged, spark: SparkSession) -> None:
    numbers = paged.table("select counter from {table} where rule = 'user=bob'", "counters")
    begin = replace(paged.both.usage, begin_us=round(paged.begin.timestamp() * 1_000_000))
    found = look(begin)
    assert found is not None
    mine = F.col("counter").isin([number for (number,) in numbers]) & F.col("date").isNull()
    ends = {each.counter: each.max for each in framed(headroom_of(begin, found)).where(mine).collect()}
    assert len(ends) == len(numbers)
    names = [("p50", 0), ("p99", 2), ("max", 3)]
    assert names
    drawn = paged.table("select max(max) from {table} where rule = 'user=bob'", "headroom")
    assert drawn[0][0] >= max(ends.values())
    [(all_time, active)] = paged.table("select sum(p99), sum(p99_while_active) from {table}", "headroom")
    assert float(str(active)) >= float(str(all_time)) > 0


def test_who_was_there_too(paged: Paged) -> None:
    """Of each episode under the shared quota, those who used it meanwhile."""
    company = paged.table("select companion_user, rule, count(*) from {table} group by all", "company")
    assert {(user, rule) for user, rule, _ in company if rule == "user=bob"} == {(None, "user=bob")}
    shared = [(user, rule) for user, rule, _ in company if rule == "client-id=app"]
    assert ("carol", "client-id=app") in shared
    [(begin, end, broker, used)] = paged.table(
        "select epoch_ms(begin), epoch_ms(\"end\"), broker, companion_used from {table} where companion_user = 'carol' "
        "and kind = 'produce' and mode = 'enforce' order by muted_ms desc, begin limit 1",
        "company",
    )
    where = (
        f"\"user\" = 'carol' and produce_rule = 'client-id=app' and mode <> 'off' and broker = {broker} "
        f"and t < {end} and t + interval_ms > {begin} and produce_bytes + produce_muted_ms > 0"
    )
    assert paged.oracle("sum(produce_bytes)::bigint", where)[0] == used


def test_the_period_before_is_beside_it(paged: Paged) -> None:
    html = Path(paged.made.html).read_text(encoding="utf-8")
    compared = html[html.index('<section id="before"') :]
    before = paged.oracle("sum(bytes_in)::bigint, sum(bytes_out)::bigint, sum(requests)::bigint", now=False)
    for sum_ in before[:2]:
        assert f'data-v="{sum_}"' in compared


def test_what_other_limits_would_have_done(paged: Paged) -> None:
    """Its limit at the end is user=bob, its own; who shared one with it before is not on that."""
    rows = paged.table(
        'select factor, kind, "limit", sum(recorded_bytes)::bigint, sum(throttled_least_s) from {table} '
        "group by all order by kind, factor",
        "whatif",
    )
    assert {row[0] for row in rows} == {0.5, 0.75, 1.0, 1.5, 2.0, 4.0}
    assert {(row[0], row[2]) for row in rows} == {(factor, factor * 50_000) for factor in (0.5, 0.75, 1, 1.5, 2, 4)}
    for kind, column in (("producer_byte_rate", "produce_bytes"), ("consumer_byte_rate", "fetch_bytes")):
        mine = [row for row in rows if row[1] == kind]
        assert {row[3] for row in mine} == {paged.oracle(f"sum({column})::bigint")[0]}
        throttled = [float(str(row[4])) for row in sorted(mine, key=lambda row: float(str(row[0])))]
        assert throttled == sorted(throttled, reverse=True)


def test_a_second_page_is_whole_or_not_there(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended after its tables were written, it has changed nothing; and the page names where its tables are."""
    held = {"produce_limit": 100.0, "produce_rule": "user=bob"}
    rows = [usage(spark, [document(0, [row("bob", "app", produce_bytes=each, **held)])]) for each in (7, 8)]
    wanted = job.ClientRequest(parse(BOB), BEGIN, BEGIN + timedelta(hours=1), str(tmp_path), None, BEGIN)
    place = Path(job.run(rows[0], None, wanted).html).parent
    first = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    with monkeypatch.context() as patched:
        patched.setattr(page, "render", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            job.run(rows[1], None, wanted)
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == first
    assert list(tmp_path.iterdir()) == [place.parent]
    assert job.run(rows[1], None, wanted).html == f"{place}/client.html"
    assert f"<dt>Tables</dt><dd>{place}</dd>" in (place / "client.html").read_text(encoding="utf-8")


def test_a_client_without_rows_hears_of_the_nearest(both: Both, tmp_path: Path) -> None:
    wanted = job.ClientRequest(parse("user=bbo"), BEGIN, BEGIN + timedelta(days=1), str(tmp_path), None, BEGIN)
    with pytest.raises(AnalysisError, match="the nearest: user=bob"):
        job.run(both.usage, None, wanted)


def test_the_command_of_a_client_that_nothing_holds(spark: SparkSession, warehouse: str, tmp_path: Path) -> None:
    """Its names want to be something else, and it was on two brokers, with a cap and partitions beside it."""
    capped = {"produce_caps": "cap user-group=t", "produce_cap_limits": "3000"}
    rows = [row(SCRIPT, "=x", broker=broker, bytes_in=7, produce_bytes=7, **capped) for broker in (1, 2)]
    store(usage_frame(spark, [document(second, rows) for second in range(3)]), warehouse)
    asked = ["report", "--warehouse", warehouse, "--client", f"user={SCRIPT}", "--out", str(tmp_path / "o")]
    ran = CliRunner().invoke(analyze, asked)
    assert ran.exit_code == 0, (ran.output, ran.exception)
    sentence, place = ran.stdout.splitlines()[-2:]
    assert sentence.endswith("was throttled never.")
    html = Path(place).read_text(encoding="utf-8")
    assert SCRIPT not in html
    assert "is not stored: records begin at 2026-03-01 12:00:00" in html
    assert "cap user-group=t" in html
    assert ". Records are there 2026-03-01 12:00:00" in html.replace("<p class=lead>", ". "), "a sentence of its own"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--client", "alice"], "names no client: write --client"), (["--client", "user=a", "--rates", "x"], "--rates")],
)
def test_what_the_user_got_wrong(arguments: list[str], said: str) -> None:
    ran = CliRunner().invoke(analyze, ["report", "--warehouse", "/nowhere", *arguments])
    assert ran.exit_code == 2
    assert said in ran.stderr


def test_an_address(spark: SparkSession, tmp_path: Path) -> None:
    came = {"connection_attempts": 9, "connection_throttled": 4, "connection_muted_ms": 300}
    held = {"connection_limit": 5.0, "connection_rule": "ip=<default>"}
    rows = usage(spark, [document(s, [row(None, None, broker=-1, ip="10.0.0.5", **came, **held)]) for s in range(20)])
    wanted = job.ClientRequest(parse("ip=10.0.0.5"), BEGIN, BEGIN + timedelta(seconds=20), str(tmp_path), None, BEGIN)
    made = job.run(rows, None, wanted)
    assert made.sentence.startswith("ip=10.0.0.5 was throttled for 6 s, in 1 episode")
    html = Path(made.html).read_text(encoding="utf-8")
    assert "connection_creation_rate: connecting, connections/s" in html
    assert "180 attempts" in html
    assert "5 connections/s by" in html
