"""What is missing, by hand and against a loop over documents."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from analysis.metrics.loss import _KEYS, _SUMS, _Documents, _of_boot, loss, making
from analysis.metrics.period import Period
from analysis.table.arrays import folded, times_ms, with_columns
from analysis.table.documents import SPAN, after_gaps, documents, of_rows, united
from analysis.table.exchange import packed, unpacked
from analysis.table.lateness import late_files
from analysis.table.parquet import encoded
from analysis.table.scan import PATH, UsageRows
from tests.analysis.records import BEGIN_MS, Document, document, framed, made, row, tables, usage

HOUR_S = 3600
LATE = "/u/date=2026-03-01/hour=12/batch=c-7/a.parquet"


def hours_of(
    written: Iterable[Document], *, begin_s: float = 0, end_s: float = 1e6, parts: int = 1, late: Sequence[int] = ()
) -> dict[tuple[str, int | None], dict[str, int]]:
    """What the tasks make of documents in so many files: of each boot and hour after BEGIN all that is not 0."""
    work = _Documents(BEGIN_MS + int(begin_s * 1000), BEGIN_MS + int(end_s * 1000), frozenset([LATE]))
    everything = list(written)
    sent = []
    for part in range(parts):
        for table in tables([name for name in READ if name != PATH], everything[part::parts]):
            paths = [LATE if each in late else "x" for each in table["seq"].to_pylist()]
            with_path = table.append_column(PATH, pa.array(paths).dictionary_encode())
            sent += [part for lines in work.lines(iter([with_path])) for part in packed(lines, _of_boot(lines) % 2)]
    found: dict[tuple[str, int | None], dict[str, int]] = {}
    for task in range(2):
        mine = [batch for piece in sent if piece["task"][0].as_py() == task for batch in piece.to_batches()]
        lines = folded(map(encoded, unpacked(iter(mine))), partial(united, keys=_KEYS, how=_SUMS))
        for table in work.received(lines):
            for each in table.to_pylist():
                key = (each["boot"], each["hour"] - BEGIN_MS // 3_600_000)
                assert key not in found
                found[key] = {name: each[name] for name in table.column_names[4:] if each[name]}
    return found


READ = ("cluster", "instance", "boot", "seq", "time", "interval_ms", "dropped_documents", "user", "client_id", "ip")


def written(seqs: Iterable[int], **fields: Any) -> Iterator[Document]:
    """One document a second, numbered as these."""
    return (document(seq, [row()], **fields) for seq in seqs)


def test_nothing_is_missing() -> None:
    assert hours_of(written(range(5))) == {("boot-1", 0): {"documents": 5, "rows": 5}}


def test_numbers_between_two_that_are_stored_are_missing() -> None:
    assert hours_of(written([3, 4, 8, 9]))["boot-1", 0] == {"documents": 4, "missing": 3, "rows": 4}


def test_a_gap_over_hours_is_divided_by_their_time() -> None:
    found = hours_of(written([0, 3 * HOUR_S + 1800]))
    missing = 3 * HOUR_S + 1800 - 1
    assert [found["boot-1", hour].get("missing", 0) for hour in range(4)] == pytest.approx(
        [3599, 3600, 3600, 1800], abs=1
    )
    assert sum(each.get("missing", 0) for each in found.values()) == missing
    assert found["boot-1", 1] == {"missing": found["boot-1", 1]["missing"]}


def test_a_gap_at_an_end_of_the_period_counts_as_far_as_it_is_in_it() -> None:
    everything = list(written([*range(100), *range(300, 400), *range(600, 700)]))
    found = hours_of(everything, begin_s=200, end_s=500)
    assert found == {("boot-1", 0): {"documents": 100, "missing": 200, "rows": 100}}
    found = hours_of(everything, begin_s=200.5, end_s=500)
    assert found["boot-1", 0]["missing"] in {199, 200}


def test_a_period_in_a_boot_knows_nothing_of_what_was_before() -> None:
    assert hours_of(written(range(50, 60), dropped_documents=7))["boot-1", 0] == {"documents": 10, "rows": 10}


def test_what_a_proxy_dropped_before_its_first_document_is_before_it() -> None:
    first = 2 * HOUR_S
    found = hours_of(written(range(first, first + 10), dropped_documents=first))
    assert found["boot-1", 2] == {"documents": 10, "rows": 10, "dropped": first}
    assert [found["boot-1", hour]["missing"] for hour in (0, 1)] == [HOUR_S, HOUR_S]
    found = hours_of(written(range(first, first + 10), dropped_documents=first), begin_s=first)
    assert found == {("boot-1", 2): {"documents": 10, "rows": 10, "dropped": first}}, "before the period"


def test_drops_are_told_where_the_count_grows() -> None:
    counts = {0: 0, 1: 0, 5: 0, 6: 2, 7: 3, HOUR_S + 8: 3, HOUR_S + 9: 4}
    found = hours_of(document(seq, [row()], dropped_documents=count) for seq, count in counts.items())
    assert found["boot-1", 0]["dropped"] == 3
    assert found["boot-1", 1]["dropped"] == 1


def test_another_boot_begins_anew_and_a_proxy_that_was_off_lacks_nothing() -> None:
    first, second = written(range(10)), written(range(10), boot="boot-2")
    later = [{**each, "time_ms": each["time_ms"] + 5 * HOUR_S * 1000} for each in second]
    assert hours_of([*first, *later]) == {
        ("boot-1", 0): {"documents": 10, "rows": 10},
        ("boot-2", 5): {"documents": 10, "rows": 10},
    }


def test_an_idle_hour_lacks_nothing() -> None:
    assert hours_of([document(0, [row()]), document(1, [row()], second=2 * HOUR_S)]).keys() == {
        ("boot-1", 0),
        ("boot-1", 2),
    }


def test_several_documents_of_one_interval() -> None:
    everything = [document(seq, [row()], second=seq // 4) for seq in range(40)]
    lost = {9, 10, 17, 36}
    found = hours_of(each for each in everything if each["seq"] not in lost)
    assert found["boot-1", 0] == {"documents": 36, "missing": 4, "rows": 36}


def test_a_clock_that_was_set_back() -> None:
    seconds = [*range(10), *range(-3600, -3590)]
    found = hours_of(document(seq, [row()], second=second) for seq, second in enumerate(seconds) if seq != 10)
    assert sum(each.get("missing", 0) for each in found.values()) == 0, "before the begin of the period"
    found = hours_of(
        (document(seq, [row()], second=second) for seq, second in enumerate(seconds) if seq != 10), begin_s=-7200
    )
    assert {hour: each.get("missing", 0) for (_, hour), each in found.items()} == {-1: 1, 0: 0}


def test_a_forged_number_neither_takes_long_nor_all_memory() -> None:
    far = document(2**53, [row()], time_ms=BEGIN_MS + 40 * 365 * 86_400_000)
    found = hours_of([document(0, [row()]), far], end_s=50 * 365 * 86400.0)
    assert sum(each.get("missing", 0) for each in found.values()) == pytest.approx(2**53, rel=1e-9)
    assert len(found) < 750


def test_a_duplicate_in_the_table_is_no_document_more() -> None:
    found = hours_of([*written([0, 1, 2]), *written([1, 2, 4])])
    assert found["boot-1", 0] == {"documents": 4, "missing": 1, "rows": 6}


def test_whose_names_nobody_knows() -> None:
    rows = [row("alice", "sluice:other"), row(None, None, connections_refused=2), row(None, None, ip="10.0.0.1"), row()]
    assert hours_of([document(0, rows)])["boot-1", 0] == {
        "documents": 1,
        "rows": 4,
        "rows_of_others": 1,
        "rows_of_nobody": 1,
    }


def test_what_came_late_is_counted_beside() -> None:
    assert hours_of(written(range(9)), late=[3, 4])["boot-1", 0] == {"documents": 9, "late": 2, "rows": 9}


@pytest.mark.parametrize("seed", range(5))
def test_against_a_loop(seed: int) -> None:
    chance = random.Random(seed)
    everything, expected, missing = [], Counter[tuple[str, int | None]](), 0
    for boot in ("a", "b"):
        second, last = chance.randrange(4000), None
        for seq in range(chance.randrange(30), 400):
            second += chance.choice((0, 0, 1, 1, 1, 60))
            if chance.random() < 0.3:
                continue
            missing += 0 if last is None else seq - last - 1
            last = seq
            expected[boot, second // HOUR_S] += 1
            rows = [row() for _ in range(chance.randrange(1, 4))]
            everything.append(document(seq, rows, second=second, boot=boot))
    chance.shuffle(everything)
    found = hours_of(everything, parts=3)
    assert {key: each["documents"] for key, each in found.items() if "documents" in each} == expected
    assert sum(each.get("missing", 0) for each in found.values()) == missing


def test_lines_of_documents() -> None:
    [table] = tables(("cluster", "instance", "boot", "seq", "time"), written([5, 6, 7, 9, 12, 13]))
    times = dict.fromkeys(("begin_ms", "end_ms"), times_ms(table))
    lines = of_rows(with_columns(table.drop_columns(["time"]), times), ("cluster", "instance", "boot"), {})
    found = after_gaps(lines)
    assert found["first"].to_pylist() == [5, 9, 12]
    assert documents(found).tolist() == [3, 1, 2]
    assert found["missing"].to_pylist() == [0, 1, 2]
    assert set(SPAN) <= set(found.column_names)


@pytest.mark.spark
def test_batches_that_came_after_later_hours() -> None:
    paths = [
        "file:/w/usage/date=2026-03-01/hour=12/batch=a-0/p.parquet",
        "file:/w/usage/date=2026-03-01/hour=13/batch=a-1/p.parquet",
        "file:/w/usage/date=2026-03-01/hour=12/batch=a-1/p.parquet",
        "file:/w/usage/date=2026-03-01/hour=12/batch=a-10/p.parquet",
        "file:/w/usage/date=2026-03-02/hour=00/batch=a-11/p.parquet",
        "file:/w/usage/date=2026-03-01/hour=23/batch=a-12/p.parquet",
        "file:/w/usage/date=2026-03-01/hour=05/batch=b-0/p.parquet",
        "file:/w/usage/date=2026-03-01/hour=12/batch=compacted-0123456789ab-a-12/p.parquet",
        "memory",
    ]
    late = late_files(paths)
    assert late == {paths[3], paths[5], paths[7]}


@pytest.mark.spark
def test_the_table(spark: SparkSession) -> None:
    period = Period(
        datetime.fromtimestamp(BEGIN_MS / 1000, UTC),
        datetime.fromtimestamp(BEGIN_MS / 1000 + 7200, UTC),
        1000, (11000,), 20, ("enforce",), 1, 1,
    )  # fmt: skip
    at = datetime(2026, 3, 1, 13, 30, tzinfo=UTC)
    long_ago = datetime(2025, 1, 1, tzinfo=UTC)
    aside = [
        (
            b'{"v":2,"cluster":"demo","instance":"edge-1","boot":"boot-1","seq":3,"time_ms":%d,"rows":{' % BEGIN_MS,
            "x",
            at,
        ),
        (b'{"cluster":"demo","instance":"edge-9","boot":"new","time_ms":4102444800000,"rows":', "time_ms is 410", at),
        (b"\xff\xfe nonsense", "is not JSON", at),
        (b"\xff\xfe nonsense", "is not JSON", long_ago),
        (b'{"instance":["x"],"time_ms":true}', None, at),
    ]
    kept = spark.createDataFrame(aside, "value binary, fault string, rejected_at timestamp")
    rows = usage(spark, written([0, 1, 4]), [document(5, [row()], second=HOUR_S)])
    all_of_it = UsageRows(rows.files, BEGIN_MS * 1000, around=lambda: UsageRows(rows.files, rejected=kept))
    read = made(all_of_it, making(all_of_it, period)).whole()
    lines = framed(loss(read, all_of_it, period)).collect()
    found = {(each.boot, each.hour and each.hour.astimezone(UTC).hour): each for each in lines}
    assert found.keys() == {("boot-1", 12), ("boot-1", 13), ("new", None), (None, None)}
    first = found["boot-1", 12]
    assert (first.documents, first.missing, first.expected, first.rejected) == (3, 2, 5, 1)
    assert first.share_missing == 0.4
    assert (found["new", None].instance, found["new", None].wrong_clock) == ("edge-9", 1)
    assert (found[None, None].rejected, found[None, None].wrong_clock, found[None, None].expected) == (2, 0, 0)


def test_what_is_late_is_the_same_whatever_else_is_looked_at() -> None:
    """Of a date, and of the hour after it: a batch of the evening came after midnight had been reached."""
    paths = [
        "file:/w/usage/date=2026-03-01/hour=22/batch=a-0/p.parquet",
        "file:/w/usage/date=2026-03-02/hour=00/batch=a-1/p.parquet",
        "file:/w/usage/date=2026-03-01/hour=23/batch=a-2/p.parquet",
        "file:/w/usage/date=2026-03-02/hour=05/batch=a-3/p.parquet",
        "file:/w/usage/date=2026-03-02/hour=04/batch=a-4/p.parquet",
    ]
    assert late_files(paths) == {paths[2], paths[4]}
    assert late_files(paths[:3]) == {paths[2]}
    assert late_files(paths[3:]) == {paths[4]}
    assert late_files([paths[0], paths[2], paths[3]]) == frozenset(), "five hours after the date nothing is known"
