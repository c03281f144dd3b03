"""Rows on their way to tasks, against a loop over all of them."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from analysis.replay.recording import KINDS
from analysis.replay.rows import IDENTITY
from analysis.replay.sending import Known, Sender
from analysis.table.exchange import unpacked
from analysis.table.schema import FILE
from tests.analysis.records import BEGIN_MS, document, row, stored, tables
from tests.analysis.replay.test_recording import WORDS, documents, length_ms, named, of_kind

ORIGIN_MS = {"edge-1": BEGIN_MS - 3, "edge-2": BEGIN_MS - 1000}


def sender_of(identities: list[tuple[Any, ...]]) -> Sender:
    """Every third identity is not wanted; produced and fetched bytes are series of their own."""
    client = np.arange(len(identities))
    series = np.where(client % 3 == 0, -1, client)
    names = pa.schema([FILE.field(name) for name in IDENTITY])
    known = pa.table([pa.array(column) for column in zip(*identities, strict=True)], schema=names)
    return Sender(
        Known.of(known, client),
        {KINDS[0]: np.append(series, -1), KINDS[1]: np.append(np.where(series < 0, -1, series + len(client)), -1)},
        np.array([ORIGIN_MS[identity[1]] for identity in identities]),
        np.arange(2 * len(client)) % 4,
    )


def received(sender: Sender, given: list[pa.Table]) -> list[tuple[int, ...]]:
    """What reached tasks: the task, and its columns."""
    found = []
    for piece in sender.sent(given):
        (table,) = unpacked(iter(piece.to_batches()))
        found += [(piece["task"][0].as_py(), *each.values()) for each in table.to_pylist()]
    return found


@pytest.mark.parametrize("rows", [1, 13, 1_000_000])
def test_rows_reach_the_task_of_their_unit(rows: int) -> None:
    made = list(documents(1))
    known = [named(each) for each in stored(made) if each["user"] is not None]
    identities = sorted({tuple(each[name] for name in IDENTITY) for each in known})
    sender = sender_of(identities)
    expected = []
    for each in known:
        client = identities.index(tuple(each[name] for name in IDENTITY))
        enforced = each["mode"] == "enforce"
        for kind, word in WORDS.items():
            series = int(sender.series[kind][client])
            if series >= 0 and of_kind(each, word):
                throttles = (each[f"{word}_{name}"] * enforced for name in ("muted_ms", "throttled", "throttle_ms"))
                begin_ms = int(each["time"].timestamp() * 1000 + 0.5) - ORIGIN_MS[each["instance"]]
                expected.append((series % 4, series, begin_ms, length_ms(each), each[f"{word}_bytes"], *throttles))
    assert sorted(received(sender, tables(sender.columns, made[::2], made[1::2], rows=rows))) == sorted(expected)


def test_rows_of_nobody_who_is_wanted() -> None:
    sender = sender_of([("demo", "edge-1", "PLAIN", 1, name, "app", "") for name in ("a", "b")])
    strangers = [document(0, [row("zoe", produce_bytes=7), row(None, None), row("a", produce_bytes=7)])]
    assert received(sender, tables(sender.columns, strangers)) == []
    assert received(sender, []) == []


def test_of_two_clients_with_one_number_one_is_found() -> None:
    """However unlikely: the rows of both are its."""
    twice = sender_of([("demo", "edge-1", "PLAIN", 1, name, "app", "") for name in ("zoe", "a", "a")])
    made = [document(0, [row("a", produce_bytes=7, broker=1, listener="PLAIN")])]
    (found,) = received(twice, tables(twice.columns, made))
    assert found[1] == 1
