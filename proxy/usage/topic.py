"""Usage records in a topic, by aiokafka: keyed by instance, zstd, acknowledged by all in-sync replicas.

It connects to the brokers directly, so no quota of the proxy throttles it.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from proxy.usage.documents import Document
from proxy.usage.shipping import RefusedError, SinkError
from proxy.usage.topic_creation import Topic, ensure
from proxy.usage.topic_login import Brokers

_CLOSE_S: Final = 1.0
_MAX_DOCUMENT_BYTES: Final = 4 * 2**20
"""Limit before compression, for at least one row: a row of the longest names takes a quarter of it."""


class TopicSink:
    """A producer that is created on first use, and again after a failure.

    ``brokers`` are asked for the topic first: for an unusable broker, aiokafka says only "unable to bootstrap".
    """

    def __init__(self, topic: Topic, brokers: Brokers, instance: str) -> None:
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
            raise SinkError(f"topic {self._topic.name}: {_described(error)}") from error

    async def close(self) -> None:
        """Close the producer; unsent documents are still in the buffer."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await _stop(producer)

    async def _start(self) -> AIOKafkaProducer:
        await ensure(self._topic, self._brokers)
        login = await self._brokers.login()
        producer = AIOKafkaProducer(
            **login.options(),
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


def _described(error: BaseException) -> str:
    return str(error) or type(error).__name__
