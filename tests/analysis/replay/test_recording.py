"""What many workers add up of some rows each, against a loop over all rows."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from analysis.replay.partials import Documents, Identities
from analysis.replay.recording import KINDS, cluster_and_instance, read
from analysis.replay.rows import IDENTITY
from analysis.table import arrays
from analysis.table.exchange import unpacked
from quotas.kinds import QuotaKind
from tests.analysis.records import BEGIN_MS, Document, document, row, stored, tables, usage

WORDS = {QuotaKind.PRODUCER_BYTE_RATE: "produce", QuotaKind.CONSUMER_BYTE_RATE: "fetch"}
USERS = ("alice", "", 'O\'Hara, "x"', "ü\n\0", "user=<default>", None)
RULES = ((None, None), (1e6, "user=<default>"), (2e6, "user=alice"))


def documents(seed: int) -> Iterator[Document]:
    """Two proxies, one of them started twice, whose documents have gaps and sometimes are in two parts."""
    random = Random(seed)
    for instance, boot in (("edge-1", "a"), ("edge-1", "b"), ("edge-2", "a")):
        for seq in range(random.randrange(3), 40):
            if random.random() < 0.1:
                continue
            fields: dict[str, Any] = {
                "instance": instance,
                "boot": boot,
                "mode": random.choice(["enforce", "enforce", "shadow"]),
                "samples": 11 if seq < 20 else 21,
                "interval_ms": random.choice([0, 137, 1000, 1000, 86_400_000]),
                "second": seq + random.random() + (100 if boot == "b" else 0),
            }
            for _ in range(random.choice([1, 1, 2])):
                yield document(seq, [any_row(random) for _ in range(random.randrange(1, 8))], **fields)


def any_row(random: Random) -> dict[str, Any]:
    columns: dict[str, Any] = {"broker": random.randrange(2), "listener": random.choice(["PLAIN", "TLS"])}
    for word in WORDS.values():
        limit, rule = random.choice(RULES)
        given = random.choice([0, 0, 3])
        columns |= {
            f"{word}_bytes": random.choice([0, 1, 2**55 + random.randrange(9)]),
            f"{word}_requests": random.randrange(5),
            f"{word}_throttled": given,
            f"{word}_throttle_ms": given * 70,
            f"{word}_muted_ms": given * 50,
            f"{word}_limit": limit,
            f"{word}_rule": rule,
        }
    return row(random.choice(USERS), random.choice(["app", "", "é"]), **columns)


def through(work: Documents | Identities, given: Sequence[pa.Table]) -> list[dict[str, Any]]:
    """What all tasks yield of the tables that workers were given, each as a worker of its own."""
    sent = [piece for table in given for piece in work.sent([table])]
    found = []
    for task in range(work.tasks):
        mine = [batch for piece in sent if piece["task"][0].as_py() == task for batch in piece.to_batches()]
        for table in work.received(unpacked(iter(mine))):
            found += table.to_pylist()
    return found


def by(names: Sequence[str], rows: Sequence[dict[str, Any]]) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    def key(each: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(each[name] for name in names)

    return {found: list(those) for found, those in groupby(sorted(rows, key=key), key)}


def named(each: dict[str, Any]) -> dict[str, Any]:
    """A row with "" for the names that it has not."""
    return {**each, **{name: each[name] or "" for name in ("user", "client_id", "ip")}}


def length_ms(each: dict[str, Any]) -> int:
    return min(max(int(each["interval_ms"]), 1), 3_600_000)


@pytest.mark.parametrize("waiting", [1, 300_000])
@pytest.mark.parametrize("seed", range(3))
def test_how_it_was_recorded(seed: int, waiting: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_WAITING_ROWS", waiting)
    work = Documents(tasks=3)
    made = list(documents(seed))
    random = Random(seed)
    random.shuffle(made)
    found = through(work, tables(work.columns, made[::2], made[1::2], rows=7))
    run = ("cluster", "instance", "boot", "mode", "samples", "sample_ms")
    expected = by(run, stored(made))
    assert len(found) == len(expected)
    for each in found:
        rows = expected[tuple(each[name] for name in run)]
        begins = [int(one["time"].timestamp() * 1000 + 0.5) for one in rows]
        assert each["begin_ms"] == min(begins)
        assert each["end_ms"] == max(begin + length_ms(one) for begin, one in zip(begins, rows, strict=True))
        assert (each["first"], each["last"]) == (min(one["seq"] for one in rows), max(one["seq"] for one in rows))
        assert each["documents"] == len({one["seq"] for one in rows})
        assert each["interval_ms"] == sum(map(length_ms, rows))
        assert each["rows"] == len(rows)


@pytest.mark.parametrize("waiting", [1, 300_000])
@pytest.mark.parametrize("seed", range(3))
def test_who_used_what(seed: int, waiting: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_WAITING_ROWS", waiting)
    work = Identities(KINDS, tasks=3)
    made = list(documents(seed))
    found = through(work, tables(work.columns, made[::2], made[1::2], rows=11))
    expected = by(IDENTITY, [named(each) for each in stored(made) if each["user"] is not None and any_use(each)])
    assert len(found) == len(expected)
    for each in found:
        rows = expected[tuple(each[name] for name in IDENTITY)]
        for kind, word in WORDS.items():
            held = [one for one in rows if one["mode"] == "enforce"]
            limits = [float("inf") if one[f"{word}_limit"] is None else one[f"{word}_limit"] for one in rows]
            rules = [one[f"{word}_rule"] or "" for one in rows]
            assert each[f"{kind}_rows"] == sum(of_kind(one, word) for one in rows)
            assert each[f"{kind}_sent"] == sum(one[f"{word}_bytes"] for one in rows)
            assert each[f"{kind}_requests"] == sum(one[f"{word}_requests"] for one in rows)
            assert each[f"{kind}_throttled"] == sum(one[f"{word}_throttled"] for one in held)
            assert each[f"{kind}_muted"] == sum(one[f"{word}_muted_ms"] for one in held)
            assert each[f"{kind}_peak"] == max(float(one[f"{word}_bytes"]) / length_ms(one) for one in rows)
            assert (each[f"{kind}_least"], each[f"{kind}_most"]) == (min(limits), max(limits))
            assert (each[f"{word}_rule_min"], each[f"{word}_rule_max"]) == (min(rules), max(rules))


def test_kinds_that_few_tables_say_anything_of() -> None:
    """A worker sends what it met of all its tables at once; a limit that is nowhere in a table held nobody there."""
    held = row("alice", "app", produce_bytes=5, produce_limit=1e6, produce_rule="user=alice")
    free, other = row("alice", "app", fetch_bytes=7), row("bob", "app", fetch_bytes=9)
    work = Identities(KINDS, tasks=1)
    given = tables(work.columns, [document(0, [held]), document(1, [other]), document(2, [free])], rows=1)
    assert len(given) == 3
    (bob, alice) = sorted(through_one(work, given), key=lambda each: -each["consumer_byte_rate_sent"])
    assert (alice["producer_byte_rate_sent"], alice["producer_byte_rate_rows"], alice["seen"]) == (5, 1, 2)
    assert (alice["producer_byte_rate_least"], alice["producer_byte_rate_most"]) == (1e6, float("inf"))
    assert (alice["produce_rule_min"], alice["produce_rule_max"]) == ("", "user=alice")
    assert (bob["consumer_byte_rate_sent"], bob["producer_byte_rate_rows"]) == (9, 0)
    assert (bob["producer_byte_rate_least"], bob["produce_rule_max"]) == (float("inf"), "")
    assert bob["request_percentage_most"] == float("inf")


def through_one(work: Identities, given: Sequence[pa.Table]) -> list[dict[str, Any]]:
    """What a task yields of the tables that one worker was given."""
    batches = [batch for piece in work.sent(given) for batch in piece.to_batches()]
    return [each for table in work.received(unpacked(iter(batches))) for each in table.to_pylist()]


def of_kind(each: dict[str, Any], word: str) -> bool:
    return bool(each[f"{word}_bytes"] > 0 or each[f"{word}_muted_ms"] > 0)


def any_use(each: dict[str, Any]) -> bool:
    return any(of_kind(each, word) for word in WORDS.values())


@pytest.mark.spark
def test_a_recording_in_several_files(spark: SparkSession) -> None:
    made = list(documents(5))
    found = read(usage(spark, made[::3], made[1::3], [document(0, [row(None)], boot="idle")], made[2::3], []))
    numbers = by(("instance", "boot"), made)
    distinct = {(each["instance"], each["boot"], each["seq"], each["mode"]) for each in made}
    everybody = {tuple(named(each)[name] for name in IDENTITY) for each in stored(made) if each["user"] is not None}
    assert found.circumstances.documents == len(distinct) + 1
    assert found.circumstances.begin_ms == min(BEGIN_MS, *(each["time_ms"] for each in made))
    assert found.circumstances.missing_documents == 1 - found.circumstances.documents + sum(
        max(each["seq"] for each in those) - min(each["seq"] for each in those) + 1 for those in numbers.values()
    )
    assert found.circumstances.windows == 2
    assert found.circumstances.modes == ("enforce", "shadow")
    assert {tuple(each.values()) for each in found.identities.to_pylist()} <= everybody
    assert {cluster_and_instance(client.instance)[1] for client in found.clients} == {"edge-1", "edge-2"}
    for kind, word in WORDS.items():
        sent = sum(each[f"{word}_bytes"] for each in stored(made) if each["user"] is not None)
        assert found.used[kind].sent_bytes.sum() == pytest.approx(sent, rel=1e-12)
        assert np.count_nonzero(found.used[kind].least_limit == np.inf) > 0
