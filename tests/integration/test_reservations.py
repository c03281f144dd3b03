"""Sixty Fetches that wait at a broker for records, and are renewed, beside one member of their cap that has a backlog.

Measured in any three seconds, behind two windows: the first allowance comes at once, and the window gives it back at
once. The same on a virtual clock is in tests/proxy/session/test_reservations.py.
"""

import threading
import time
from collections.abc import Callable

import pytest

from tests.harness.kafka import KafkaCluster
from tests.harness.load import fetch_request
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Address, Connection
from tests.integration.conftest import fresh_name
from tests.integration.filled import filled_topic
from tests.integration.test_shut_out import GIVE_UP_S, OTHER_HOST, Victim, renewed

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(240)]

LIMIT_BYTES_PER_S = 1_000_000
BATCH_BYTES = 16_000
ASKED_BYTES = 200_000
CROWD = 60
LIVES_S = 1.0
BEGIN_S, END_S = 24.0, 60.0
WINDOW_S = 3.0
LEAST = 0.5
WARM, IDLE = "tenant-warm", "tenant-idle"


def pollers(address: Address, request: bytes) -> Callable[[float], None]:
    """Half of the crowd: each sends its Fetch again as soon as it is answered."""

    def poll(until_s: float) -> None:
        with Connection(address, GIVE_UP_S) as connection:
            while time.monotonic() < until_s:
                connection.exchange(request)

    def run(until_s: float) -> None:
        threads = [threading.Thread(target=poll, args=(until_s,), daemon=True) for _ in range(CROWD // 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(until_s + GIVE_UP_S - time.monotonic())

    return run


def rates(victim: Victim, start_s: float) -> list[float]:
    """Its part of the limit in every three seconds."""
    found, begin_s = [], start_s + BEGIN_S
    while begin_s + WINDOW_S <= start_s + END_S:
        came = sum(size for at_s, size in victim.answers if begin_s <= at_s < begin_s + WINDOW_S)
        found.append(came / WINDOW_S / LIMIT_BYTES_PER_S)
        begin_s += 0.5
    return found


def test_renewed_long_polls_slow_no_member_of_their_cap(cluster: KafkaCluster) -> None:
    """The member had 8 s of nothing, twice in half a minute."""
    node_id = cluster.node_ids[0]
    empty = fresh_name("empty")
    cluster.create_topic(empty, leader=node_id)
    filled = filled_topic(cluster, node_id, 1_000_000, batch_bytes=BATCH_BYTES)
    cap = f"{{entity: {{client-id: {{prefix: tenant-}}}}, consumer_byte_rate: {LIMIT_BYTES_PER_S}}}"
    caps = f"quotas: []\ncaps: [{cap}]\n"
    with SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=caps) as sluice:
        address = sluice.broker_addresses[node_id]
        idle = fetch_request(empty, IDLE, ASKED_BYTES)
        victim = Victim(address, fetch_request(filled, WARM, ASKED_BYTES), LIMIT_BYTES_PER_S, OTHER_HOST)
        runs = [renewed(address, idle, CROWD // 2, LIVES_S), pollers(address, idle), victim.run]
        start_s = time.monotonic()
        threads = [threading.Thread(target=run, args=(start_s + END_S,), daemon=True) for run in runs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(start_s + END_S + GIVE_UP_S - time.monotonic())
    found = rates(victim, start_s)
    worst, mean = min(found), sum(found) / len(found)
    print(
        f"member beside {CROWD} long polls: {mean:.2f} of the cap, {worst:.2f} in its worst {WINDOW_S:.0f} s / {LEAST}"
    )
    assert worst >= LEAST
    assert mean >= 0.9
