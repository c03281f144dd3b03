"""Batches as brokers store them, by aiokafka's own builder: whole, too large, damaged."""

import io
import random
import resource
import struct
from collections.abc import Sequence

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.util import calc_crc32c
from hypothesis import given
from hypothesis import strategies as st

from analysis.sources import batches as module
from analysis.sources.batches import Stored, batches
from analysis.sources.place import KEPT_BYTES
from analysis.sources.unfolding import DamagedError
from analysis.table.schema import MOST_DOCUMENT_BYTES

NONE, GZIP, SNAPPY, LZ4, ZSTD = CODECS = range(5)
BASE = 1000
STAMP_MS = 1_760_000_000_000


def batch(values: Sequence[bytes | None], codec: int = NONE, *, base: int = BASE, by_broker: bool = False) -> bytes:
    """As it stands in a log."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 2**31 - 1)
    for number, value in enumerate(values):
        assert builder.append(number, STAMP_MS + number, b"key", value, [("h", b"x")]) is not None
    return stamped(bytes(builder.build()), base, by_broker=by_broker)


def stamped(content: bytes, base: int = BASE, *, by_broker: bool = False, codec: int | None = None) -> bytes:
    """What a broker makes of it; ``codec`` overwrites how it says that it is compressed."""
    attributes = struct.unpack_from(">h", content, 21)[0] | (8 if by_broker else 0)
    if codec is not None:
        attributes = attributes & ~7 | codec
    rest = struct.pack(">h", attributes) + content[23:]
    return struct.pack(">q", base) + content[8:17] + struct.pack(">I", calc_crc32c(rest)) + rest


def records(content: bytes, begin: int = 0) -> list[Stored]:
    return [record for each in batches(content) for record in each.records(begin)]


def plain(found: Sequence[Stored]) -> list[tuple[int, bytes | None]]:
    assert all(each.fault is None and each.last == each.offset for each in found)
    return [(each.offset, each.value) for each in found]


@pytest.mark.parametrize("codec", CODECS)
def test_records_are_those_that_were_written(codec: int) -> None:
    values = [b"one", None, b"", random.Random(7).randbytes(300_000), b"x" * 100_000]
    content = batch(values, codec) + batch([b"last"], codec, base=BASE + 5)
    assert plain(records(content)) == [*((BASE + at, value) for at, value in enumerate(values)), (BASE + 5, b"last")]
    assert plain(records(content, BASE + 3)) == plain(records(content))[3:]
    assert [each.size for each in records(content)] == [3, 0, 0, 300_000, 100_000, 4]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=200)), min_size=1, max_size=20), st.sampled_from(CODECS))
def test_whatever_was_written_comes_out(values: list[bytes | None], codec: int) -> None:
    assert plain(records(batch(values, codec))) == [(BASE + at, value) for at, value in enumerate(values)]


@given(st.binary(max_size=300), st.integers(0, 200), st.sampled_from(CODECS))
def test_nothing_but_damage_is_said_of_nonsense(nonsense: bytes, at: int, codec: int) -> None:
    """Its checksum right or wrong: whoever writes to a topic chooses both."""
    content = batch([b"one" * 30, b"two"], codec)
    broken = content[:at] + nonsense + content[at + len(nonsense) :]
    for given_ in (broken, broken[:12] + stamped(broken)[12:] if len(broken) > 61 else broken):
        try:
            found = records(given_)
        except DamagedError:
            continue
        assert all(each.last >= each.offset for each in found)
        assert sum(each.fault is not None for each in found) <= len(list(batches(given_)))


@pytest.mark.parametrize("by_broker", [False, True])
def test_a_broker_s_clock_is_told_from_a_writer_s(*, by_broker: bool) -> None:
    (found,) = records(batch([b"x"], by_broker=by_broker))
    assert found.stamped_ms == (STAMP_MS if by_broker else None)


@pytest.mark.parametrize("codec", CODECS)
def test_of_a_value_that_is_too_large_the_begin_is_kept(codec: int) -> None:
    values = [b"before", b"a" * MOST_DOCUMENT_BYTES, b"b" * (MOST_DOCUMENT_BYTES + 1), b"after"]
    found = records(batch(values, codec))
    assert [(each.offset, each.size, each.fault) for each in found] == [
        (BASE + at, len(value), None) for at, value in enumerate(values)
    ]
    assert [each.value for each in found] == [*values[:2], b"b" * KEPT_BYTES, b"after"]


def test_what_unfolds_to_gigabytes_takes_no_memory() -> None:
    """A record of 2 GB and one behind it, by hand: no library would write them."""
    size = 2_000_000_000
    body = io.BytesIO()
    for offset, length in ((0, size), (1, 1)):
        head = b"\x00\x00" + bytes([2 * offset]) + b"\x01" + varint(length)
        body.write(varint(len(head) + length + 1) + head)
        zeros = bytes(10_000_000)
        for _ in range(length // len(zeros)):
            body.write(zeros)
        body.write(bytes(length % len(zeros)) + b"\x00")
    pressed = bytes(cramjam.zstd.compress(body.getvalue(), level=1))
    body.close()
    assert len(pressed) < 200_000
    content = of_body(pressed, 2, ZSTD)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (found,) = records(content)
    assert found.fault is not None
    assert "unfolds to more than 1073741824 bytes; nothing to offset 1001 can be had" in found.fault
    assert (found.offset, found.last) == (BASE, BASE + 1)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def varint(number: int) -> bytes:
    number = 2 * number if number >= 0 else -2 * number - 1
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def of_body(body: bytes, count: int, codec: int) -> bytes:
    """A batch of ``count`` records of any body, its checksum right."""
    header = bytearray(batch([b""] * count)[:61])
    struct.pack_into(">i", header, 8, len(header) - 12 + len(body))
    return stamped(bytes(header) + body, codec=codec)


DAMAGED = [
    (lambda good: good[:-1] + b"!", "its checksum (CRC) is another"),
    (lambda good: stamped(good, codec=7), "compressed by 7, which is none of Kafka's ways"),
    (lambda good: stamped(good, codec=ZSTD), "it cannot be decompressed: "),
    (lambda good: stamped(good, codec=GZIP), "it cannot be decompressed: "),
    (lambda good: stamped(good, codec=SNAPPY), "snappy"),
    (lambda _: of_body(b"\xff" * 20, 3, NONE), "a number has more than ten bytes"),
    (lambda _: of_body(b"", 3, NONE), "it ends within a record"),
    (lambda _: of_body(varint(-5) + bytes(20), 3, NONE), "a record is longer than it says"),
    (lambda _: of_body(b"\xff\xff\xff\xff\x0f", 3, SNAPPY), "a block of snappy of 4294967295 bytes"),
]


@pytest.mark.parametrize(("damage", "said"), DAMAGED)
def test_damage_is_said_of_all_offsets_that_it_takes(damage: "object", said: str) -> None:
    assert callable(damage)
    content = damage(batch([b"one" * 20, b"two" * 20, b"three" * 20])) + batch([b"next"], base=BASE + 3)
    lost, *others = records(content)
    assert lost.fault is not None
    assert said in lost.fault
    assert (lost.offset, lost.last) == (BASE, BASE + 2)
    assert "nothing to offset 1002 can be had" in lost.fault
    assert plain(others) == [(BASE + 3, b"next")]
    assert [each.offset for each in records(content, BASE + 2)] == [BASE + 2, BASE + 3]


def test_what_stands_before_the_damage_is_had() -> None:
    whole = batch([b"one", b"two", b"three"])
    body = whole[61:-8]
    found = records(of_body(body, 3, NONE))
    assert [each.value for each in found[:2]] == [b"one", b"two"]
    assert (found[2].offset, found[2].last, found[2].fault is None) == (BASE + 2, BASE + 2, False)


def test_where_no_batch_begins_or_ends_all_is_lost() -> None:
    for nonsense in (b"", b"\x00" * 40, batch([b"one"])[:-1]):
        with pytest.raises(DamagedError):
            records(nonsense)


def test_a_batch_that_is_cut_by_the_fetch_comes_with_the_next() -> None:
    assert plain(records(batch([b"one"]) + batch([b"two"], base=BASE + 1)[:-1])) == [(BASE, b"one")]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY])
def test_messages_of_before_kafka_0_11(magic: int, codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = LegacyRecordBatchBuilder(magic, codec, 10**9)
    for number in range(3):
        builder.append(number, STAMP_MS, b"key", b"value" * 100)
    content = bytes(builder.build())
    assert plain(records(content)) == [(number, b"value" * 100) for number in range(3)]
    if codec != NONE:
        monkeypatch.setattr(module, "MOST_DOCUMENT_BYTES", 100)
        (lost,) = records(content)
        assert lost.fault is not None
        assert "unfolds to more than 800 bytes" in lost.fault
