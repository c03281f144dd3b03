"""Ships usage records, if the settings have a section ``usage``."""

import socket
from collections.abc import AsyncIterator, Callable
from functools import partial

from config.cluster import Cluster as ClusterSettings
from config.settings import Settings
from config.usage import Usage
from proxy.usage.documents import Document, Documents, same_fields
from proxy.usage.files import FileSink
from proxy.usage.records import Columns
from proxy.usage.shipping import Shipper, Shipping, Sink
from proxy.usage.topic_login import Brokers

TakeUsage = Callable[[], AsyncIterator[tuple[Columns, int | None]]]
"""Yields the rows since the last call (``Metering.take_usage``), and of several workers the one that counted them."""


class UsageService:
    """Ships the rows of ``take_usage``; idle without a section ``usage``."""

    def __init__(self, settings: Settings, take_usage: TakeUsage) -> None:
        self._settings = settings
        self._take_usage = take_usage
        self._shipper: Shipper | None = None
        self._documents: Documents | None = None
        self.shipping = Shipping()

    def start(self) -> None:
        """Begin shipping."""
        usage, settings = self._settings.usage, self._settings
        if usage is None:
            return
        instance = usage.instance or socket.gethostname()
        fields = same_fields(settings, instance)
        documents = self._documents = Documents(fields, self.shipping.dropped)

        async def take(begin_ms: int, interval_ms: int) -> AsyncIterator[Document]:
            async for columns, worker in self._take_usage():
                yield documents.document(columns, begin_ms, interval_ms, worker)

        sink = _sink(usage, settings.cluster, instance, str(fields["boot"]))
        interval_s, buffer_bytes = usage.interval_ms / 1000, usage.buffer_bytes
        self._shipper = Shipper(take, sink, self.shipping, interval_s=interval_s, buffer_bytes=buffer_bytes)
        self._shipper.start()

    async def set_mode(self, mode: str) -> None:
        """Switch the recorded mode: the current interval ends here, with the old mode."""
        if self._shipper is not None and self._documents is not None:
            await self._shipper.cut(partial(self._documents.set_mode, mode))

    async def stop(self, timeout_s: float) -> None:
        """Ship the last record, within ``timeout_s``."""
        if self._shipper is not None:
            await self._shipper.stop(timeout_s)


def _sink(usage: Usage, cluster: ClusterSettings, instance: str, boot: str) -> Sink:
    if usage.files is not None:
        return FileSink(usage.files, instance, boot)
    # Imported here: aiokafka takes a third of a second to load.
    from proxy.usage.topic import TopicSink

    assert usage.topic is not None  # noqa: S101  config.usage requires one of the two
    return TopicSink(usage.topic, Brokers(cluster), instance)
