"""Creates the shipper of usage records that the settings ask for."""

import socket

from config.cluster import Cluster as ClusterSettings
from config.settings import Settings
from config.usage import Usage
from proxy.usage.documents import Documents, same_fields
from proxy.usage.files import FileSink
from proxy.usage.shipping import Shipper, Shipping, Sink, TakeUsage


def shipper_of(settings: Settings, take_usage: TakeUsage) -> Shipper | None:
    """Return the shipper of the rows of ``take_usage``; None without a section ``usage``."""
    usage = settings.usage
    if usage is None:
        return None
    instance = usage.instance or socket.gethostname()
    fields, shipping = same_fields(settings, instance), Shipping()
    return Shipper(
        take_usage,
        Documents(fields, shipping.dropped),
        _sink(usage, settings.cluster, instance, str(fields["boot"])),
        shipping,
        interval_s=usage.interval_ms / 1000,
        buffer_bytes=usage.buffer_bytes,
    )


def _sink(usage: Usage, cluster: ClusterSettings, instance: str, boot: str) -> Sink:
    if usage.files is not None:
        return FileSink(usage.files, instance, boot)
    # Imported here: aiokafka takes a third of a second to load.
    from proxy.usage.topic import Brokers, TopicSink

    assert usage.topic is not None  # noqa: S101  config.usage requires one of the two
    return TopicSink(usage.topic, Brokers(cluster), instance)
