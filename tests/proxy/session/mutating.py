"""Clients that create and delete topics: what they send, what they are told, and a session for them."""

from collections.abc import Iterable, Mapping, Sequence
from struct import unpack_from
from typing import Any

from protocol.fields import NO_ID
from protocol.headers import request_body_offset
from protocol.mutation_answers import read_outcomes
from protocol.mutations import Topic, read_entries
from protocol.overlay import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from protocol.table import SPECS, key_version
from proxy.brokers.topic_partitions import Lookup, Then, TopicPartitions
from quotas.kinds import QuotaKind
from quotas.mutations import TokenBound
from tests.protocol.encode import encode_frame, encode_request
from tests.proxy.playbook import Play

MUTATION = QuotaKind.CONTROLLER_MUTATION_RATE
LIMIT = 2.0
BURST = 22
"""Eleven seconds' worth."""
CREATE, DELETE, GROW = key_version(CREATE_TOPICS, 7), key_version(DELETE_TOPICS, 6), key_version(CREATE_PARTITIONS, 3)
OLD_CREATE, OLD_DELETE = key_version(CREATE_TOPICS, 5), key_version(DELETE_TOPICS, 1)


class Known(TopicPartitions):
    """Knows the partitions of topics; with ``slow`` when the test says so."""

    def __init__(self, present: Mapping[str, int] | None = None, *, slow: bool = False) -> None:
        self.present = {name.encode(): number for name, number in (present or {}).items()}
        self.default_partitions = 1
        self.slow = slow
        self.asked: list[tuple[Topic, ...]] = []
        self.looks: list[Lookup] = []

    def known(self, topics: Iterable[Topic]) -> dict[Topic, int]:
        return {} if self.slow else {topic: self.present[topic[0]] for topic in topics if topic[0] in self.present}

    def forget(self, topics: Iterable[Topic]) -> None:
        for topic in topics:
            self.present.pop(topic[0], None)

    def remember(self, topic: Topic, partitions: int) -> None:
        self.present[topic[0]] = partitions

    def look_up(self, whose: object, topics: Sequence[Topic], then: Then) -> Lookup | None:
        self.asked.append(tuple(topics))
        if not self.slow:
            return None

        look = Lookup(topics, then)
        self.looks.append(look)
        return look

    def answer(self) -> None:
        look = self.looks.pop(0)
        if look.wanted:
            look.then({topic: self.present[topic[0]] for topic in look.topics if topic[0] in self.present})


class Lagging(TopicPartitions):
    """Brokers whose metadata shows no change yet."""

    def __init__(self, present: Mapping[str, int] | None = None) -> None:
        self.present = {(name.encode(), NO_ID): number for name, number in (present or {}).items()}
        self.default_partitions = 1
        self.noted: dict[Topic, int] = {}

    def known(self, topics: Iterable[Topic]) -> dict[Topic, int]:
        known = self.present | self.noted
        return {topic: known[topic] for topic in topics if topic in known}

    def forget(self, topics: Iterable[Topic]) -> None:
        for topic in topics:
            self.noted.pop(topic, None)

    def remember(self, topic: Topic, partitions: int) -> None:
        self.noted[topic] = partitions

    def look_up(self, whose: object, topics: Sequence[Topic], then: Then) -> Lookup | None:
        return None


def play_with(limit: float | None = LIMIT, partitions: TopicPartitions | None = None, **options: Any) -> Play:
    play = Play({MUTATION: limit} if limit is not None else None, **options)
    play.worker.partitions = partitions or Known()
    return play


def bucket(play: Play) -> TokenBound:
    bound = play.engine.resolve("ANONYMOUS", "app", MUTATION, 1)
    assert isinstance(bound, TokenBound)
    return bound


def tokens(play: Play) -> float:
    return bucket(play).tokens(play.loop.now_ms)


def create(number: int, *topics: tuple[str, int], version: int = CREATE, client_id: str = "app", **more: Any) -> bytes:
    values = [{"name": name, "num_partitions": partitions, "replication_factor": 1} for name, partitions in topics]
    return encode_request(SPECS[version], {"topics": values, "timeout_ms": 30_000, **more}, number, client_id)


def delete(number: int, *names: str, version: int = DELETE) -> bytes:
    if version == DELETE:
        return encode_request(SPECS[version], {"topics": [{"name": name} for name in names]}, number)
    return encode_request(SPECS[version], {"topic_names": list(names)}, number)


def grow(number: int, *topics: tuple[str, int], version: int = GROW) -> bytes:
    return encode_request(SPECS[version], {"topics": [{"name": n, "count": count} for n, count in topics]}, number)


def answer(version: int, number: int, *topics: tuple[str, int], throttle_ms: int = 0, **of_each: Any) -> bytes:
    """What a broker says: of each topic its error."""
    key = version >> 16
    name = {CREATE_TOPICS: "topics", DELETE_TOPICS: "responses", CREATE_PARTITIONS: "results"}[key]
    listed = [{"name": topic, "error_code": error, "num_partitions": -1, **of_each} for topic, error in topics]
    return encode_frame(SPECS[version], {"throttle_time_ms": throttle_ms, name: listed}, number)


def said(version: int, frame: bytes) -> dict[str, int]:
    return {each.topic[0].decode(): each.error_code for each in read_outcomes(SPECS[version], frame)}


def names(version: int, frame: bytes) -> list[str]:
    spec = SPECS[version]
    entries = read_entries(spec, frame, request_body_offset(spec, frame, 0, len(frame)))
    return [entry.topic[0].decode() for entry in entries.topics]


def told_ms(frame: bytes) -> int:
    """throttle_time_ms of a flexible answer."""
    return int(unpack_from(">i", frame, 9)[0])
