"""A report from rows to its directory, and its sums against those of the rows."""

import csv
import json
import re
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from analysis.cli import analyze
from analysis.metrics.chargeback import COLUMNS
from analysis.metrics.rates import Rates, load
from analysis.report import episodes, job, page, tables
from analysis.report.findings import ReportFindings
from analysis.report.job import Made, ReportRequest
from analysis.report.summary import summarize
from analysis.report.tables import ReportChoices
from analysis.table.parts import Parts
from tests.analysis.metrics.conftest import Both
from tests.analysis.metrics.recorded import documents
from tests.analysis.records import BEGIN, document, row, usage, usage_frame
from tests.analysis.report.tables import differing
from tests.analysis.table.test_warehouse import store

pytestmark = pytest.mark.spark

RATES = "currency: EUR\nrates:\n  bytes_in: {per: 1MB, price: 2}\n  requests: {per: 1000, price: 0.5}\n"


@dataclass(frozen=True)
class Reported:
    made: Made
    place: Path
    found: ReportFindings


@pytest.fixture(scope="session")
def reported(both: Both, tmp_path_factory: pytest.TempPathFactory) -> Reported:
    folder = tmp_path_factory.mktemp("out")
    rates = folder / "rates.yaml"
    rates.write_text(RATES, encoding="utf-8")
    made = job.run(both.usage, ReportRequest(None, None, str(folder), load(rates), None))
    place = Path(made.html).parent
    kept = {name: Parts.of(pq.read_table(place / name)) for name in tables.NAMES}
    return Reported(made, place, summarize(kept, both.period, ReportChoices(31_000, load(rates)), str(place)))


def test_everything_is_there(reported: Reported) -> None:
    assert {each.name for each in reported.place.iterdir() if not each.name.endswith(".crc")} == {
        *tables.NAMES,
        "chargeback.csv",
        "search",
        "report.html",
    }
    assert reported.place.name.startswith("report=20260301T")
    assert reported.made.sentence.endswith("in all.")
    html = (reported.place / "report.html").read_text(encoding="utf-8")
    assert reported.made.sentence.split(" were")[0] in html
    assert "<script>alert(1)</script>" not in html


def test_what_is_shown_adds_up_to_the_rows(reported: Reported, both: Both) -> None:
    totals = reported.found.totals
    [row] = both.oracle(
        "select count(*), sum(bytes_in)::bigint, sum(bytes_out)::bigint, sum(requests)::bigint, "
        "sum(connections_refused)::bigint, sum(produce_muted_ms + fetch_muted_ms)::bigint, "
        'count(distinct ("user", client_id)) filter ("user" is not null), '
        'count(distinct ("user", client_id)) filter (produce_muted_ms + fetch_muted_ms > 0) from rows'
    )
    assert row == (
        *(totals.rows, totals.bytes_in, totals.bytes_out, totals.requests),
        *(totals.refused, totals.muted_ms, totals.clients, totals.throttled),
    )
    assert sum(map(sum, (series.values for series in reported.found.series))) == totals.bytes_in + totals.bytes_out
    assert sum(each.muted_ms for each in reported.found.throttled) == totals.muted_ms
    assert sum(each.muted_ms for each in reported.found.episodes) == totals.muted_ms
    assert sum(each.bytes_in for each in reported.found.charges) == totals.bytes_in


def test_a_second_one_is_whole_or_not_there(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended after its tables were written, it has changed nothing; and the page names where its tables are."""
    usages = [usage(spark, [document(0, [row(user, bytes_in=7)])]) for user in ("alice", "bob")]
    wanted = ReportRequest(BEGIN, BEGIN + timedelta(hours=1), str(tmp_path), Rates(), None)
    place = Path(job.run(usages[0], wanted).html).parent
    first = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    with monkeypatch.context() as patched:
        patched.setattr(page, "render", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            job.run(usages[1], wanted)
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == first
    assert list(tmp_path.iterdir()) == [place]
    assert job.run(usages[1], wanted).html == f"{place}/report.html"
    assert pq.read_table(place / "clients")["user"].to_pylist() == ["bob"]
    assert f"<dt>Tables</dt><dd>{place}</dd>" in (place / "report.html").read_text(encoding="utf-8")


def test_times_are_utc(reported: Reported, both: Both) -> None:
    [(first, last)] = both.oracle(
        "select min(t), max(t + interval_ms) from rows where produce_muted_ms + fetch_muted_ms > 0"
    )
    assert min(each.begin for each in reported.found.episodes).timestamp() * 1000 == first
    assert max(each.end for each in reported.found.episodes).timestamp() * 1000 == last
    assert {str(each.begin.tzinfo) for each in reported.found.episodes} == {"UTC"}


def test_all_episodes_can_be_searched(reported: Reported, both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages have the same, whether all episodes are sorted at once or not."""
    [(count, muted_ms)] = both.oracle(
        "select count(*), sum(muted_ms)::bigint from read_parquet('{place}/episodes/*.parquet')", place=reported.place
    )

    def rows(made: dict[str, str]) -> list[list[object]]:
        pages = len(json.loads(made["index"].removeprefix('sluiceFound("index",').removesuffix(");\n"))["pages"])
        return [
            row
            for number in range(pages)
            for row in json.loads(made[f"page-{number}"].partition(",")[2].removesuffix(");\n"))
        ]

    files = (reported.place / "search").glob("*.js")
    written = rows({path.stem: path.read_text(encoding="utf-8") for path in files})
    assert len(written) == count
    assert sum(int(str(row[8])) for row in written) == muted_ms
    monkeypatch.setattr(episodes, "_IN_MEMORY", 10)
    monkeypatch.setattr(episodes, "_AT_ONCE", 7)
    kept = Parts.of(pq.read_table(reported.place / "episodes"))
    assert rows(dict(episodes.files(episodes._pages_of(kept)))) == written


def test_the_bill_adds_up_to_the_rows(reported: Reported, both: Both) -> None:
    with (reported.place / "chargeback.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert tuple(lines[0]) == COLUMNS
    for sku in ("bytes_in", "bytes_out", "requests"):
        [(used,)] = both.oracle("select sum({sku})::bigint from rows", sku=sku)
        assert sum(int(line["ConsumedQuantity"]) for line in lines if line["SkuId"] == sku) == used
    [(bytes_in, requests)] = both.oracle("select sum(bytes_in) / 1e6 * 2, sum(requests) / 1000 * 0.5 from rows")
    cost = sum(float(line["BilledCost"] or 0) for line in lines)
    assert cost == pytest.approx(float(str(bytes_in)) + float(str(requests)))
    assert {line["BilledCost"] for line in lines if line["SkuId"] == "bytes_out"} == {""}
    assert {line["x_ShareKnown"] for line in lines} == {"1.0"}
    starts = sorted({line["ChargePeriodStart"] for line in lines})
    assert [start[:10] for start in starts] == ["2026-03-01", "2026-03-02"]
    assert starts[1] == "2026-03-02T00:00:00Z"
    assert {line["BillingPeriodStart"] for line in lines} == {"2026-03-01T00:00:00Z"}
    assert {line["BillingPeriodEnd"] for line in lines} == {"2026-04-01T00:00:00Z"}


def test_the_command(spark: SparkSession, warehouse: str) -> None:
    lost = range(10, 40)
    store(usage_frame(spark, (each for each in islice(documents(seed=7), 100) if each["seq"] not in lost)), warehouse)
    aside = spark.createDataFrame([("is not JSON", "nonsense")], "fault string, value string")
    aside.write.parquet(f"{warehouse}/rejected/batch=b-0")
    ran = CliRunner().invoke(analyze, ["report", "--warehouse", warehouse])
    assert ran.exit_code == 0, ran.output
    assert ran.stdout.splitlines()[-2].endswith(". 30 % of the records are missing.")
    html = Path(ran.stdout.splitlines()[-1])
    assert html.parent.parent == Path(f"{warehouse}-reports"), "whoever reads the warehouse finds tables alone"
    assert "30</b> of 100 documents" in html.read_text(encoding="utf-8")
    assert "report: 1 of" in ran.stderr
    assert "of 2026-02-28 00:00 to 2026-03-01 00:00 UTC nothing is stored" in html.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--from", "2031-01-01"], "no usage records"),
        (["--from", "2026-03-01T12:30", "--to", "2026-03-01T12:40"], "no usage records from 2026-03-01 12:30 to"),
        (["--rates", "{tmp}/none.yaml"], "no such file"),
        (["--gap", "-1"], "--gap"),
        (["--against", "2026-02-28"], "is not FROM..TO"),
        (["--against", "2026-02-28..2026-02-27"], "ends before it begins"),
        (["--against", "yesterday..2026-02-27"], "'yesterday' is not a time"),
        (["--against", "2026-02-27..2026-02-28"], "--against: no usage records from 2026-02-27 00:00 to 2026-02-28"),
    ],
)
def test_what_the_user_got_wrong(
    spark: SparkSession, warehouse: str, tmp_path: Path, arguments: list[str], said: str
) -> None:
    store(usage_frame(spark, [document(0, [row()])]), warehouse)
    arguments = [text.format(tmp=tmp_path) for text in arguments]
    ran = CliRunner().invoke(analyze, ["report", "--warehouse", warehouse, *arguments])
    assert ran.exit_code == 2
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_period_of_days_is_named_by_its_bounds() -> None:
    assert f"{BEGIN:{job._ID}}-{BEGIN + timedelta(days=1):{job._ID}}" == "20260301T120000Z-20260302T120000Z"


def test_a_damaged_file_is_named(spark: SparkSession, warehouse: str) -> None:
    store(usage_frame(spark, [document(0, [row()])]), warehouse)
    [file] = Path(warehouse).glob("usage/*/*/*/*.parquet")
    file.write_bytes(file.read_bytes()[:-100])
    file.with_name(f".{file.name}.crc").unlink()
    ran = CliRunner().invoke(analyze, ["report", "--warehouse", warehouse])
    assert ran.exit_code == 1
    assert f"error: file:{file}: " in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.timeout(600)
def test_every_table_is_the_same_of_rows_at_hand(reported: Reported, both: Both, tmp_path: Path) -> None:
    rates = tmp_path / "rates.yaml"
    rates.write_text(RATES, encoding="utf-8")
    assert both.usage.files is not None
    spark = both.usage.spark
    here = replace(both.usage, files=None, at_hand=both.usage.files.toArrow(), session=spark)
    made = job.run(here, ReportRequest(None, None, str(tmp_path / "out"), load(rates), None))
    place = Path(made.html).parent
    assert made.sentence == reported.made.sentence
    assert differing(spark, place, reported.place, tables.NAMES) == []
    for name in tables.NAMES:
        schemas = {spark.read.parquet(str(each / name)).schema.simpleString() for each in (place, reported.place)}
        assert len(schemas) == 1, name
    lines = [(each / "chargeback.csv").read_text(encoding="utf-8").splitlines() for each in (place, reported.place)]
    assert [line.split(",")[:12] for line in lines[0]] == [line.split(",")[:12] for line in lines[1]]
    one, other = (
        re.sub(r'data-v="[^"]*"', "", (each / "report.html").read_text(encoding="utf-8").replace(str(each), "")).split(
            ">"
        )
        for each in (place, reported.place)
    )
    assert one == other
