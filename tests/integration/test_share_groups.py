"""ShareFetch (KIP-932) under a consumer_byte_rate: Java's share consumer, beside the same under the broker's own."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pytest

from tests.harness.clients.java import java_command
from tests.harness.kafka import KafkaCluster
from tests.harness.measure import WINDOW_S, Series
from tests.harness.sluice import SluiceProcess
from tests.integration.conftest import NODE_IDS, fresh_name
from tests.integration.filled import filled_topic

QUOTA: Final = "consumer_byte_rate"
VERSION: Final = "4.4.0"
LIMIT_BYTES_PER_S: Final = 200_000
BATCH_BYTES: Final = 16_384
FILL_BYTES: Final = 30_000_000
WINDOWS: Final = 3
SETTLING_S: Final = 25.0
MOST: Final = 1.1
LEAST: Final = 0.5
"""A broker throws away what a throttled ShareFetch has read, as of a Fetch: its own rate is less."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What a share consumer has reported."""

    series: Series
    told_ms: float
    stderr: str

    @property
    def rate(self) -> float:
        """Against the quota, over whole windows behind the first."""
        return self.series.steady_rate(WINDOWS) / LIMIT_BYTES_PER_S


@pytest.mark.matrix
@pytest.mark.timeout(240)
def test_a_share_consumer_is_held_to_its_quota(cluster: KafkaCluster) -> None:
    topic = filled_topic(cluster, NODE_IDS[0], FILL_BYTES, batch_bytes=BATCH_BYTES)
    quotas = f"quotas:\n  - {{entity: {{client-id: shared}}, {QUOTA}: {LIMIT_BYTES_PER_S}}}\n"
    cluster.set_client_quotas(QUOTA, {"own": LIMIT_BYTES_PER_S})
    try:
        with (
            SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=quotas) as sluice,
            _consumer(cluster.bootstrap, "own", topic) as own_process,
            _consumer(sluice.bootstrap, "shared", topic) as process,
        ):
            own, shared = _read(own_process), _read(process)
            charged = sluice.metrics().value("sluice_quota_bytes_total", direction="fetch", client_id="shared")
            throttled_s = sluice.metrics().value("sluice_quota_throttle_seconds_total", kind=QUOTA, client_id="shared")
    finally:
        cluster.set_client_quotas(QUOTA, {"own": None})
    total = shared.series.bytes_at(shared.series.end_s())
    print(f"share consumer: {shared.rate:.2f} x quota / {LEAST}-{MOST} (broker {own.rate:.2f})")
    print(f"told at most {shared.told_ms:.0f} ms (broker {own.told_ms:.0f}), held for {throttled_s:.0f} s in all")
    print(f"charged {charged:.0f} bytes for {total:.0f} of records")
    assert LEAST <= shared.rate <= MOST
    assert charged >= total > 0
    assert throttled_s > 0
    assert " ERROR " not in shared.stderr


@contextmanager
def _consumer(bootstrap: str, client_id: str, topic: str) -> Iterator["subprocess.Popen[str]"]:
    seconds = SETTLING_S + (1 + WINDOWS) * WINDOW_S
    words = [bootstrap, client_id, topic, fresh_name("share"), str(seconds)]
    command = [*java_command(VERSION, "ShareConsumer"), *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _read(process: "subprocess.Popen[str]") -> Shared:
    """Until it has ended."""
    said, stderr = process.communicate(timeout=180)
    assert process.returncode == 0, stderr
    lines = [tuple(map(float, line.split())) for line in said.splitlines()]
    series = Series([(at_s, total) for at_s, total, _ in lines])
    return Shared(series, max(told_ms for *_, told_ms in lines), stderr)
