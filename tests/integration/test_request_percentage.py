"""request_percentage in front of real brokers: who is held and who is not, and that the figures shown are one."""

import time
from collections.abc import Iterator

import pytest

from tests.harness.kafka import KafkaCluster
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Connection
from tests.integration.request_loads import Storm, heartbeat, metadata

pytestmark = pytest.mark.timeout(300)

LIMIT = 1.0
"""Percent of one thread: no machine sends as little as that when it sends all it can."""
WINDOW_S = 3.0
SHORT_WINDOW = {"quotas": {"window": {"samples": 3, "size": "1s"}}}
QUIET_REQUESTS = 5
MOST_REQUESTS = 2000
"""Of what two windows allow, where one takes 100 µs at the least, twice as many; without a quota it is far more."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster() as running:
        for number in range(30):
            running.create_topic(f"topic-{number}", partitions=2)
        with Connection(running.direct(0), 30.0) as connection:
            for _ in range(500):  # a broker that has just started takes a hundred times as long
                connection.exchange(metadata("warm"))
        yield running


def percent_seconds(sluice: SluiceProcess, client_id: str) -> float:
    return sluice.metrics().value("sluice_quota_percent_seconds_total", client_id=client_id)


@pytest.mark.integration
def test_a_storm_is_held_and_others_are_not(cluster: KafkaCluster) -> None:
    """Twenty connections of one client-id that ask for all metadata, beside one that asks now and then."""
    quotas = (
        "quotas:\n"
        f"  - {{entity: {{client-id: storm}}, request_percentage: {LIMIT}}}\n"
        f"  - {{entity: {{client-id: beats}}, request_percentage: {LIMIT}}}\n"
        "  - {entity: {client-id: {default: true}}, request_percentage: 50}\n"
    )
    with SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=quotas, settings=SHORT_WINDOW) as sluice:
        address = sluice.broker_addresses[0]
        storm = Storm(address, metadata("storm"), connections=20)
        beats = Storm(address, heartbeat("beats"), pause_s=0.2)
        quiet = Storm(address, metadata("quiet"), pause_s=0.25)
        threads = [thread for each in (storm, beats, quiet) for thread in each.start(2 * WINDOW_S)]
        time.sleep(WINDOW_S)
        before, before_s = percent_seconds(sluice, "storm"), time.monotonic()
        time.sleep(WINDOW_S)
        after, after_s = percent_seconds(sluice, "storm"), time.monotonic()
        sizes = sluice.metrics()
        for thread in threads:
            thread.join(60.0)
        rate = (after - before) / (after_s - before_s)
        print(f"storm: {rate:.2f} % of {LIMIT} %, {len(storm.told)} requests")
        assert storm.errors == beats.errors == quiet.errors == []
        assert rate > 0
        assert len(storm.told) <= MOST_REQUESTS
        assert 0 < max(throttle_ms for _, throttle_ms in storm.told) <= 1000
        assert [throttle_ms for _, throttle_ms in quiet.told if throttle_ms] == []
        assert len(quiet.told) >= QUIET_REQUESTS
        assert sizes.value("sluice_quota_throttle_seconds_total", kind="request_percentage", client_id="storm") > 0
