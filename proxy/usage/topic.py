"""Usage records in a topic, by aiokafka: keyed by instance, zstd, acknowledged by all replicas in sync.

The brokers are asked directly, so no quota of the proxy ever holds its own records up.
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
"""Before compression, of one row at the least: with the longest names there are it comes to a quarter of that."""


class TopicSink:
    """A producer that is made when it is needed, and anew after a failure.

    ``brokers`` are asked first, for the topic: of a broker that cannot be used, aiokafka says no more than that it is
    "unable to bootstrap".
    """

    def __init__(self, topic: Topic, brokers: Brokers, instance: str) -> None:
        self._topic = topic
        self._brokers = brokers
        self._key = instance.encode("utf-8", "replace")
        self._producer: AIOKafkaProducer | None = None
        # Ten lines a second while a broker is down; what they say is in the errors here.
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
        except NotImplementedError as error:  # aiokafka's word for what no version of the brokers' and its own has
            await self.close()
            raise SinkError(
                f"topic {self._topic.name}: the brokers are too old for aiokafka ({error}): write usage records to "
                "files (usage.files)"
            ) from error
        except (KafkaError, OSError) as error:
            await self.close()
            raise SinkError(f"topic {self._topic.name}: {_described(error)}") from error

    async def close(self) -> None:
        """Close the producer; what it could not send by then is still in the buffer."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await _stop(producer)

    async def _start(self) -> AIOKafkaProducer:
        await ensure(self._topic, self._brokers)
        login = await self._brokers.login()
        producer = AIOKafkaProducer(
            **login.options(),
            acks="all",
            # Not idempotent: then aiokafka would retry for ever and never say so. The order is kept because one is
            # under way at a time, and a document that comes twice is told by its number.
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
