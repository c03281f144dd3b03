"""How long a client that is connected waits for its answers while others connect 5,000 times a second.

Stretches with the storm at the proxy take turns with stretches in which the same storm goes to a decoy, so that the
machine is equally busy. The proxy has one processor to itself, everything else the other; what counts is the median of
the stretches' p99s, of one and the same connection.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median, quantiles
from typing import Final

import pytest

from tests.harness.kafka import KafkaCluster
from tests.harness.ports import LOOPBACK, free_port
from tests.harness.sluice import SluiceProcess
from tests.harness.storm import Storm
from tests.harness.wire import API_VERSIONS, Address, Connection, frame

PER_S: Final = 5000
SOURCES: Final = 100
PAIRS: Final = 6
STRETCH_S: Final = 4.0
SETTLING_S: Final = 1.0
PAUSE_S: Final = 0.004
MOST: Final = 2.0
QUIET_MS: Final = 10.0
"""Where the p99 is more than that without a storm, other work has the processors."""
LIMIT_PER_S: Final = 100
REQUEST: Final = frame(API_VERSIONS, 0, 1, "there", b"")
TIMEOUT_S: Final = 60.0
DECOY: Final = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=1024) as listening:
    print("ready", flush=True)
    while True:
        listening.accept()[0].close()
"""


@pytest.mark.matrix
@pytest.mark.timeout(300)
@pytest.mark.parametrize("limit", ["by address", "of the listener"])
def test_a_storm_of_connects_leaves_the_latency_of_others_alone(limit: str) -> None:
    processors = sorted(os.sched_getaffinity(0))
    assert len(processors) > 1, "the storm and the proxy need a processor each"
    quotas = "quotas: []"
    if limit == "by address":
        quotas = "quotas: [{entity: {ip: {default: true}}, connection_creation_rate: 1}]"
    stormy = {"limits": {"connection_rate": LIMIT_PER_S}} if limit == "of the listener" else {}
    with _on({processors[0]}), KafkaCluster() as cluster:
        proxy = SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=quotas, listeners={"STORMY": stormy})
        with _on({processors[-1]}):
            proxy.start()
        try:
            with _decoy() as decoy, Connection(proxy.broker_addresses[0], TIMEOUT_S) as there:
                p99_ms = _take_turns(there, {"storm": proxy.listeners["STORMY"].address, "decoy": decoy})
            refused = proxy.metrics().value("sluice_frames_rejected_total", cause="connection_rate_per_ip")
            waited_s = proxy.metrics().value("sluice_accept_throttle_seconds_total", listener="STORMY")
        finally:
            proxy.close()
    storm_ms, calm_ms = median(p99_ms["storm"]), median(p99_ms["decoy"])
    told = {name: [round(each, 1) for each in found] for name, found in p99_ms.items()}
    print(
        f"storm {limit}: p99 {storm_ms:.2f} ms, without {calm_ms:.2f} ms: {storm_ms / calm_ms:.2f} x / {MOST}; {told}"
    )
    print(f"refused {refused:.0f}; accepting waited for {waited_s:.0f} s")
    assert refused > 0 or waited_s > 0, "a storm, and no breeze"
    if calm_ms > QUIET_MS:
        pytest.skip(
            f"this machine is too busy to tell: a p99 of {calm_ms:.0f} ms without the storm, {storm_ms:.0f} with"
        )
    assert storm_ms <= MOST * calm_ms


def _take_turns(there: Connection, targets: dict[str, Address]) -> dict[str, list[float]]:
    """The p99 of each stretch in ms, by where the storm went."""
    found: dict[str, list[float]] = {name: [] for name in targets}
    for _ in range(500):  # a broker that has just started is slow
        there.exchange(REQUEST)
    for _ in range(PAIRS):
        for name, target in targets.items():
            with Storm(target, PER_S, SETTLING_S + STRETCH_S + TIMEOUT_S, SOURCES):
                time.sleep(SETTLING_S)
                found[name].append(_p99_ms(there))
            time.sleep(SETTLING_S)  # who is held is let go
    return found


def _p99_ms(there: Connection) -> float:
    took_ms, end_s = [], time.monotonic() + STRETCH_S
    while (begin_s := time.monotonic()) < end_s:
        there.exchange(REQUEST)
        took_ms.append((time.monotonic() - begin_s) * 1000)
        time.sleep(PAUSE_S)
    return quantiles(took_ms, n=100)[-1]


@contextmanager
def _on(processors: set[int]) -> Iterator[None]:
    """Keep this thread to them, and every process that it starts, within the block."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _decoy() -> Iterator[Address]:
    """Somewhere else to connect to, where each connection is taken and closed."""
    address = Address(LOOPBACK, free_port())
    command = [sys.executable, "-c", DECOY, address.host, str(address.port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        with socket.create_connection((address.host, address.port), TIMEOUT_S):
            yield address
    finally:
        process.kill()
        process.communicate()
