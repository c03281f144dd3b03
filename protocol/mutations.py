"""CreateTopics, CreatePartitions and DeleteTopics: reading a request's topics, and removing some of them.

KIP-599 charges each topic with the partitions that it creates or deletes, and refuses some topics of a request while it
executes the others. So topics are located one by one; removed topics are cut out of the bytes, and every other byte is
kept.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Final, NamedTuple

from protocol.errors import Cause, ProtocolError
from protocol.fields import NO_ID, Fields
from protocol.overlay import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from protocol.table import ApiSpec
from protocol.varint import encode_varint

MOST_TOPICS: Final = 5_000
"""The most topics of a request. Each refused one adds fifty bytes and its name to the response."""
MOST_ENTRIES: Final = 20_000
"""The most topics, partitions and configs of a request: a KRaft controller takes 10,000 partitions at once."""

SLICE_BYTES: Final = 4 * 1024
"""Bytes per slice: some milliseconds if all of it is small fields."""

DEFAULT_PARTITIONS: Final = -1
"""num_partitions of CreateTopics, from version 4 on: the broker's default (KIP-464)."""

_STRICT_FROM: Final = {CREATE_TOPICS: 6, DELETE_TOPICS: 5, CREATE_PARTITIONS: 3}

Topic = tuple[bytes, bytes]
"""Name and id; a missing one is b"" or NO_ID. DeleteTopics v6 names topics by either."""


class TopicEntry(NamedTuple):
    """A topic in a request."""

    begin: int
    """Its offset in the frame."""
    end: int
    topic: Topic
    has_name: bool
    partitions: int
    """CreateTopics: the partitions to create, or DEFAULT_PARTITIONS. CreatePartitions: the new total.
    DeleteTopics: 0.
    """

    @property
    def key(self) -> bytes:
        """The topic's key in the response: its name, or its id if the request has no name."""
        name, topic_id = self.topic
        return name if self.has_name else topic_id


class Entries(NamedTuple):
    """The topics of a request."""

    topics: list[TopicEntry]
    count_begin: int
    """The offset of the topic count in the frame."""
    validate_only: bool
    """The request is only validated."""


def is_strict(spec: ApiSpec) -> bool:
    """Whether clients of this version understand that a topic may be refused for its quota (KIP-599)."""
    return spec.api_version >= _STRICT_FROM[spec.api_key]


def read_entries(spec: ApiSpec, frame: bytes, body: int) -> Entries:
    """Read a whole request frame, whose body begins at ``body``. Raises ProtocolError."""
    reading = reading_entries(spec, frame, body)
    while True:
        try:
            next(reading)
        except StopIteration as ended:
            entries: Entries = ended.value
            return entries


def reading_entries(spec: ApiSpec, frame: bytes, body: int) -> Generator[None, None, Entries]:
    """As ``read_entries`` in slices: yields after every SLICE_BYTES."""
    return _Reading(spec, frame, body).entries()


class _Reading:
    def __init__(self, spec: ApiSpec, frame: bytes, body: int) -> None:
        self._spec = spec
        self._fields = Fields(f"{spec} request", frame, body, len(frame), spec.request_header_version == 2)
        self._slice_end = body + SLICE_BYTES
        self._read = 0
        """Topics, partitions and configs read so far."""

    def entries(self) -> Generator[None, None, Entries]:
        spec, fields = self._spec, self._fields
        topics: list[TopicEntry] = []
        count_begin = fields.at
        for _ in range(fields.counted()):
            begin = fields.at
            topic_id = NO_ID
            partitions = 0
            if spec.api_key == DELETE_TOPICS:
                name = fields.string() if spec.api_version >= 6 else fields.text()
                if spec.api_version >= 6:
                    topic_id = fields.uuid()
                    fields.tags()
            else:
                name = fields.text()
                if spec.api_key == CREATE_TOPICS:
                    partitions = yield from self._new_topic()
                else:
                    partitions = fields.int32()
                    yield from self._listed(max(fields.count(), 0), self._replicas)
                fields.tags()
            topics.append(TopicEntry(begin, fields.at, (name or b"", topic_id), name is not None, partitions))
            if len(topics) > MOST_TOPICS:
                raise ProtocolError(
                    Cause.FRAME_TOO_LARGE, f"{spec} request names more than {MOST_TOPICS} topics: send several"
                )
            self._count(1)
            if self._is_slice_over():
                yield
        fields.skip(4)  # timeout_ms
        has_flag = spec.api_key == CREATE_PARTITIONS or (spec.api_key == CREATE_TOPICS and spec.api_version >= 1)
        return Entries(topics, count_begin, fields.flag() if has_flag else False)

    def _new_topic(self) -> Generator[None, None, int]:
        """Read a topic of CreateTopics after its name; returns its number of partitions."""
        fields = self._fields
        partitions = fields.int32()
        fields.skip(2)  # replication_factor
        assigned = fields.counted()
        yield from self._listed(assigned, self._assignment)
        yield from self._listed(fields.counted(), self._setting)
        return assigned or partitions

    def _listed(self, number: int, read: Callable[[], None]) -> Generator[None, None, None]:
        """Read a list of a topic."""
        self._count(number)
        for _ in range(number):
            read()
            if self._is_slice_over():
                yield

    def _replicas(self) -> None:
        self._fields.skip(4 * self._fields.counted())
        self._fields.tags()

    def _assignment(self) -> None:
        self._fields.skip(4)
        self._replicas()

    def _setting(self) -> None:
        self._fields.text()
        self._fields.string()
        self._fields.tags()

    def _count(self, further: int) -> None:
        self._read += further
        if self._read > MOST_ENTRIES:
            raise ProtocolError(
                Cause.FRAME_TOO_LARGE,
                f"{self._spec} request lists more than {MOST_ENTRIES} topics, partitions and settings: send several",
            )

    def _is_slice_over(self) -> bool:
        if self._fields.at < self._slice_end:
            return False
        self._slice_end = self._fields.at + SLICE_BYTES
        return True


def without(spec: ApiSpec, frame: bytes, entries: Entries, left_out: Sequence[TopicEntry]) -> bytes:
    """Return the request without some of its topics, which are in the order of the request."""
    if not left_out:
        return frame
    parts = [frame[4 : entries.count_begin], _count(spec, len(entries.topics) - len(left_out))]
    position = entries.topics[0].begin
    for entry in left_out:
        parts.append(frame[position : entry.begin])
        position = entry.end
    parts.append(frame[position:])
    payload = b"".join(parts)
    return len(payload).to_bytes(4, "big") + payload


def _count(spec: ApiSpec, number: int) -> bytes:
    if spec.request_header_version == 2:
        return encode_varint(number + 1)
    return number.to_bytes(4, "big")
