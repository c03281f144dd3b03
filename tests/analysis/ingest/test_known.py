from collections.abc import Iterable

from analysis.ingest.known import Header, Hour, Key, KnownDocuments, duplicates
from tests.analysis.records import BEGIN_MS

NOON = Hour("2026-03-01", 12)


def header(number: int, seq: int, hour: int = 12) -> Header:
    return Header(number, Key("edge-1", "boot", seq), Hour("2026-03-01", hour))


class Table:
    """What is stored of every hour, and how often it was asked."""

    def __init__(self, *stored: Header) -> None:
        self.stored = stored
        self.asked: list[Hour] = []

    def load(self, hour: Hour) -> Iterable[Key]:
        self.asked.append(hour)
        return [each.key for each in self.stored if each.hour == hour]


def test_the_hour_of_a_moment_is_in_utc() -> None:
    assert Hour.of(BEGIN_MS) == Hour.of(BEGIN_MS + 3_599_999) == NOON
    assert Hour.of(BEGIN_MS - 1) == Hour("2026-03-01", 11)


def test_what_is_new_stays() -> None:
    assert duplicates([header(0, 0), header(1, 1)], KnownDocuments(Table(header(9, 2)).load)) == []


def test_the_first_of_a_batch_stays() -> None:
    batch = [header(0, 5), header(1, 6), header(2, 5)]
    assert duplicates(batch, KnownDocuments(Table().load)) == [batch[2]]


def test_what_is_stored_goes() -> None:
    batch = [header(0, 5), header(1, 6)]
    assert duplicates(batch, KnownDocuments(Table(header(9, 5)).load)) == [batch[0]]


def test_the_same_number_of_another_run_is_another_document() -> None:
    other = Header(1, Key("edge-1", "another boot", 5), NOON)
    assert duplicates([header(0, 5), other], KnownDocuments(Table().load)) == []


def test_the_table_is_asked_once_for_an_hour() -> None:
    table = Table(header(9, 1))
    known = KnownDocuments(table.load)
    known.add([header(0, 2)])
    assert [known.has(header(0, seq)) for seq in (1, 2, 3)] == [True, True, False]
    assert table.asked == [NOON]


def test_hours_are_forgotten_and_asked_for_again() -> None:
    table = Table(header(9, 1, hour=0))
    known = KnownDocuments(table.load)
    for hour in range(12):
        known.add([header(0, 7, hour)])
    assert known.has(header(0, 1, hour=0))
    assert table.asked.count(Hour("2026-03-01", 0)) == 2
