"""Ships usage records, if the settings have a section ``usage``."""

import socket

from config.cluster import Cluster as ClusterSettings
from config.settings import Settings
from config.usage import Usage
from proxy.usage.documents import Documents, same_fields
from proxy.usage.files import FileSink
from proxy.usage.shipping import Shipper, Shipping, Sink, TakeUsage
from proxy.usage.topic_login import Brokers


class UsageService:
    """Ships the rows of ``take_usage``; idle without a section ``usage``."""

    def __init__(self, settings: Settings, take_usage: TakeUsage) -> None:
        self._settings = settings
        self._take_usage = take_usage
        self._shipper: Shipper | None = None
        self.shipping = Shipping()

    def start(self) -> None:
        """Begin shipping."""
        usage, settings = self._settings.usage, self._settings
        if usage is None:
            return
        instance = usage.instance or socket.gethostname()
        fields = same_fields(settings, instance)
        self._shipper = Shipper(
            self._take_usage,
            Documents(fields, self.shipping.dropped),
            _sink(usage, settings.cluster, instance, str(fields["boot"])),
            self.shipping,
            interval_s=usage.interval_ms / 1000,
            buffer_bytes=usage.buffer_bytes,
        )
        self._shipper.start()

    async def set_mode(self, mode: str) -> None:
        """Switch the recorded mode."""
        if self._shipper is not None:
            await self._shipper.set_mode(mode)

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
