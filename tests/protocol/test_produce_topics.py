"""Which topics a Produce is for, at every split point, against what kafka-python and aiokafka encode."""

import struct
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from aiokafka.protocol.produce import ProduceRequest_v0, ProduceRequest_v3
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Cause, ProtocolError
from protocol.layout import parse_layout
from protocol.produce_topics import MOST_VERSION, ProduceTopics
from protocol.table import SPECS, ApiSpec
from protocol.varint import encode_varint
from tests.protocol.encode import encode_fields

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.producer import ProduceRequest

VERSIONS = range(MOST_VERSION + 1)
Topics = Sequence[tuple[str, Sequence[bytes | None]]]

NAMES = st.one_of(st.text("ab.-_", min_size=1, max_size=5), st.just("t" * 249), st.just("n" * 126), st.just("n" * 127))
RECORDS = st.none() | st.binary(min_size=0, max_size=300) | st.sampled_from([126, 127, 128, 20_000]).map(bytes)
TOPICS = st.lists(st.tuples(NAMES, st.lists(RECORDS, max_size=4)), max_size=4)
IDS = st.none() | st.text("tx-", max_size=200)


def body_of(version: int, topics: Topics, transactional_id: str | None = None) -> bytes:
    """The body of a request, by kafka-python."""
    made = ProduceRequest.TopicProduceData
    data = [
        made(
            name=name,
            partition_data=[
                made.PartitionProduceData(index=index, records=records) for index, records in enumerate(partitions)
            ],
        )
        for name, partitions in topics
    ]
    request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=1000, topic_data=data)
    return bytes(request.encode(version=version))


def named(version: int, body: bytes, cuts: Sequence[int] = ()) -> list[str]:
    """The names that come out of a body that comes in pieces; what stands around it in its chunks is not read."""
    walk = ProduceTopics(SPECS[version], len(body))
    around = b"\x7f" * 40
    found: list[str] = []
    for begin, end in zip((0, *cuts), (*cuts, len(body)), strict=True):
        chunk = around + body[begin:end] + around
        found += [name.decode() for name in walk.feed(chunk, len(around), len(chunk) - len(around))]
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_produce_topics_are_read_at_every_split_point(version: int) -> None:
    topics: Topics = [("first", [b"x" * 70, None]), ("n" * 130, [b"", b"y" * 200]), ("last", [b"z"])]
    body = body_of(version, topics, "transactional" if version >= 3 else None)
    wanted = [name for name, _ in topics]
    for cut in range(len(body) + 1):
        assert named(version, body, (cut,)) == wanted
        assert named(version, body, (cut, min(cut + 1, len(body)))) == wanted
    assert named(version, body, range(1, len(body))) == wanted


@given(st.sampled_from(VERSIONS), TOPICS, IDS, st.data())
def test_produce_topics_are_read_from_any_pieces(
    version: int, topics: Topics, transactional_id: str | None, data: Any
) -> None:
    body = body_of(version, topics, transactional_id if version >= 3 else None)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=8)))
    assert named(version, body, cuts) == [name for name, _ in topics]


@given(TOPICS, IDS)
def test_produce_topics_of_aiokafka_are_read(topics: Topics, transactional_id: str | None) -> None:
    listed = [(name, list(enumerate(partitions))) for name, partitions in topics]
    old = ProduceRequest_v0(required_acks=1, timeout=1000, topics=listed).encode()
    new = ProduceRequest_v3(transactional_id=transactional_id, required_acks=-1, timeout=1000, topics=listed).encode()
    for version, body in ((0, old), (3, new), (8, new)):
        assert named(version, body, (len(body) // 2,)) == [name for name, _ in topics]


def tags(contents: dict[int, bytes]) -> dict[str, Any]:
    return {"_unknown_tags": contents}


@given(
    st.sampled_from(range(9, MOST_VERSION + 1)),
    st.dictionaries(st.integers(0, 300), st.binary(max_size=200), max_size=8),
)
def test_tagged_fields_anywhere_are_passed_over(version: int, contents: dict[int, bytes]) -> None:
    partition = {"index": 3, "records": b"x" * 500, **tags(contents)}
    topic = {"name": "found", "partition_data": [partition, partition], **tags(contents)}
    values = {"acks": 1, "topic_data": [topic, topic], **tags(contents)}
    body = encode_fields(parse_layout(LAYOUT).fields, values, flexible=True)
    for cuts in ((), range(1, len(body), 7), range(1, len(body))):
        assert named(version, body, cuts) == ["found", "found"]


LAYOUT = (
    "~ transactional_id:string? acks:i16 timeout_ms:i32 "
    "topic_data:[name:string partition_data:[index:i32 records:bytes?]]"
)


def test_produce_topics_with_overlong_varints_are_read() -> None:
    topic = b"\x86\x80\x80\x00hello" + b"\x82\x00" + b"\0\0\0\0" + b"\x84\x80\x00abc" + b"\x80\x00" + b"\0"
    body = b"\x80\x00" + struct.pack(">hi", 1, 1000) + b"\x82\x80\x80\x80\x00" + topic + b"\0"
    for cut in range(len(body)):
        assert named(9, body, (cut,)) == ["hello"]


def test_bytes_behind_a_produce_body_are_ignored() -> None:
    body = body_of(7, [("t", [b"x"])])
    walk = ProduceTopics(SPECS[7], len(body) + 500)
    assert walk.feed(body, 0, len(body)) == [b"t"]
    assert [walk.feed(bytes(100), 0, 100) for _ in range(5)] == [[]] * 5


def plain(*fields: tuple[str, int | bytes]) -> bytes:
    return b"".join(value if isinstance(value, bytes) else struct.pack(f">{form}", value) for form, value in fields)


HEAD = plain(("h", -1), ("h", 1), ("i", 1000))
FLEXIBLE_HEAD = b"\0" + plain(("h", 1), ("i", 1000))
WRONG = {
    "no topics at all": (7, HEAD + plain(("i", -1))),
    "a topic without a name": (7, HEAD + plain(("i", 1), ("h", -1), ("i", 0))),
    "no partitions at all": (7, HEAD + plain(("i", 1), ("h", 1), ("", b"t"), ("i", -1))),
    "records beyond the end": (7, HEAD + plain(("i", 1), ("h", 1), ("", b"t"), ("i", 1), ("i", 0), ("i", 2**31 - 1))),
    "more topics than there are": (7, HEAD + plain(("i", 2), ("h", 1), ("", b"t"), ("i", 0))),
    "more partitions than there are": (7, HEAD + plain(("i", 1), ("h", 1), ("", b"t"), ("i", 2), ("i", 0), ("i", 0))),
    "nothing": (7, b""),
    "half a head": (7, HEAD[:5]),
    "an endless varint": (9, FLEXIBLE_HEAD + b"\xff" * 6 + b"\0" * 100),
    "a count that is negative to Java": (9, FLEXIBLE_HEAD + encode_varint(2**31) + b"\0" * 100),
    "records of a size that is negative to Java": (
        *(9, FLEXIBLE_HEAD + b"\2\2t\2" + bytes(4) + encode_varint(2**32 - 1) + bytes(100)),
    ),
    "a name beyond what Java reads": (9, FLEXIBLE_HEAD + b"\2" + encode_varint(0x8001) + bytes(0x9000)),
    "a null name": (9, FLEXIBLE_HEAD + b"\2\0\1\0\0"),
    "tags without an end": (9, FLEXIBLE_HEAD + b"\2\2t\3" + bytes(5) + encode_varint(2**30) + b"\0" * 5000),
    "topics of nothing": (7, HEAD + plain(("i", 100_000)) + plain(("h", 1), ("", b"t"), ("i", 0)) * 100_000),
    "partitions of nothing": (7, HEAD + plain(("i", 1), ("h", 1), ("", b"t"), ("i", 9000)) + bytes(8) * 9000),
}


@pytest.mark.parametrize("name", WRONG)
def test_malformed_produce_is_refused_in_any_pieces(name: str) -> None:
    version, body = WRONG[name]
    for cuts in ((), (len(body) // 2,), range(1, min(len(body), 3000))):
        with pytest.raises(ProtocolError) as caught:
            named(version, body, cuts)
        assert caught.value.cause is Cause.BAD_BODY


@given(st.sampled_from(VERSIONS), st.binary(max_size=200), st.data())
def test_any_bytes_are_walked_or_refused_alike_in_any_pieces(version: int, body: bytes, data: Any) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=5)))

    def outcome(pieces: Sequence[int]) -> list[str] | None:
        try:
            return named(version, body, pieces)
        except (ProtocolError, UnicodeDecodeError):
            return None

    assert outcome(cuts) == outcome(())


@given(st.sampled_from(VERSIONS), TOPICS, st.data())
def test_a_request_that_was_changed_names_what_a_codec_reads_of_it(version: int, topics: Topics, data: Any) -> None:
    """What is read here and not there, or other than there, would be a way past: only what nobody reads may differ."""
    body = bytearray(body_of(version, topics))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = ProduceRequest.decode(bytes(body), version=version)
        wanted = [each.name for each in read.topic_data or ()]
    except Exception:  # noqa: BLE001  whatever a codec makes of it: nobody would take it
        return
    try:
        found = named(version, bytes(body))
    except (ProtocolError, UnicodeDecodeError):
        return  # stricter
    assert found == wanted


def test_produce_topics_buffer_no_record_bytes() -> None:
    size = 50 * 2**20
    head = HEAD + plain(("i", 1), ("h", 1), ("", b"t"), ("i", 1), ("i", 0), ("i", size))
    walk = ProduceTopics(SPECS[7], len(head) + size)
    assert walk.feed(head, 0, len(head)) == [b"t"]
    chunk = bytes(2**18)
    for _ in range(size // len(chunk)):
        assert walk.feed(chunk, 0, len(chunk)) == []
        assert not walk._held


def specs() -> Iterator[ApiSpec]:
    return (spec for spec in SPECS.values() if spec.api_key == 0)


def test_produce_versions_without_topic_names_are_excluded() -> None:
    assert [spec.api_version for spec in specs() if spec.api_version > MOST_VERSION] == [13]
