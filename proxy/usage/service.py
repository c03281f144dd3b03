"""Usage records of a whole process: from the settings to a shipper that runs, or to nothing."""

import socket

from config.cluster import Cluster as ClusterSettings
from config.settings import Settings
from config.usage import Usage
from proxy.runtime.clock import now_ms
from proxy.runtime.slices import in_slices
from proxy.runtime.tasks import every
from proxy.usage.accounts import Accounts
from proxy.usage.files import FileSink
from proxy.usage.meters import Meters
from proxy.usage.records import Origin, Recorder
from proxy.usage.shipping import Shipper, Shipping, Sink
from proxy.usage.topic_login import Brokers
from quotas.engine import Engine, Window

_MAX_CLIENTS = 10_000
"""Clients that are told apart where no records are taken: metrics show fewer."""
_SWEEP_EVERY_S = 10.0


class UsageService:
    """Meters for the listeners, and the shipping of what they count; without a section ``usage`` it is for metrics."""

    def __init__(self, settings: Settings, engine: Engine, window: Window) -> None:
        self._settings = settings
        self._engine = engine
        self._window = window
        self.meters = Meters(settings.usage.max_clients if settings.usage is not None else _MAX_CLIENTS)
        self._listeners: list[tuple[str, Accounts]] = []
        self._shipper: Shipper | None = None
        self.shipping = Shipping()

    def accounts_of(self, listener: str) -> Accounts:
        """Return the accounts of a listener's clients."""
        accounts = Accounts(self.meters, self._engine, listener)
        self._listeners.append((listener, accounts))
        return accounts

    @property
    def protected_topics(self) -> frozenset[bytes]:
        """Topics that no client may produce to: whoever writes usage records writes the bill."""
        topic = self._settings.usage.topic if self._settings.usage is not None else None
        return frozenset((topic.name.encode(),)) if topic is not None and topic.protect else frozenset()

    def start(self) -> None:
        """Ship from now on."""
        usage, settings = self._settings.usage, self._settings
        if usage is None:
            every(_SWEEP_EVERY_S, self._sweep, "forget clients that are gone")
            return
        instance = usage.instance or socket.gethostname()
        origin = Origin(settings.cluster.name, instance, settings.quotas.mode, self._window)
        recorder = Recorder(origin, self.meters, self._listeners, self._engine, self._dropped)
        sink = _sink(usage, settings.cluster, instance, recorder.boot)
        self._shipper = Shipper(
            recorder,
            sink,
            self.shipping,
            interval_s=usage.interval_ms / 1000,
            buffer_bytes=usage.buffer_bytes,
        )
        self._shipper.start()

    async def stop(self, timeout_s: float) -> None:
        """Ship the last record, if that takes no longer."""
        if self._shipper is not None:
            await self._shipper.stop(timeout_s)

    async def _sweep(self) -> None:
        await in_slices(self.meters.sweep(now_ms()))

    def _dropped(self) -> tuple[int, int]:
        return self.shipping.dropped_documents, self.shipping.dropped_rows


def _sink(usage: Usage, cluster: ClusterSettings, instance: str, boot: str) -> Sink:
    if usage.topic is None:
        files = usage.files
        assert files is not None  # noqa: S101  one of the two is there: config.usage
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
    brokers = Brokers(cluster)
    return TopicSink(topic, brokers.login, brokers.check_reachable, instance)
