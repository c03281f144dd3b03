"""Usage records in a topic, by aiokafka: keyed by instance, zstd, acknowledged by all in-sync replicas.

It connects to the brokers directly, so no quota of the proxy throttles it. The topic is made by the proxy's own
requests: the admin client of aiokafka cannot leave the number of replicas to the brokers (KIP-464).

Files of TLS and login are read at each attempt, in a thread: an unavailable topic is retried every few seconds, and no
client may be delayed by that.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from config.cluster import Cluster as ClusterSettings
from config.units import Address
from config.usage import UsageTopic
from protocol.answers import read_versions
from protocol.messages import Message
from protocol.probes import CREATE_TOPICS, METADATA, create_topic_with, describe_topic, read
from protocol.requests import WHICH_VERSIONS, Request
from proxy.brokers.cluster import Cluster, NoAnswerError
from proxy.brokers.connection import BrokerConnection
from proxy.brokers.failures import describe
from proxy.brokers.login import read_password
from proxy.brokers.tls import BrokerTls
from proxy.usage.documents import Document
from proxy.usage.shipping import RefusedError, SinkError

T = TypeVar("T")

log = structlog.get_logger("sluice.usage")

_CLOSE_S: Final = 1.0
_MAX_DOCUMENT_BYTES: Final = 4 * 2**20
"""Limit before compression, for at least one row: a row of the longest names takes a quarter of it."""

_UNKNOWN_TOPIC, _EXISTS = 3, 36
_ADVICE: Final[Mapping[int, str]] = {
    29: "the proxy's user may not use it: allow that user WRITE on the topic, and CREATE to have it made",
    31: "it is not there, and the proxy's user may not make it: allow that user CREATE, or make it yourself",
    38: "it cannot be made with so many replicas: there are fewer brokers than usage.topic.replication_factor",
    44: "it is not there, and a policy of the brokers forbids to make it as usage.topic says: make it yourself",
}
_LEAST_VERSION, _REPLICAS_LEFT_OPEN = 2, 4
"""Versions of CreateTopics: the lowest one spoken, and the first that accepts -1 replicas (brokers of 2.4 or newer)."""
_CREATE_TOPICS: Final = CREATE_TOPICS >> 16


class Brokers:
    """The brokers, as the proxy's own login reaches them. All of it raises OSError if a file cannot be read."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings

    async def login(self) -> dict[str, Any]:
        """Return the arguments of aiokafka's clients."""
        tls, sasl = await self._tls(), self._settings.sasl
        options: dict[str, Any] = {
            "bootstrap_servers": [str(address) for address in self._settings.bootstrap],
            "client_id": "sluice-usage",
            "request_timeout_ms": 10_000,
            "retry_backoff_ms": 500,
            "ssl_context": None if tls is None else tls.context,
            "security_protocol": f"{'SASL_' if sasl else ''}{'SSL' if tls else 'PLAINTEXT'}",
        }
        if sasl is not None:
            options["sasl_mechanism"] = sasl.mechanism
            options["sasl_plain_username"] = sasl.username
            options["sasl_plain_password"] = await asyncio.to_thread(read_password, sasl.password_file)
        return options

    async def ask(self, question: Callable[[BrokerConnection], Awaitable[T]], at: Address | None = None) -> T:
        """Ask a usable broker, or the one at an address. Raises SinkError with the cause and the fix."""
        settings = self._settings if at is None else self._settings.model_copy(update={"bootstrap": (at,)})
        cluster = Cluster(
            settings.name,
            settings,
            on_broker=lambda _: None,
            refresh_s=settings.refresh_s,
            connect_timeout_s=settings.connect_timeout_s,
            tls=await self._tls(),
        )
        try:
            return await cluster.ask(question)
        except NoAnswerError as error:
            raise SinkError(f"no broker can be used: {error}") from error

    async def _tls(self) -> BrokerTls | None:
        settings = self._settings.tls
        return None if settings is None else await asyncio.to_thread(BrokerTls, settings)


class TopicSink:
    """A producer that is created on first use, and again after a failure.

    ``brokers`` are asked for the topic first: for an unusable broker, aiokafka says only "unable to bootstrap".
    """

    def __init__(self, topic: UsageTopic, brokers: Brokers, instance: str) -> None:
        self._topic = topic
        self._brokers = brokers
        self._key = instance.encode("utf-8", "replace")
        self._producer: AIOKafkaProducer | None = None
        # It logs ten lines a second while a broker is down; the errors here say the same.
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)

    async def write(self, document: Document) -> None:
        """Send one document and wait until it is acknowledged. Raises SinkError, RefusedError."""
        try:
            if self._producer is None:
                self._producer = await self._start()
            await self._producer.send_and_wait(self._topic.name, document.value, key=self._key)
        except MessageSizeTooLargeError as error:
            raise RefusedError(
                f"topic {self._topic.name}: a document of {len(document.value)} bytes is too large for it: "
                "raise its max.message.bytes"
            ) from error
        except NotImplementedError as error:  # aiokafka: no common API version
            await self.close()
            raise SinkError(
                f"topic {self._topic.name}: the brokers are too old for aiokafka ({error}): write usage records to "
                "files (usage.files)"
            ) from error
        except (KafkaError, OSError) as error:
            await self.close()
            raise SinkError(f"topic {self._topic.name}: {describe(error)}") from error

    async def close(self) -> None:
        """Close the producer; unsent documents are still in the buffer."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await _stop(producer)

    async def _start(self) -> AIOKafkaProducer:
        await ensure(self._topic, self._brokers)
        login = await self._brokers.login()
        producer = AIOKafkaProducer(
            **login,
            acks="all",
            # Not idempotent: aiokafka would retry for ever silently. Order is kept by one document in flight at a time,
            # and a duplicate is recognized by its number.
            enable_idempotence=False,
            compression_type="zstd",
            max_request_size=_MAX_DOCUMENT_BYTES,
        )
        try:
            await producer.start()
        except BaseException:
            await _stop(producer)
            raise
        return producer


async def _stop(producer: AIOKafkaProducer) -> None:
    with suppress(TimeoutError, KafkaError, OSError):
        async with asyncio.timeout(_CLOSE_S):
            await producer.stop()


async def ensure(topic: UsageTopic, brokers: Brokers) -> None:
    """Make the topic if it is not there. Raises SinkError, also where no broker can be used."""
    newest, metadata = await brokers.ask(partial(_look_for, topic))
    error_code = metadata["topics"][0]["error_code"]
    if error_code == _UNKNOWN_TOPIC:
        places = {each["node_id"]: Address(each["host"], each["port"]) for each in metadata["brokers"]}
        controller = places.get(metadata["controller_id"])  # with ZooKeeper nobody else makes topics
        created = await brokers.ask(partial(_create, _creation(topic, newest)), at=controller)
        if (error_code := created["error_code"]) not in {0, _EXISTS}:
            said = _ADVICE.get(error_code) or f"cannot be made: {created['error_message']} ({error_code})"
            raise SinkError(f"topic {topic.name}: {said}")
        log.info("topic created", topic=topic.name, partitions=topic.partitions)
    elif error_code in _ADVICE:
        raise SinkError(f"topic {topic.name}: {_ADVICE[error_code]}")


async def _look_for(topic: UsageTopic, connection: BrokerConnection) -> tuple[int, Message]:
    """Return the newest CreateTopics of a broker, and what it says of the topic."""
    _, newest = read_versions(await connection.ask(WHICH_VERSIONS)).get(_CREATE_TOPICS, (0, 0))
    return newest, read(METADATA, await connection.ask(describe_topic(topic.name)))


def _creation(topic: UsageTopic, newest: int) -> Request:
    version = _REPLICAS_LEFT_OPEN if topic.replication_factor is None else _LEAST_VERSION
    if version > newest:
        raise SinkError(
            f"topic {topic.name}: brokers older than 2.4 do not choose its number of replicas: set "
            "usage.topic.replication_factor, or make the topic yourself"
        )
    configs = {"cleanup.policy": "delete", "retention.ms": str(topic.retention_ms)}
    return create_topic_with(topic.name, topic.partitions, topic.replication_factor or -1, configs, version)


async def _create(request: Request, connection: BrokerConnection) -> Message:
    created: Message = read(CREATE_TOPICS, await connection.ask(request))["topics"][0]
    return created
