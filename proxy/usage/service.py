"""Ships usage records, if the settings have a section ``usage``."""

import socket
from collections.abc import AsyncIterator, Callable
from functools import partial

from config.cluster import Cluster as ClusterSettings
from config.settings import Settings
from config.usage import Usage
from proxy.usage.documents import Document, Documents, Origin
from proxy.usage.files import FileSink
from proxy.usage.records import Columns
from proxy.usage.shipping import Shipper, Shipping, Sink
from proxy.usage.topic_login import Brokers
from quotas.rate import Window

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
        window, controller = (
            Window(each.samples, each.size_ms) for each in (settings.quotas.window, settings.quotas.controller_window)
        )
        documents = self._documents = Documents(
            Origin(
                settings.cluster.name,
                instance,
                settings.quotas.mode,
                window,
                controller,
                owned=settings.owners is not None,
            ),
            self._dropped,
        )

        async def take(begin_ms: int, interval_ms: int) -> AsyncIterator[Document]:
            async for columns, worker in self._take_usage():
                yield documents.document(columns, begin_ms, interval_ms, worker)

        self._shipper = Shipper(
            take,
            _sink(usage, settings.cluster, instance, documents.boot),
            self.shipping,
            interval_s=usage.interval_ms / 1000,
            buffer_bytes=usage.buffer_bytes,
        )
        self._shipper.start()

    async def set_mode(self, mode: str) -> None:
        """Switch the recorded mode: the current interval ends here, with the old mode."""
        if self._shipper is not None and self._documents is not None:
            await self._shipper.cut(partial(self._documents.set_mode, mode))

    async def stop(self, timeout_s: float) -> None:
        """Ship the last record, within ``timeout_s``."""
        if self._shipper is not None:
            await self._shipper.stop(timeout_s)

    def _dropped(self) -> tuple[int, int]:
        return self.shipping.dropped_documents, self.shipping.dropped_rows


def _sink(usage: Usage, cluster: ClusterSettings, instance: str, boot: str) -> Sink:
    if usage.topic is None:
        files = usage.files
        assert files is not None  # noqa: S101  config.usage requires one of the two
        return FileSink(
            files.directory,
            instance,
            boot,
            rotate_bytes=files.rotate_bytes,
            rotate_s=files.rotate_s,
            keep_bytes=files.keep_bytes,
        )
    # Imported here: aiokafka takes a third of a second to load.
    from proxy.usage.topic import TopicSink
    from proxy.usage.topic_creation import Topic

    topic = Topic(
        usage.topic.name, usage.topic.partitions, usage.topic.replication_factor or -1, usage.topic.retention_ms
    )
    return TopicSink(topic, Brokers(cluster), instance)
