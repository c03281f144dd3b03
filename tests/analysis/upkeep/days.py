"""Days of records, and reports of them: of their rows, and of what is summed up."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from analysis.metrics.clients import CLIENT, clients
from analysis.metrics.rates import Rates
from analysis.report import job, tables
from analysis.report.comparing import NAMES, Against
from analysis.report.job import ReportRequest
from analysis.table import at_hand
from analysis.table import warehouse as stored
from analysis.table.scan import UsageRows
from analysis.upkeep.summing import SummedUp, SummingUp, SumUpRequest
from tests.analysis.records import BEGIN, Document, document, framed, row
from tests.analysis.report.tables import differing
from tests.analysis.upkeep.conftest import GRACE_S, Filled

MIDNIGHT = BEGIN.replace(hour=0)
DAY_S = 86_400
DAYS = 4
DATES = DAYS + 1
"""From noon to noon, and a minute more."""
NOW = MIDNIGHT + timedelta(days=DAYS + 2)


def recorded(seed: int = 3) -> Iterator[Document]:
    """Some minutes around noon and around each midnight, with all that does not stop at one.

    A burst that a window has half of; a gap of hours; a mute that goes on; an interval, and a limit, that change; caps;
    addresses; documents that were dropped.
    """
    chance = random.Random(seed)
    for instance in ("edge-1", "edge-2"):
        seq = 0
        for day in range(DAYS):
            for begins_s in (day * DAY_S, day * DAY_S + DAY_S // 2 - 60):
                interval_s = 1 if day < 2 else 5
                seq += 3  # what was between, for half a day, did not arrive
                for second in range(0, 120, interval_s):
                    seq += 1 if chance.random() < 0.95 else chance.randrange(2, 4)
                    yield document(
                        seq,
                        list(_rows(chance, day, second, interval_s)),
                        second=begins_s + second,
                        interval_ms=1000 * interval_s,
                        instance=instance,
                        samples=11 if day < 3 else 31,
                        dropped_documents=seq // 100,
                    )


def _rows(chance: random.Random, day: int, second: int, interval_s: int) -> Iterator[dict[str, Any]]:
    loud = 50 <= second < 70
    for user, rule, limit in (
        ("alice", "user=alice", 1000.0 * (1 + day // 2)),
        ("bob", "user=<default>", 500.0),
        ("dave", None, None),
    ):
        if chance.random() < 0.7:
            bytes_ = chance.randrange(2000) * interval_s * (5 if loud else 1)
            muted_ms = 400 * interval_s if loud and rule else 0
            caps = {"produce_caps": "client-id=app", "produce_cap_limits": "4000.0"} if day == 1 else {}
            yield row(
                user,
                chance.choice(("app", "web")),
                bytes_in=bytes_,
                requests=3,
                request_time_ms=chance.randrange(9),
                produce_bytes=bytes_,
                produce_rule=rule,
                produce_limit=limit,
                produce_throttled=muted_ms // 100,
                produce_throttle_ms=muted_ms,
                produce_muted_ms=muted_ms,
                **caps,
            )
    yield row(None, None, broker=-1, ip="10.0.0.1", connection_attempts=3, connection_rule="ip=<default>")


def sum_up(filled: Filled, *, older_s: int = 7200, dry_run: bool = False) -> SummedUp:
    request = SumUpRequest(older_s, GRACE_S, dry_run)
    return SummingUp(filled.spark, filled.place, request, filled.told.append, lambda: filled.now_s).run()


@contextmanager
def by_workers() -> Iterator[None]:
    """Have what is little read like what is much."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(at_hand, "FEW_FILES", 0)
        yield


def usage(filled: Filled, begin: datetime | None, end: datetime | None, *, summed_up: bool = True) -> UsageRows:
    with by_workers():
        return stored.usage(filled.spark, filled.place, begin, end, with_summaries=summed_up)


def report(filled: Filled, out: Path, begin: datetime | None, end: datetime | None, *, summed_up: bool) -> Path:
    """Make a report, against the time before its period: of sums, or of rows, in the driver."""

    def found(since: datetime | None, until: datetime | None) -> UsageRows:
        return usage(filled, since, until) if summed_up else stored.usage(filled.spark, filled.place, since, until)

    request = ReportRequest(begin, end, str(out), Rates(), None, Against(found))
    return Path(job.run(found(begin, end), request).html).parent


def of_clients(found: UsageRows) -> list[Row]:
    """Sums of each client and date."""
    return framed(clients(found, 1000)).orderBy("date", *CLIENT).collect()


def assert_alike(spark: SparkSession, one: Path, other: Path) -> None:
    """Two reports say the same: every table, the page, and ``chargeback.csv``."""
    assert differing(spark, one, other, [*tables.NAMES, *NAMES]) == []
    pages = [(each / "report.html").read_text(encoding="utf-8").replace(str(each), "") for each in (one, other)]
    assert pages[0] == pages[1]
    csv = [(each / "chargeback.csv").read_text(encoding="utf-8") for each in (one, other)]
    assert csv[0] == csv[1]
