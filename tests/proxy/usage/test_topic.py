"""A producer that is made when it is needed, the topic with it; each failure says what to do, and loses nothing."""

import asyncio
import ssl
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from aiokafka.errors import KafkaConnectionError, KafkaTimeoutError, MessageSizeTooLargeError

from proxy.usage import topic as usage_topic
from proxy.usage import topic_creation
from proxy.usage.documents import Document
from proxy.usage.shipping import RefusedError, SinkError
from proxy.usage.topic import TopicSink
from proxy.usage.topic_creation import Topic, ensure
from proxy.usage.topic_login import TopicLogin

TOPIC = Topic("usage", 12, -1, 3_600_000)
CONTROLLER, BROKER = 7, 3
OK, UNKNOWN, NOT_ALLOWED, CLUSTER_NOT_ALLOWED, EXISTS, TOO_MANY_REPLICAS, POLICY = 0, 3, 29, 31, 36, 38, 44


def document(seq: int) -> Document:
    return Document(seq, 1, b"{}")


class FakeClient:
    """Answers Metadata and CreateTopics; keeps what it was asked, and whom."""

    def __init__(self, topic_error: int = OK, creation_error: int = OK) -> None:
        self.topic_error = topic_error
        self.creation_error = creation_error
        self.asked: list[tuple[int, Any]] = []

    def get_random_node(self) -> int:
        return BROKER

    async def send(self, node_id: int, request: Any) -> Any:
        prepared = request.prepare({3: (0, 13), 19: (2, 7)})
        self.asked.append((node_id, prepared))
        if prepared.API_KEY == 3:
            return SimpleNamespace(topics=[(self.topic_error, "usage", False, [])], controller_id=CONTROLLER)
        return SimpleNamespace(topic_errors=[("usage", self.creation_error, "as it is")])


class FakeProducer:
    """Stands in for aiokafka's; ``failures`` are raised by the sends to come, ``refusals`` by the starts."""

    made: ClassVar[list["FakeProducer"]] = []
    failures: ClassVar[list[Exception]] = []
    refusals: ClassVar[list[Exception]] = []
    hangs = False

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.client = FakeClient()
        self.sent: list[tuple[str, bytes, bytes]] = []
        self.stopped = False
        self.made.append(self)

    async def start(self) -> None:
        if self.refusals:
            raise self.refusals.pop(0)

    async def send_and_wait(self, topic: str, value: bytes, key: bytes) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.sent.append((topic, value, key))

    async def stop(self) -> None:
        self.stopped = True
        if self.hangs:
            await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def _producers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_topic, "AIOKafkaProducer", FakeProducer)
    for kept in ("made", "failures", "refusals"):
        monkeypatch.setattr(FakeProducer, kept, [])


async def _open() -> None:
    """A broker that can be used."""


def sink(login: TopicLogin | None = None, check_reachable: Any = _open) -> TopicSink:
    async def ready() -> TopicLogin:
        return login or TopicLogin(("a:1", "b:2"), None)

    return TopicSink(TOPIC, ready, check_reachable, "edge-1")


def test_documents_go_to_the_topic_keyed_by_the_instance() -> None:
    async def run() -> None:
        topic = sink()
        await topic.write(document(0))
        await topic.write(document(1))
        await topic.close()

    asyncio.run(run())
    [producer] = FakeProducer.made
    assert producer.sent == [("usage", b"{}", b"edge-1")] * 2
    assert (producer.options["acks"], producer.options["compression_type"]) == ("all", "zstd")
    assert producer.options["bootstrap_servers"] == ["a:1", "b:2"]
    assert producer.options["security_protocol"] == "PLAINTEXT"
    assert producer.stopped


@pytest.mark.parametrize("error", [KafkaTimeoutError("late"), KafkaConnectionError("gone"), OSError("cut")])
def test_a_failure_ends_the_producer_and_the_same_document_goes_by_the_next_one(error: Exception) -> None:
    async def run() -> None:
        topic = sink()
        FakeProducer.failures.append(error)
        with pytest.raises(SinkError, match=r"topic usage: .*(late|gone|cut)") as caught:
            await topic.write(document(0))
        assert not isinstance(caught.value, RefusedError)
        await topic.write(document(0))

    asyncio.run(run())
    first, second = FakeProducer.made
    assert (first.stopped, first.sent, len(second.sent), second.stopped) == (True, [], 1, False)


def test_a_document_that_is_too_large_is_refused_and_the_producer_goes_on() -> None:
    async def run() -> None:
        topic = sink()
        FakeProducer.failures.append(MessageSizeTooLargeError())
        with pytest.raises(RefusedError, match=r"2 bytes is too large for it: raise its max\.message\.bytes"):
            await topic.write(document(0))
        await topic.write(document(1))

    asyncio.run(run())
    [producer] = FakeProducer.made
    assert (len(producer.sent), producer.stopped) == (1, False)


def test_a_producer_that_cannot_start_is_ended() -> None:
    FakeProducer.refusals.append(KafkaConnectionError("nobody there"))
    with pytest.raises(SinkError, match="nobody there"):
        asyncio.run(sink().write(document(0)))
    assert FakeProducer.made[0].stopped


def test_brokers_that_cannot_be_used_say_why_and_no_producer_is_made() -> None:
    async def check_reachable() -> None:
        raise SinkError("no broker can be used: a:1: refused the login")

    with pytest.raises(SinkError, match="refused the login"):
        asyncio.run(sink(check_reachable=check_reachable).write(document(0)))
    assert not FakeProducer.made


def test_a_close_does_not_wait_for_a_producer_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_topic, "_CLOSE_S", 0.01)
    monkeypatch.setattr(FakeProducer, "hangs", True)

    async def run() -> None:
        topic = sink()
        await topic.write(document(0))
        async with asyncio.timeout(5):
            await topic.close()

    asyncio.run(run())


def test_a_login_is_given_to_the_producer_and_shown_to_nobody() -> None:
    login = TopicLogin(("a:1",), ssl.create_default_context(), "SCRAM-SHA-512", "proxy", "the password")
    asyncio.run(sink(login).write(document(0)))
    options = FakeProducer.made[0].options
    assert (options["security_protocol"], options["sasl_mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("proxy", "the password")
    assert "the password" not in repr(login)


# -------------------------------------------------------------------------------------------------------- the topic


def made_by(client: FakeClient) -> list[tuple[int, Any]]:
    asyncio.run(ensure(TOPIC, client))
    return [(node_id, request) for node_id, request in client.asked if request.API_KEY == 19]


def test_a_topic_that_is_there_is_not_made() -> None:
    client = FakeClient()
    assert made_by(client) == []
    [(node_id, question)] = client.asked
    assert (node_id, question.allow_auto_topic_creation) == (BROKER, False)


@pytest.mark.parametrize("creation_error", [OK, EXISTS])
def test_a_topic_that_is_not_there_is_made_by_the_controller(creation_error: int) -> None:
    [(node_id, request)] = made_by(FakeClient(UNKNOWN, creation_error))
    assert (node_id, request.API_VERSION) == (CONTROLLER, 4)
    # CreateTopics v4, by kafka's message format: one topic, partitions, replicas (-1: as the brokers have it), ...
    configs = b"\0\0\0\2\0\x0ecleanup.policy\0\6delete\0\x0cretention.ms\0\x073600000"
    topic = b"\0\0\0\1\0\5usage\0\0\0\x0c\xff\xff\0\0\0\0" + configs
    assert request.encode() == topic + b"\0\0\x27\x10\0"


@pytest.mark.parametrize(
    ("topic_error", "creation_error", "advice"),
    [
        (NOT_ALLOWED, OK, "allow that user WRITE"),
        (UNKNOWN, NOT_ALLOWED, "allow that user WRITE"),
        (UNKNOWN, CLUSTER_NOT_ALLOWED, "allow that user CREATE, or make it yourself"),
        (UNKNOWN, TOO_MANY_REPLICAS, r"usage\.topic\.replication_factor"),
        (UNKNOWN, POLICY, "make it yourself"),
        (UNKNOWN, 99, r"cannot be made: as it is \(99\)"),
    ],
)
def test_a_topic_that_cannot_be_used_says_what_to_do(topic_error: int, creation_error: int, advice: str) -> None:
    with pytest.raises(SinkError, match=f"topic usage: .*{advice}"):
        asyncio.run(ensure(TOPIC, FakeClient(topic_error, creation_error)))


@pytest.mark.parametrize("newest", [2, 3])
def test_brokers_older_than_2_4_are_told_how_many_replicas_or_say_which_setting_helps(newest: int) -> None:
    versions = {19: (0, newest)}
    made = topic_creation._CreateTopics(Topic("usage", 1, 3, 1000)).prepare(versions)
    assert made.API_VERSION == 2
    with pytest.raises(SinkError, match=r"usage\.topic.replication_factor, or make the topic yourself"):
        topic_creation._CreateTopics(Topic("usage", 1, -1, 1000)).prepare(versions)


def test_brokers_that_are_too_old_for_the_library_are_said_to_be() -> None:
    async def login() -> Any:
        raise NotImplementedError("Support for _CreateTopics v0 has not yet been added")

    async def reachable() -> None:
        pass

    topic = Topic("usage", 1, 3, 1000)
    sink = TopicSink(topic, login, reachable, "one")
    with pytest.raises(SinkError, match=r"the brokers are too old for aiokafka .*: make the topic yourself"):
        asyncio.run(sink.write(document(1)))
