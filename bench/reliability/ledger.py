"""The ledger: which records were acknowledged, which are stored, and whether the two agree.

A record's value is its producer, sequence and partition, a filler, and the CRC-32 of all before it. A producer never
sends a sequence twice: what is stored twice, the client library or the proxy has repeated.
"""

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import Final

VALUE_BYTES: Final = 200
TRANSACTION_RECORDS: Final = 50
"""A transaction is that many sequences in a row, from a multiple of this number on."""
EXAMPLES: Final = 5
REORDERED_WITHOUT_IDEMPOTENCE: Final = "reordered without idempotence"
"""Such a client may send to a new leader, or to one that is back, while an earlier request is under way."""
_HEAD: Final = Struct(">IQH")
_CRC: Final = Struct(">I")
_FILLER_BYTES: Final = VALUE_BYTES - _HEAD.size - _CRC.size


class Mode(StrEnum):
    IDEMPOTENT = "idempotent"
    TRANSACTIONAL = "transactional"
    ALL = "all"
    """acks=all without idempotence, one request in flight."""
    ONE = "one"
    """acks=1, one request in flight, to a topic with one replica: with more, Kafka loses what only a leader had."""


EXACTLY_ONCE: Final = {Mode.IDEMPOTENT, Mode.TRANSACTIONAL}


def encode(producer: int, sequence: int, partition: int) -> bytes:
    body = _HEAD.pack(producer, sequence, partition) + bytes([sequence & 0xFF]) * _FILLER_BYTES
    return body + _CRC.pack(zlib.crc32(body))


@dataclass(frozen=True, slots=True)
class Stored:
    """A record as a consumer got it; `producer` is -1 where the CRC is wrong or the partition is another's."""

    offset: int
    producer: int
    sequence: int
    digest: int
    """CRC-32 of all of its bytes."""

    @classmethod
    def decode(cls, offset: int, partition: int, value: bytes) -> "Stored":
        digest = zlib.crc32(value)
        if len(value) == VALUE_BYTES and value[-_CRC.size :] == _CRC.pack(zlib.crc32(value[: -_CRC.size])):
            producer, sequence, said = _HEAD.unpack_from(value)
            if said == partition:
                return cls(offset, producer, sequence, digest)
        return cls(offset, -1, -1, digest)


Log = Mapping[int, Sequence[Stored]]
"""By partition, in the order of offsets."""


@dataclass(frozen=True, slots=True)
class Acked:
    producer: int
    sequence: int
    partition: int
    offset: int
    """Negative where the broker recognised a repetition and could not say (DUPLICATE_SEQUENCE_NUMBER)."""
    at_ms: int = 0


@dataclass(slots=True)
class Account:
    """The events that producers have written down, a line each (see writer.py)."""

    acked: list[Acked] = field(default_factory=list)
    aborted: set[tuple[int, int]] = field(default_factory=set)
    """Producer and number of each transaction that its client aborted."""
    given_up: Counter[str] = field(default_factory=Counter)
    """Records that the client library gave up, by reason: they may be stored or not."""
    longest_pause_s: float = 0.0
    """Between two acknowledgements of one producer at one partition."""

    @classmethod
    def read(cls, files: Iterable[Path]) -> "Account":
        account = cls()
        for file in files:
            mine = cls()
            for line in file.read_text("utf-8").splitlines():
                mine._take(*line.split())
            times_ms = sorted((each.partition, each.at_ms) for each in mine.acked)
            pauses_ms = [end - begin for (one, begin), (other, end) in pairwise(times_ms) if one == other]
            account.acked += mine.acked
            account.aborted |= mine.aborted
            account.given_up += mine.given_up
            account.longest_pause_s = max(account.longest_pause_s, max(pauses_ms, default=0) / 1000)
        return account

    def _take(self, kind: str, producer: str, *words: str) -> None:
        if kind == "acked":
            self.acked.append(Acked(int(producer), *map(int, words)))
        elif kind == "aborted":
            self.aborted.add((int(producer), int(words[0])))
        else:
            self.given_up[words[1]] += 1


@dataclass(slots=True)
class Verdict:
    acked: int = 0
    stored: int = 0
    repeated: int = 0
    """Stored more than once where the mode allows it."""
    problems: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def __add__(self, other: "Verdict") -> "Verdict":
        return Verdict(
            self.acked + other.acked,
            self.stored + other.stored,
            self.repeated + other.repeated,
            self.problems + other.problems,
            [*self.examples, *other.examples],
        )

    def note(self, problem: str, example: object) -> None:
        if self.problems[problem] < EXAMPLES:
            self.examples.append(f"{problem}: {example}")
        self.problems[problem] += 1


def verdict(mode: Mode, account: Account, around: Log, through: Log) -> Verdict:
    """Compare what was acknowledged with what read_committed consumers got `around` and `through` the proxy."""
    found = Verdict(len(account.acked), sum(map(len, around.values())))
    _compare_acked(account.acked, around, found, "reordered" if mode in EXACTLY_ONCE else REORDERED_WITHOUT_IDEMPOTENCE)
    counts = Counter((each.producer, each.sequence) for each in _all(around))
    for key, count in counts.items():
        if key[0] < 0:
            found.note("corrupt", f"{count} records")
        elif count > 1 and mode in EXACTLY_ONCE:
            found.note("duplicated", f"{key} {count} times")
        elif count > 1:
            found.repeated += count - 1
    if mode is Mode.TRANSACTIONAL:
        _compare_transactions(account, counts, found)
    for partition in around.keys() | through.keys():
        if list(around.get(partition, ())) != list(through.get(partition, ())):
            found.note(
                "different through the proxy", _difference(around.get(partition, ()), through.get(partition, ()))
            )
    return found


def _compare_acked(acked: Sequence[Acked], around: Log, found: Verdict, reordered: str) -> None:
    """Each is stored, where its acknowledgement said; those of a producer and partition in the order of sending."""
    at = {(partition, each.offset): each for partition, log in around.items() for each in log}
    first: dict[tuple[int, int], int] = {}
    for each in _all(around):
        first.setdefault((each.producer, each.sequence), each.offset)
    last: dict[tuple[int, int], tuple[int, int]] = {}
    for one in sorted(acked, key=lambda each: (each.producer, each.sequence)):
        key, line = (one.producer, one.sequence), (one.producer, one.partition)
        if key not in first:
            found.note("lost", one)
            continue
        there = at.get((one.partition, one.offset))
        if one.offset >= 0 and (there is None or (there.producer, there.sequence) != key):
            found.note("at another offset", one)
        if line in last and first[key] < last[line][1]:
            found.note(reordered, f"{one} before sequence {last[line][0]}")
        last[line] = (one.sequence, first[key])


def _compare_transactions(account: Account, counts: Mapping[tuple[int, int], int], found: Verdict) -> None:
    visible = Counter((producer, sequence // TRANSACTION_RECORDS) for producer, sequence in counts if producer >= 0)
    for transaction, records in visible.items():
        if transaction in account.aborted:
            found.note("aborted but visible", transaction)
        elif records != TRANSACTION_RECORDS:
            found.note("committed in part", f"{transaction}: {records} of {TRANSACTION_RECORDS}")


def _difference(around: Sequence[Stored], through: Sequence[Stored]) -> str:
    for one, other in zip(around, through, strict=False):
        if one != other:
            return f"{one} around, {other} through"
    return f"{len(around)} records around, {len(through)} through"


def _all(log: Log) -> Iterator[Stored]:
    return (each for records in log.values() for each in records)
