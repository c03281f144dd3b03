"""Reports of gold made by hand: each table by itself, the page, and what is refused."""

import csv
import re
from datetime import UTC, date, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from analysis.cli import analyze
from tests.analysis.report import by_hand
from tests.analysis.report.by_hand import HOUR, HOUR_MS, NAMES, SCRIPT, busy, client, documents, later, quiet

Row = dict[str, Any]


def report(warehouse: Path, *arguments: str) -> Path:
    """Return the folder of a report."""
    made = CliRunner().invoke(analyze, ["report", "--warehouse", str(warehouse), *arguments])
    assert made.exit_code == 0, made.output
    return Path(made.output.splitlines()[-1]).parent


def refused(warehouse: Path, *arguments: str) -> str:
    made = CliRunner().invoke(analyze, ["report", "--warehouse", str(warehouse), *arguments])
    assert made.exit_code == 2, made.output
    return made.output


def table(folder: Path, name: str) -> list[Row]:
    found = duckdb.connect().execute(f"SET TimeZone = 'UTC'; FROM '{folder}/{name}.parquet'")
    columns = [each[0] for each in found.description]
    return [dict(zip(columns, row, strict=True)) for row in found.fetchall()]


def losses(folder: Path) -> dict[tuple[str, int], tuple[int, int]]:
    """Missing and dropped documents, by boot and hour."""
    return {
        (each["boot"], each["hour"].hour): (each["missing"], each["dropped"])
        for each in table(folder, "loss")
        if each["missing"] or each["dropped"]
    }


def test_gap_is_spread_evenly_between_the_surrounding_documents(tmp_path: Path) -> None:
    first, second = documents(HOUR, range(3)), documents(later(1), range(23, 26))
    for each in first:
        each["begin_ms"] += 3_590_000
        each["end_ms"] += 3_590_000
    for each in second:
        each["begin_ms"] += 7000
        each["end_ms"] += 7000
    by_hand.write(
        tmp_path / "w",
        {
            HOUR: {"client": [client()], "documents": first},
            later(1): {"client": [client(later(1))], "documents": second},
        },
    )
    assert losses(report(tmp_path / "w")) == {("boot-1", 12): (10, 0), ("boot-1", 13): (10, 0)}


def test_a_boot_that_does_not_begin_at_0_has_a_gap(tmp_path: Path) -> None:
    found = [
        *documents(HOUR, [7, 8], boot="seven"),
        *documents(HOUR, [5], boot="dropped", dropped=5),
        *documents(HOUR, [0, 1], boot="whole"),
    ]
    by_hand.write(tmp_path / "w", {HOUR: {"client": [client()], "documents": found}})
    folder = report(tmp_path / "w")
    assert losses(folder) == {("dropped", 12): (5, 5), ("seven", 12): (7, 0)}
    assert "12 of 17 documents (71 %) missing" in (folder / "report.html").read_text(encoding="utf-8")


def test_boot_from_before_the_period_has_no_gap(tmp_path: Path) -> None:
    """Its documents of days ago are looked at: a proxy that nobody uses writes none."""
    by_hand.write(
        tmp_path / "w",
        {
            later(-50): {"client": [client(later(-50))], "documents": documents(later(-50), range(7))},
            HOUR: {"client": [client()], "documents": documents(HOUR, [7, 9])},
        },
    )
    folder = report(tmp_path / "w")
    assert losses(folder) == {("boot-1", 12): (1, 0)}
    assert [each["documents"] for each in table(folder, "loss")] == [2]


def test_boot_with_expired_first_documents_has_no_gap(tmp_path: Path) -> None:
    left = documents(HOUR, [7, 8, 10], dropped=3, is_first=False)
    by_hand.write(tmp_path / "w", {HOUR: {"client": [client()], "documents": left}})
    assert losses(report(tmp_path / "w")) == {("boot-1", 12): (1, 0)}


def reading(values: list[float], counts: list[int], **columns: Any) -> Row:
    return {
        "values": values,
        "seconds": counts,
        "busy_s": sum(counts),
        "over_s": sum(n for v, n in zip(values, counts, strict=True) if v > 1),
        "used_s": 1,
        "max": max(values),
        "most_window": 1.0,
        "last_ms": HOUR_MS,
        **columns,
    }


def test_percentiles_are_over_all_intervals_of_the_period(tmp_path: Path) -> None:
    """3,600 of them, of which 180 are busy: with these, zeros and hours are put together."""
    by_hand.write(
        tmp_path / "w",
        {
            HOUR: {
                "client": [client()],
                "counters": [{}],
                "readings": [reading([0.5, 2.0], [100, 20])],
            },
            later(1): {
                "client": [client(later(1))],
                "counters": [{}],
                "readings": [reading([0.5, 0.75], [200, 40], limit=2e6, last_ms=HOUR_MS + 3_600_000)],
            },
        },
    )
    [found] = table(report(tmp_path / "w"), "headroom")
    intervals = sorted([0.0] * (7200 - 360) + [0.5] * 300 + [0.75] * 40 + [2.0] * 20)
    assert [found[name] for name in ("p50", "p95", "p99")] == [0, intervals[6839], intervals[7127]] == [0, 0, 0.5]
    assert (found["max"], found["limit"]) == (2.0, 2e6)
    assert found["over"] == pytest.approx(20 / 7200)
    assert found["active"] == pytest.approx(360 / 7200)


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], "rising"),
        ([0.6, 0.5, 0.4, 0.3, 0.2], "falling"),
        ([0.5, 0.5, 0.5, 0.5, 0.5], "level"),
        ([0.2, 0.7, 0.1, 0.8, 0.15, 0.75], "unclear"),
        ([1.25, 1.5, 1.25, 1.75, 1.5], "at its limit"),
    ],
)
def test_trend_verdict_follows_daily_percentiles(tmp_path: Path, shares: list[float], verdict: str) -> None:
    hours: dict[datetime, by_hand.Tables] = {}
    for day, share in enumerate(shares):
        hour = datetime(2026, 3, 1 + day, tzinfo=UTC)
        whole = {"begin_ms": int(hour.timestamp() * 1000), "end_ms": int(hour.timestamp() * 1000) + 86_400_000}
        readings = [reading([share], [86_400])]
        hours[hour] = {"client": [client(hour, **whole)], "counters": [{}], "readings": readings}
    by_hand.write(tmp_path / "w", hours)
    [found] = table(report(tmp_path / "w", "--from", "2026-03-01", "--to", "2026-03-09"), "trend")
    assert (found["verdict"], found["days"]) == (verdict, len(shares))
    if verdict == "rising":
        assert found["days_left"] == pytest.approx(4, abs=0.1)


def test_episodes_end_where_nothing_was_muted_for_a_window(tmp_path: Path) -> None:
    seconds = [0, 1, 12, 30, 31]  # 10 s between 1 and 12, 17 s between 12 and 30
    muted = [
        {"begin_ms": HOUR_MS + 1000 * s, "end_ms": HOUR_MS + 1000 * s + 1000, "muted_ms": 400, "throttled": 2}
        for s in seconds
    ]
    by_hand.write(tmp_path / "w", {HOUR: {"client": [client()], "muted": muted}})
    found = table(report(tmp_path / "w"), "episodes")
    assert [(each["begin"].second, each["end"].second, each["muted_ms"]) for each in found] == [
        (0, 13, 1200),
        (30, 32, 800),
    ]


RATES = "currency: EUR\nrates:\n  bytes_in: {per: 1GiB, price: 0.5}\n"


@pytest.mark.parametrize(
    ("zone", "day", "length"),
    [
        ("Europe/Berlin", date(2026, 3, 29), 23),
        ("Europe/Berlin", date(2026, 10, 25), 25),
        ("UTC", date(2026, 3, 29), 24),
        ("Asia/Kolkata", date(2026, 3, 29), 24),
        ("Asia/Kathmandu", date(2026, 3, 29), 24),
        ("America/St_Johns", date(2026, 3, 8), 23),
    ],
)
def test_a_day_is_charged_by_the_clock_of_its_zone(tmp_path: Path, zone: str, day: date, length: int) -> None:
    """Also on the days on which the clock is changed, and between full hours: each quarter of an hour moves 256 MiB."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).astimezone(UTC)
    hours = [midnight.replace(minute=0) + timedelta(hours=n) for n in range(-3, length + 4)]
    by_hand.write(
        tmp_path / "w",
        {
            hour: {
                "client": [client(hour)],
                "users": [{"minute": 15 * n, "bytes_in": 2**28, "exempt": False} for n in range(4)],
                "documents": documents(hour, [hour.hour]),
            }
            for hour in hours
        },
    )
    (tmp_path / "rates.yaml").write_text(RATES, encoding="utf-8")
    arguments = (
        "--zone",
        zone,
        "--from",
        f"{day}",
        "--to",
        f"{day + timedelta(days=1)}",
        "--rates",
        str(tmp_path / "rates.yaml"),
    )
    lines = {each["SkuId"]: each for each in table(report(tmp_path / "w", *arguments), "chargeback")}
    line = lines["bytes_in"]
    assert (line["ConsumedQuantity"], line["BilledCost"], line["BillingCurrency"]) == (
        length * 2**30,
        length / 2,
        "EUR",
    )
    assert line["ChargePeriodStart"] == midnight
    assert line["ChargePeriodEnd"] == midnight + timedelta(hours=length)
    assert lines["requests"]["BilledCost"] is None
    whole = table(
        report(
            tmp_path / "w",
            "--zone",
            zone,
            "--from",
            f"{hours[0]:%Y-%m-%dT%H:%MZ}",
            "--to",
            f"{(end := hours[-1] + timedelta(hours=1)):%Y-%m-%dT%H:%MZ}",
        ),
        "chargeback",
    )
    quarter, next_midnight = timedelta(minutes=15), midnight + timedelta(hours=length)
    quarters = [(midnight - hours[0]) // quarter, 4 * length, (end - next_midnight) // quarter]
    assert [each["ConsumedQuantity"] >> 28 for each in whole if each["SkuId"] == "bytes_in"] == quarters


def test_a_spreadsheet_takes_no_name_for_a_formula(tmp_path: Path) -> None:
    by_hand.write(tmp_path / "w", {HOUR: busy()})
    folder = report(tmp_path / "w")
    with (folder / "chargeback.csv").open(encoding="utf-8", newline="") as file:
        users = {each["SubAccountId"] for each in csv.DictReader(file)}
    assert "'=cmd|' /C calc'!A0" in users
    assert {each["SubAccountId"] for each in table(folder, "chargeback")} == {user for user, _ in NAMES}


class Elements(HTMLParser):
    """What a browser would take for elements, attributes and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("arguments", [(), ("--client", f"client-id={SCRIPT}")])
def test_no_name_is_markup(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    by_hand.write(tmp_path / "w", {HOUR: busy(), later(-24): {"client": [client(later(-24))]}})
    page = (report(tmp_path / "w", *arguments) / "report.html").read_text(encoding="utf-8")
    found = Elements(page)
    assert found.tags.count("script") == 1
    assert not {name for name in found.attributes if name.startswith("on")}
    assert SCRIPT in found.text
    assert "{{ 7 * 7 }}" in found.text or arguments
    assert "\u202e" not in page
    assert re.search(r"script-src 'sha256-[^']+'; img-src data:", page)


def test_report_of_quiet_hour_says_nobody_was_throttled(tmp_path: Path) -> None:
    by_hand.write(tmp_path / "w", {HOUR: quiet()})
    made = CliRunner().invoke(analyze, ["report", "--warehouse", str(tmp_path / "w")])
    assert made.output.splitlines()[0] == (
        "No client was throttled while producing, consuming, sending requests or changing topics."
    )
    assert made.output.splitlines()[1] == f"{tmp_path}/w-reports/report=20260301T120000Z-20260301T130000Z/report.html"


def test_the_period_before_is_compared(tmp_path: Path) -> None:
    now: by_hand.Tables = {
        "client": [client(bytes_in=300), client(bytes_in=7, user="new")],
        "counters": [{}],
        "readings": [reading([0.5], [3600])],
    }
    before: by_hand.Tables = {
        "client": [client(later(-24), bytes_in=100), client(later(-24), bytes_in=9, user="gone")],
        "counters": [{}],
        "readings": [reading([0.25], [3600], limit=2e6)],
    }
    by_hand.write(tmp_path / "w", {HOUR: now, later(-24): before})
    folder = report(tmp_path / "w")
    clients = {
        each["user"]: (each["seen"], each["bytes"], each["bytes_before"]) for each in table(folder, "compared_clients")
    }
    assert clients == {"alice": ("both", 300, 100), "new": ("new", 7, 0), "gone": ("gone", 0, 9)}
    [limit] = table(folder, "compared_limits")
    assert (limit["p99"], limit["p99_before"], limit["limit"], limit["limit_before"]) == (0.5, 0.25, 1e6, 2e6)
    [quota] = table(folder, "compared_quotas")
    assert (quota["most_limit"], quota["most_limit_before"]) == (1e6, 2e6)
    assert "Against the period before" in (folder / "report.html").read_text(encoding="utf-8")
    first_day = (f"{later(-24):%Y-%m-%dT%H:%MZ}", f"{later(-23):%Y-%m-%dT%H:%MZ}")
    alone = report(tmp_path / "w", "--from", first_day[0], "--to", first_day[1])
    assert not (alone / "compared_clients.parquet").exists()
    assert "Against the period before" not in (alone / "report.html").read_text(encoding="utf-8")


def test_limits_used_by_a_tenth_in_either_period_are_compared(tmp_path: Path) -> None:
    """Counter 4 is that of another proxy instance, which has the broker of counter 1 now."""

    def hour(at: datetime, shares: dict[int, float]) -> by_hand.Tables:
        names = [{"counter": number, "rule": f"user={number % 3}", "unit_user": f"{number % 3}"} for number in shares]
        readings = [reading([share], [3600], counter=number) for number, share in shares.items()]
        return {"client": [client(at)], "counters": names, "readings": readings}

    before, now = {1: 0.0625, 2: 0.5, 3: 0.0625}, {4: 0.25, 2: 0.03125, 3: 0.0625}
    by_hand.write(tmp_path / "w", {HOUR: hour(HOUR, now), later(-24): hour(later(-24), before)})
    compared = table(report(tmp_path / "w"), "compared_limits")
    assert [(each["unit_user"], each["p99"], each["p99_before"]) for each in compared] == [
        ("2", 0.03125, 0.5),
        ("1", 0.25, 0.0625),
    ]


def test_report_of_one_client_shows_only_its_use_and_limits(tmp_path: Path) -> None:
    who: Row = {"user": "bob", "client_id": "batch"}
    shared = [
        {"victim_user": "alice", "victim_client_id": "app", "caused_ms": 70.0, **who},
        {
            "victim_user": "bob",
            "victim_client_id": "batch",
            "caused_ms": 5.0,
            "user": "alice",
            "client_id": "app",
        },
    ]
    by_hand.write(
        tmp_path / "w",
        {
            HOUR: {
                "client": [client(bytes_in=5), client(bytes_in=9, **who), client(bytes_in=1, user="carol")],
                "charged": [
                    {"used": 5, "muted_ms": 100, "throttled": 3},
                    {"used": 9, "muted_ms": 50, **who},
                    {"used": 1, "counter": 2, "user": "carol", "rule": "user=carol"},
                ],
                "counters": [{"is_shared": True}, {"counter": 2, "rule": "user=carol"}],
                "readings": [reading([0.5], [10]), reading([0.7], [10], counter=2)],
                "shared": shared,
            }
        },
    )
    folder = report(tmp_path / "w", "--client", "user=alice")
    assert folder.parent.name.startswith("client=user-alice-")
    assert [(each["user"], each["bytes_in"]) for each in table(folder, "talkers")] == [("alice", 5)]
    assert [each["counter"] for each in table(folder, "headroom")] == [1]
    [use] = table(folder, "client_use")
    assert (use["used"], use["used_by_all"], use["muted_ms"], use["at_s"]) == (5, 14, 100, HOUR_MS // 1000)
    [company] = table(folder, "company")
    assert (company["user"], company["used"], company["caused_ms"], company["caused_by_client_ms"]) == ("bob", 9, 70, 5)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "user=alice was throttled for 100 ms (producing) in all." in page
    assert "What it used, and its limits" in page
    assert "no usage records of user=alise" in refused(tmp_path / "w", "--client", "user=alise")
    assert "user=alice" in refused(tmp_path / "w", "--client", "user=alise")


def test_rejected_documents_are_on_the_page(tmp_path: Path) -> None:
    by_hand.write(tmp_path / "w", {HOUR: quiet()})
    place = tmp_path / "w" / "rejected" / "batch=b-0"
    place.mkdir(parents=True)
    columns = {
        "topic": ["usage", "usage", None],
        "partition": [0, 0, None],
        "offset": [12, 7, None],
        "file": [None, None, "a.jsonl"],
        "line": [None, None, 3],
        "fault": [SCRIPT, SCRIPT, "x"],
    }
    pq.write_table(pa.table(columns), place / "part.parquet")
    folder = report(tmp_path / "w")
    assert [(each["fault"], each["documents"], each["offset"], each["line"]) for each in table(folder, "rejected")] == [
        (SCRIPT, 2, 7, None),
        ("x", 1, None, 3),
    ]
    text = Elements((folder / "report.html").read_text(encoding="utf-8")).text
    assert SCRIPT in text
    assert "usage, partition 0, offset 7" in text
    assert "a.jsonl, line 3" in text


def test_a_report_needs_gold(tmp_path: Path) -> None:
    assert "there are no usage records here" in refused(tmp_path / "w")
    (tmp_path / "w" / "usage" / "date=2026-03-01" / "hour=12" / "batch=b-0").mkdir(parents=True)
    said = refused(tmp_path / "w")
    assert "gold tables are not made" in said
    assert "sluice analyze gold" in said


def test_report_names_rows_that_are_not_in_gold_yet(tmp_path: Path) -> None:
    hours = {hour: {**quiet(), "client": [client(hour)]} for hour in (later(-3), HOUR)}
    by_hand.write(tmp_path / "w", hours, stale=[HOUR])
    made = CliRunner().invoke(analyze, ["report", "--warehouse", str(tmp_path / "w")])
    assert made.exit_code == 0
    assert "1 newer batch of rows not in gold yet" in made.output
    by_hand.write(tmp_path / "old", hours, stale=[later(-3)])
    assert "rows of the hour 2026-03-01 09:00 UTC are not in gold yet" in refused(tmp_path / "old")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--from", "2027-01-01"), "what is stored is of 2026-03-01T12:00 to 2026-03-01T13:00 UTC"),
        (("--zone", "Mars/Olympus"), "'Mars/Olympus' is not a time zone"),
        (
            ("--zone", "Asia/Kolkata", "--client", "user=alice"),
            "use is known by 60 minutes: take another --zone",
        ),
        (("--rates", "/nowhere"), "/nowhere: no such file"),
        (("--client", "alice"), "'alice' names no client"),
        (("--out", "{warehouse}/usage/x"), "is in usage/, a table of the warehouse"),
    ],
)
def test_invalid_report_arguments_are_refused_with_a_reason(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    by_hand.write(tmp_path / "w", {HOUR: quiet() | {"users": [{"exempt": False}]}})
    assert said in refused(tmp_path / "w", *(each.format(warehouse=tmp_path / "w") for each in arguments))


def test_report_period_is_widened_to_whole_hours(tmp_path: Path) -> None:
    by_hand.write(tmp_path / "w", {HOUR: quiet()})
    made = CliRunner().invoke(
        analyze,
        ["report", "--warehouse", str(tmp_path / "w"), "--from", "2026-03-01T12:30", "--to", "2026-03-01T12:40"],
    )
    assert "gold is by UTC hour: the report is from 2026-03-01 12:00 to 2026-03-01 13:00 UTC" in made.output
