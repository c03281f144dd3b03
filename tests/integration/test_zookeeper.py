"""A proxy whose quotas are in ZooKeeper: in force at once, and still there when ZooKeeper is not."""

import json
import logging
import socket
from contextlib import closing

import pytest
from kazoo.client import KazooClient

from tests.harness.kafka import KafkaCluster
from tests.harness.load import Shape, produce_request, run_loads
from tests.harness.polling import wait_until
from tests.harness.process import ProcessError
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Address
from tests.harness.zookeeper import ZooKeeper
from tests.integration.conftest import fresh_name

LIMIT = 100_000
REQUEST_BYTES = 20_000


def write(client: KazooClient, path: str, **quotas: str) -> None:
    """As a broker writes it."""
    client.ensure_path(f"/config/{path}")
    client.set(f"/config/{path}", json.dumps({"version": 1, "config": quotas}).encode())
    notification = json.dumps({"version": 2, "entity_path": path}).encode()
    client.create("/config/changes/config_change_", notification, sequence=True)


def takes_clients(address: Address) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex((address.host, address.port)) == 0


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_quotas_are_in_force_at_once_and_stay_while_zookeeper_is_away(cluster: KafkaCluster) -> None:
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    topic = fresh_name("zookeeper")
    cluster.create_topic(topic, leader=cluster.node_ids[0])
    with ZooKeeper() as zookeeper:
        store = {"type": "zookeeper", "connect": zookeeper.connect, "session_timeout": "2s"}
        client = KazooClient(hosts=zookeeper.connect, timeout=5.0, connection_retry={"max_tries": -1})
        client.start()
        sluice = SluiceProcess(cluster.bootstrap, cluster.node_ids, settings={"quotas": {"store": store}})
        with pytest.raises(ProcessError, match="there is no Kafka tree"):
            sluice.start()
        client.ensure_path("/config/changes")
        late = SluiceProcess(cluster.bootstrap, cluster.node_ids, settings={"quotas": {"store": store}})
        with (
            closing(late),
            SluiceProcess(cluster.bootstrap, cluster.node_ids, settings={"quotas": {"store": store}}) as sluice,
        ):
            assert sluice.metrics().value("sluice_quotas_configured") == 0
            write(client, "clients/app", producer_byte_rate=str(LIMIT))
            wait_until(lambda: sluice.metrics().value("sluice_quotas_configured"), "the quota", equals=1)
            shape = Shape(sluice.broker_addresses[cluster.node_ids[0]], produce_request(topic, "app", REQUEST_BYTES))

            def is_held() -> bool:
                before = sluice.metrics().value("sluice_quota_throttled_responses_total", client_id="app")
                (load,) = run_loads([shape], 3.0)
                after = sluice.metrics().value("sluice_quota_throttled_responses_total", client_id="app")
                assert load.errors == []
                return after > before

            assert is_held()
            zookeeper.crash()
            late.launch()  # into the outage
            assert is_held()
            wait_until(
                lambda: sluice.metrics().value("sluice_quota_staleness_seconds") > 0, "it is told", timeout_s=20.0
            )
            wait_until(lambda: "quotas: zookeeper://" in late.get("/readyz")[1], "it says why", timeout_s=60.0)
            assert not takes_clients(late.address), "who was not there before accepts nobody without quotas"
            zookeeper.start()
            late.wait_ready()
            assert late.metrics().value("sluice_quotas_configured") == 1
            wait_until(lambda: client.connected, "the test's own client is back", timeout_s=20.0)
            wait_until(
                lambda: sluice.metrics().value("sluice_quota_staleness_seconds"), "it is read", timeout_s=20.0, equals=0
            )
            write(client, "clients/other", producer_byte_rate="1")
            wait_until(lambda: sluice.metrics().value("sluice_quotas_configured"), "another one", equals=2)
            failed = sluice.logged("quotas not loaded")
            assert len(failed) == len({event["problem"] for event in failed}), "said once, however often it is tried"
        client.stop()
        client.close()
