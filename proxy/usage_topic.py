"""Usage records in a topic, by aiokafka: keyed by instance, zstd, acknowledged by all replicas in sync.

kafka-python makes the topic: only its admin client can leave the number of replicas to the brokers.

The brokers are asked directly, so no quota of the proxy ever holds its own records up.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaError as AdminError
from kafka.errors import TopicAlreadyExistsError

from proxy.usage_records import Document
from proxy.usage_shipping import SinkError

log = structlog.get_logger("sluice.usage")

_CLIENT_ID: Final = "sluice-usage"
_REQUEST_TIMEOUT_MS: Final = 10_000
_MAX_DOCUMENT_BYTES: Final = 4 * 2**20
"""A thousand rows of the longest names there are come to more than that only if somebody wants them to."""


@dataclass(frozen=True, slots=True)
class Topic:
    """The topic, and how it is made if it is not there. ``replication_factor`` -1: as the brokers have it."""

    name: str
    partitions: int
    replication_factor: int
    retention_ms: int


@dataclass(frozen=True, slots=True)
class Login:
    """How the brokers are reached."""

    bootstrap: tuple[str, ...]
    tls: ssl.SSLContext | None
    mechanism: str | None = None
    username: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return f"Login({self.bootstrap}, {self.mechanism}, {self.username})"

    def options(self) -> dict[str, Any]:
        """Return the arguments that clients of aiokafka and kafka-python take."""
        options: dict[str, Any] = {
            "bootstrap_servers": list(self.bootstrap),
            "client_id": _CLIENT_ID,
            "request_timeout_ms": _REQUEST_TIMEOUT_MS,
            "ssl_context": self.tls,
            "security_protocol": f"{'SASL_' if self.mechanism else ''}{'SSL' if self.tls else 'PLAINTEXT'}",
        }
        if self.mechanism:
            options |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": self.username,
                "sasl_plain_password": self.password,
            }
        return options


class TopicSink:
    """A producer that is made when it is needed, and anew after a failure."""

    def __init__(self, topic: Topic, login: Callable[[], Login], instance: str) -> None:
        self._topic = topic
        self._login = login
        self._key = instance.encode()
        self._producer: AIOKafkaProducer | None = None

    async def write(self, document: Document) -> None:
        """Send one document and wait until it is acknowledged. Raises SinkError."""
        try:
            if self._producer is None:
                self._producer = await self._start()
            await self._producer.send_and_wait(self._topic.name, document.value, key=self._key)
        except (KafkaError, AdminError, OSError) as error:
            await self.close()
            raise SinkError(f"topic {self._topic.name}: {_described(error)}") from error

    async def close(self) -> None:
        """Close the producer."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()

    async def _start(self) -> AIOKafkaProducer:
        options = self._login().options()
        await asyncio.to_thread(self._ensure_topic, options)
        producer = AIOKafkaProducer(
            **options,
            acks="all",
            enable_idempotence=True,
            compression_type="zstd",
            max_request_size=_MAX_DOCUMENT_BYTES,
        )
        try:
            await producer.start()
        except BaseException:
            await producer.stop()
            raise
        return producer

    def _ensure_topic(self, options: dict[str, Any]) -> None:
        topic = self._topic
        admin = KafkaAdminClient(**options)
        try:
            if topic.name in admin.list_topics():
                return
            admin.create_topics(
                [
                    NewTopic(
                        topic.name,
                        topic.partitions,
                        topic.replication_factor,
                        topic_configs={
                            "cleanup.policy": "delete",
                            "retention.ms": str(topic.retention_ms),
                            "max.message.bytes": str(_MAX_DOCUMENT_BYTES),
                        },
                    )
                ]
            )
            log.info("topic created", topic=topic.name, partitions=topic.partitions)
        except TopicAlreadyExistsError:
            pass
        finally:
            admin.close()


def _described(error: BaseException) -> str:
    return str(error) or type(error).__name__
