"""The proxy in front of a cluster whose every address is watched."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.harness.kafka import KafkaCluster
from tests.harness.sluice import NO_QUOTAS, SluiceProcess
from tests.harness.watch import ConnectionWatch


@dataclass(frozen=True, slots=True)
class Guarded:
    cluster: KafkaCluster
    sluice: SluiceProcess
    watch: ConnectionWatch


@contextmanager
def guarded_sluice(
    cluster: KafkaCluster,
    *,
    quotas: str = NO_QUOTAS,
    settings: Mapping[str, Any] | None = None,
    listeners: Mapping[str, Mapping[str, Any]] | None = None,
) -> Iterator[Guarded]:
    """A running proxy that alone reaches the brokers; what else tries is in `watch.escapes`."""
    sluice = SluiceProcess(
        cluster.guarded_bootstrap, cluster.node_ids, quotas=quotas, settings=settings, listeners=listeners
    )
    with ConnectionWatch(cluster.nodes, lambda: sluice.pid) as watch, sluice:
        yield Guarded(cluster, sluice, watch)
