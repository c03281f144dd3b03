"""A broker leaves its cluster, and its address is given to a node of another one: no record goes there."""

from contextlib import ExitStack

import pytest

from tests.harness.clients.kinds import CONFLUENT, JAVA_4
from tests.harness.clients.process import ClientProcess
from tests.harness.clients.tasks import Produce
from tests.harness.kafka import KafkaCluster
from tests.harness.sluice import SluiceProcess

OTHER_CLUSTER_ID = "T3RoZXJDbHVzdGVyMDAwMQ"
TOPIC = "orders"
DURATION_S = 120.0  # an upper bound: the clients are asked to stop
WITHIN_S = 60.0


def _records(client: ClientProcess) -> int:
    return max((int(event["records"]) for event in client.of_kind("progress")), default=0)


def _refusals(sluice: SluiceProcess) -> float:
    return sluice.metrics().value("sluice_frames_rejected_total", side="broker", cause="other_cluster")


@pytest.mark.timeout(240)
def test_records_of_clients_do_not_go_to_another_cluster_at_a_broker_s_address() -> None:
    """400 of 400 records of two producers went there, and both saw success."""
    with ExitStack() as stack:
        first = stack.enter_context(KafkaCluster(node_ids=(1,)))
        first.create_topic(TOPIC)
        settings = {"cluster": {"refresh": "1s", "connect_timeout": "2s"}}
        sluice = stack.enter_context(SluiceProcess(first.bootstrap, (1,), settings=settings))
        produce = Produce(
            bootstrap=sluice.bootstrap,
            client_id="app",
            topic=TOPIC,
            duration_s=DURATION_S,
            rate_bytes_per_s=20_000,
            record_bytes=500,
        )
        clients = [stack.enter_context(kind.run(produce)) for kind in (CONFLUENT, JAVA_4)]
        for client in clients:
            client.wait_for(lambda client: _records(client) > 0, "records at the first cluster", WITHIN_S)
        first.stop_broker(1, crash=True)
        other = KafkaCluster(node_ids=(1,), cluster_id=OTHER_CLUSTER_ID, addresses_of=first)
        with other:
            other.create_topic(TOPIC)
            clients[0].wait_for(lambda _: _refusals(sluice) >= 3, "refusals of the other cluster", WITHIN_S)
            status, said = sluice.get("/readyz")
            assert status == 503
            assert f"belongs to cluster {OTHER_CLUSTER_ID}" in said
            assert "broker moved" not in sluice.output()
            assert sluice.metrics().value("sluice_broker_reachable", broker="1") == 0
            assert (other.log_folder(TOPIC) / "00000000000000000000.log").stat().st_size == 0
        first.start_broker(1)
        before = [_records(client) for client in clients]
        for client, records in zip(clients, before, strict=True):
            client.wait_for(lambda client, r=records: _records(client) > r, "records again", WITHIN_S)  # type: ignore[misc]
        for client in clients:
            client.ask_to_stop()
        assert sluice.is_ready()


@pytest.mark.timeout(120)
def test_bootstrap_list_of_two_clusters_is_told_by_check_and_doctor() -> None:
    with (
        KafkaCluster(node_ids=(1,)) as first,
        KafkaCluster(node_ids=(2,), cluster_id=OTHER_CLUSTER_ID) as other,
        SluiceProcess(first.bootstrap, (1, 2), settings={"cluster": {"refresh": "1s"}}) as sluice,
    ):
        both = sluice.config_path.with_name("both.yaml")
        text = sluice.config_path.read_text()
        both.write_text(text.replace(str(first.bootstrap), f"{first.bootstrap}\n  - {other.bootstrap}"))
        for command in (("check", "--brokers"), ("doctor",)):
            said = sluice.command(command[0], str(both), *command[1:])
            assert f"belongs to cluster {OTHER_CLUSTER_ID}" in said
