"""Responses to CreateTopics, CreatePartitions and DeleteTopics: reading the outcomes, and adding refused topics."""

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from struct import Struct
from typing import Final, NamedTuple

from protocol.errors import Cause, ProtocolError
from protocol.fields import NO_ID, Fields
from protocol.locator import response_body_offset
from protocol.mutations import SLICE_BYTES, Topic, TopicEntry
from protocol.overlay import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from protocol.table import ABSENT, ApiSpec
from protocol.varint import decode_varint, encode_varint

THROTTLING_QUOTA_EXCEEDED: Final = 89
MESSAGE: Final = b"The throttling quota has been exceeded."
"""The brokers' message (Errors.THROTTLING_QUOTA_EXCEEDED)."""

_INT32: Final = Struct(">i")
_ERROR: Final = THROTTLING_QUOTA_EXCEEDED.to_bytes(2, "big") + encode_varint(len(MESSAGE) + 1) + MESSAGE
_NOT_CREATED: Final = _INT32.pack(-1) + b"\xff\xff" + b"\x01"
"""num_partitions, replication_factor, and an empty list of configs (CreatableTopicResult)."""


class TopicResult(NamedTuple):
    """The outcome of one topic."""

    topic: Topic
    error_code: int
    partitions: int
    """The number of partitions created, if the version and the broker report it; else -1."""
    begin: int
    """Its offset in the response."""
    end: int


def read_outcomes(spec: ApiSpec, frame: bytes) -> list[TopicResult]:
    """Read a whole response. Raises ProtocolError."""
    outcomes: list[TopicResult] = []
    for _ in reading_outcomes(spec, frame, outcomes):
        pass
    return outcomes


def reading_outcomes(spec: ApiSpec, frame: bytes, outcomes: list[TopicResult]) -> Iterator[None]:
    """Read a whole response into ``outcomes`` in slices: yields after every SLICE_BYTES."""
    try:
        body = response_body_offset(spec, frame, 0)
    except IndexError:
        raise ProtocolError(Cause.BAD_BODY, f"{spec} response of {len(frame)} bytes ends too early") from None
    fields = Fields(f"{spec} response", frame, body, len(frame), spec.flexible)
    if spec.throttle_offset != ABSENT:
        fields.skip(4)
    slice_end = fields.at + SLICE_BYTES
    for _ in range(fields.counted()):
        outcomes.append(_read_outcome(spec, fields))
        if fields.at >= slice_end:
            slice_end = fields.at + SLICE_BYTES
            yield


def _read_outcome(spec: ApiSpec, fields: Fields) -> TopicResult:
    key, version = spec.api_key, spec.api_version
    begin = fields.at
    name = fields.string()
    has_id = version >= 7 if key == CREATE_TOPICS else key == DELETE_TOPICS and version >= 6
    topic_id = fields.uuid() if has_id else NO_ID
    error_code = fields.int16()
    partitions = -1
    has_message = {CREATE_TOPICS: version >= 1, DELETE_TOPICS: version >= 5, CREATE_PARTITIONS: True}[key]
    if has_message:
        fields.string()
    if key == CREATE_TOPICS and version >= 5:
        partitions = fields.int32()
        fields.skip(2)  # replication_factor
        for _ in range(fields.count()):
            fields.text()
            fields.string()
            fields.skip(3)  # read_only, config_source, is_sensitive
            fields.tags()
    fields.tags()
    return TopicResult((name or b"", topic_id), error_code, partitions, begin, fields.at)


def refusal(spec: ApiSpec, correlation_id: int, throttle_ms: int, refused: Sequence[TopicEntry]) -> bytes:
    """Return the whole response to a request of a strict version all of whose topics are refused."""
    header = _INT32.pack(correlation_id) + b"\x00"
    body = (
        _INT32.pack(throttle_ms)
        + encode_varint(len(refused) + 1)
        + b"".join(refused_topic(spec, each) for each in refused)
        + b"\x00"
    )
    return _INT32.pack(len(header) + len(body)) + header + body


def with_refused(
    spec: ApiSpec, data: bytes, position: int, size: int, throttle_ms: int, refused: Sequence[TopicEntry]
) -> tuple[bytes, int]:
    """Add refused topics before those in the response of ``size`` at ``position``.

    Only strict versions have refused topics. ``throttle_ms`` replaces the broker's value unless that is longer. Returns
    the new beginning of the response, and the number of bytes that it replaces: the rest may not have been received
    yet. Raises ProtocolError for a response that ends before its topics.
    """
    end = min(len(data), position + 4 + size)
    try:
        at = response_body_offset(spec, data, position)
        head_end = at
        told = b""
        if spec.throttle_offset != ABSENT:
            told = _INT32.pack(max(throttle_ms, _INT32.unpack_from(data, at)[0])) if at + 4 <= end else b""
            at += 4
        added = b""
        if refused:
            count, at = decode_varint(data, at)
            added = encode_varint(max(count, 1) + len(refused)) + b"".join(
                refused_topic(spec, each) for each in refused
            )
    except IndexError:
        at = end + 1
    if at > end:
        raise ProtocolError(Cause.BAD_BODY, f"{spec} response of {size} bytes ends before its topics")
    begun = data[position + 4 : head_end] + told + added
    return _INT32.pack(size + len(begun) - (at - position - 4)) + begun, at - position


def in_order(
    spec: ApiSpec,
    frame: bytes,
    throttle_ms: int,
    outcomes: Sequence[TopicResult],
    refused: Iterable[tuple[TopicEntry, bytes]],
    asked: Sequence[TopicEntry],
) -> bytes:
    """Return a whole response with the refused topics added (``refused_topic``), all in the order of the request.

    A controller answers in that order too. ``outcomes`` are those in ``frame``.
    """
    places = {entry.key: place for place, entry in enumerate(asked)}
    topics = [(places[entry.key], topic) for entry, topic in refused]
    for outcome in outcomes:
        name, topic_id = outcome.topic
        place = places.get(name, places.get(topic_id, len(asked)))
        topics.append((place, frame[outcome.begin : outcome.end]))
    topics.sort(key=itemgetter(0))
    begun, taken = with_refused(spec, frame, 0, len(frame) - 4, throttle_ms, ())
    _, at = decode_varint(frame, taken)
    rest = outcomes[-1].end if outcomes else at
    body = begun[4:] + encode_varint(len(topics) + 1) + b"".join([topic for _, topic in topics]) + frame[rest:]
    return _INT32.pack(len(body)) + body


def refused_topic(spec: ApiSpec, entry: TopicEntry) -> bytes:
    """Return a topic of a response, refused for its quota."""
    name, topic_id = entry.topic
    parts = [encode_varint(len(name) + 1) + name if entry.has_name else b"\x00"]
    if spec.api_key == CREATE_TOPICS:
        if spec.api_version >= 7:
            parts.append(NO_ID)
        parts.append(_ERROR + _NOT_CREATED)
    else:
        if spec.api_key == DELETE_TOPICS and spec.api_version >= 6:
            parts.append(topic_id)
        parts.append(_ERROR)
    return b"".join(parts) + b"\x00"
