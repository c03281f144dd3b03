"""A producer that is made when it is needed, the topic with it; each failure says what to do, and loses nothing."""

import asyncio
from typing import Any, ClassVar

import pytest
from aiokafka.errors import KafkaConnectionError, KafkaTimeoutError, MessageSizeTooLargeError

from config.units import Address
from config.usage import UsageTopic
from protocol.requests import Request
from proxy.usage import topic as usage_topic
from proxy.usage.documents import Document
from proxy.usage.shipping import RefusedError, SinkError
from proxy.usage.topic import TopicSink, ensure
from tests.harness.asked_broker import AskedBroker

TOPIC = UsageTopic(name="usage", retention=3_600_000)  # type: ignore[call-arg]  # its alias
CONTROLLER = Address("c", 1)
OK, UNKNOWN, NOT_ALLOWED, CLUSTER_NOT_ALLOWED, EXISTS, TOO_MANY_REPLICAS, POLICY = 0, 3, 29, 31, 36, 38, 44


def document(seq: int) -> Document:
    return Document(seq, 1, b"{}")


class FakeBrokers(AskedBroker):
    """They answer ApiVersions, Metadata and CreateTopics, the latter up to version ``newest``."""

    def __init__(
        self, topic_error: int = OK, creation_error: int = OK, newest: int = 7, login: dict[str, Any] | None = None
    ) -> None:
        brokers = [{"node_id": node_id, "host": host, "port": 1} for node_id, host in ((3, "a"), (7, "c"))]
        topic = {"error_code": topic_error, "name": "usage"}
        created = {"name": "usage", "error_code": creation_error, "error_message": "as it is"}
        super().__init__(
            {
                18: lambda: {"api_keys": [{"api_key": 19, "min_version": 0, "max_version": newest}]},
                3: lambda: {"brokers": brokers, "controller_id": 7, "topics": [topic]},
                19: lambda: {"topics": [created]},
            }
        )
        self._login = login or {"bootstrap_servers": ["a:1", "b:2"]}

    async def login(self) -> dict[str, Any]:
        return self._login


class FakeProducer:
    """Stands in for aiokafka's; ``failures`` are raised by the sends to come, ``refusals`` by the starts."""

    made: ClassVar[list["FakeProducer"]] = []
    failures: ClassVar[list[Exception]] = []
    refusals: ClassVar[list[Exception]] = []
    hangs = False

    def __init__(self, **options: Any) -> None:
        self.options = options
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


def sink(login: dict[str, Any] | None = None, brokers: Any = None) -> TopicSink:
    asked: Any = brokers or FakeBrokers(login=login)
    return TopicSink(TOPIC, asked, "edge-1")


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
    class Away(FakeBrokers):
        async def ask(self, question: Any, at: Address | None = None) -> Any:
            raise SinkError("no broker can be used: a:1: refused the login")

    with pytest.raises(SinkError, match="refused the login"):
        asyncio.run(sink(brokers=Away()).write(document(0)))
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


def test_a_login_is_given_to_the_producer() -> None:
    login = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_password": "the password"}
    asyncio.run(sink(login).write(document(0)))
    assert FakeProducer.made[0].options.items() >= login.items()


# -------------------------------------------------------------------------------------------------------- the topic


def made_by(brokers: Any, topic: UsageTopic = TOPIC) -> list[tuple[Address | None, Request]]:
    asyncio.run(ensure(topic, brokers))
    return [(at, request) for at, request in brokers.asked if request.api_key == 19]


def test_a_topic_that_is_there_is_not_made() -> None:
    brokers = FakeBrokers()
    assert made_by(brokers) == []
    [_, (at, question)] = brokers.asked
    assert (at, question.body) == (None, b"\0\0\0\1\0\5usage\0"), "allow_auto_topic_creation: false"


@pytest.mark.parametrize("creation_error", [OK, EXISTS])
def test_a_topic_that_is_not_there_is_made_by_the_controller(creation_error: int) -> None:
    [(at, request)] = made_by(FakeBrokers(UNKNOWN, creation_error))
    assert (at, request.version) == (CONTROLLER, 4)
    # CreateTopics v4, by kafka's message format: one topic, partitions, replicas (-1: as the brokers have it), ...
    configs = b"\0\0\0\2\0\x0ecleanup.policy\0\6delete\0\x0cretention.ms\0\x073600000"
    topic = b"\0\0\0\1\0\5usage\0\0\0\x0c\xff\xff\0\0\0\0" + configs
    assert request.body == topic + b"\0\0\x27\x10\0"


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
        made_by(FakeBrokers(topic_error, creation_error))


@pytest.mark.parametrize("newest", [2, 3])
def test_brokers_older_than_2_4_are_told_how_many_replicas_or_say_which_setting_helps(newest: int) -> None:
    [(_, request)] = made_by(
        FakeBrokers(UNKNOWN, newest=newest), UsageTopic(name="usage", partitions=1, replication_factor=3)
    )
    assert request.version == 2
    with pytest.raises(SinkError, match=r"usage\.topic.replication_factor, or make the topic yourself"):
        made_by(FakeBrokers(UNKNOWN, newest=newest), UsageTopic(name="usage", partitions=1))


def test_brokers_that_are_too_old_for_the_library_are_said_to_be() -> None:
    FakeProducer.refusals.append(NotImplementedError("Support for Produce v0 has not yet been added"))
    with pytest.raises(SinkError, match=r"the brokers are too old for aiokafka .*: write usage records to files"):
        asyncio.run(sink().write(document(1)))
