"""Gaps as an ingestion comes by them, batch by batch, against what is stored in the end."""

import random
from collections.abc import Collection

import pytest

from analysis.ingest.known import Header, Hour, Key
from analysis.ingest.numbers import Gaps

NOON = Hour("2026-03-01", 12)


def header(seq: int, boot: str = "b", hour: Hour = NOON) -> Header:
    return Header(seq, Key("edge-1", boot, seq), hour)


def nothing(hour: Hour, boot: tuple[str, str]) -> Collection[int]:
    return ()


def batch(*seqs: int, boot: str = "b", dropped: int = 0) -> dict[Header, int]:
    return {header(seq, boot): dropped for seq in seqs}


def test_the_hour_before() -> None:
    assert NOON.before() == Hour("2026-03-01", 11)
    assert Hour("2026-03-01", 0).before() == Hour("2026-02-28", 23)


def test_gaps_in_a_batch_and_between_two() -> None:
    gaps = Gaps(nothing)
    assert gaps.count(batch(5, 6, 9)) == (2, 0)
    assert gaps.count(batch(10, 11)) == (0, 0)
    assert gaps.count(batch(14)) == (2, 0)
    assert gaps.count({}) == (0, 0)


def test_what_comes_late_is_taken_off_again() -> None:
    gaps = Gaps(nothing)
    assert gaps.count(batch(5, 9)) == (3, 0)
    assert gaps.count(batch(8, 7)) == (-2, 0)
    assert gaps.count(batch(3)) == (0, 0), "of what is before the first, nothing is known"


def test_another_boot_begins_anew() -> None:
    gaps = Gaps(nothing)
    gaps.count(batch(5, 6))
    assert gaps.count({**batch(0, 1, boot="c"), **batch(7)}) == (0, 0)


def test_what_an_earlier_run_stored_is_asked_for_once() -> None:
    asked = []

    def stored(hour: Hour, boot: tuple[str, str]) -> Collection[int]:
        asked.append((hour, boot))
        return {1, 2, 4} if hour == NOON.before() else ()

    gaps = Gaps(stored)
    assert gaps.count(batch(7, 8)) == (2, 0), "5 and 6; 3 was told by the run that came by 4"
    assert gaps.count(batch(3)) == (-1, 0)
    assert asked == [(NOON, ("edge-1", "b")), (NOON.before(), ("edge-1", "b"))]


def test_a_late_document_does_not_make_hours_between_missing() -> None:
    five, noon = Hour("2026-03-01", 5), NOON
    gaps = Gaps(lambda hour, _: {5: range(1, 90), 11: range(21_000, 25_200)}.get(hour.hour, ()))
    assert gaps.count({header(91, hour=five): 0, header(25_200, hour=noon): 4, header(25_203, hour=noon): 5}) == (1, 1)


def test_drops_are_told_once() -> None:
    gaps = Gaps(nothing)
    assert gaps.count({header(5): 2, header(6): 2, header(9): 3}) == (2, 1)
    assert gaps.count(batch(10, dropped=3)) == (0, 0)
    assert gaps.count(batch(12, dropped=4)) == (1, 1)


def test_a_proxy_that_dropped_all_before_its_first_document() -> None:
    assert Gaps(nothing).count(batch(7, 8, dropped=7)) == (7, 7)
    assert Gaps(nothing).count(batch(0, 1)) == (0, 0)


def test_forged_boots_do_not_fill_the_memory() -> None:
    gaps = Gaps(nothing)
    gaps.count({header(0, f"boot-{number}"): 0 for number in range(20_000)})
    assert len(gaps._boots) == 10_000


@pytest.mark.parametrize("seed", range(5))
def test_in_any_order_all_batches_come_to_what_is_missing_in_the_end(seed: int) -> None:
    chance = random.Random(seed)
    seqs = [seq for seq in range(500) if chance.random() < 0.8]
    chance.shuffle(seqs)
    gaps = Gaps(nothing)
    missing = at = first = 0
    while at < len(seqs):
        size = chance.randrange(1, 60)
        first = min(seqs[:size]) if at == 0 else first
        missing += gaps.count(batch(*seqs[at : at + size]))[0]
        at += size
    above = [seq for seq in seqs if seq >= first]
    assert missing == max(above) - first + 1 - len(above)
