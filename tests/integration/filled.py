"""Topics with something to fetch."""

from tests.harness.kafka import KafkaCluster
from tests.harness.load import Shape, produce_request, run_loads
from tests.harness.measure import log_bytes
from tests.integration.conftest import fresh_name

_STEP_S = 0.5


def filled_topic(cluster: KafkaCluster, node_id: int, each_bytes: int, *, batch_bytes: int, partitions: int = 1) -> str:
    """A topic led by that node, with at least so many bytes in each partition; batches hold one record each."""
    topic = fresh_name("filled")
    cluster.create_topic(topic, leader=node_id, partitions=partitions)
    folders = {number: cluster.log_folder(topic, number) for number in range(partitions)}
    while lacking := [number for number, folder in folders.items() if log_bytes(folder) < each_bytes]:
        requests = [produce_request(topic, "fill", batch_bytes, number) for number in lacking]
        loads = run_loads([Shape(cluster.direct(node_id), request) for request in requests], _STEP_S)
        assert [load.errors for load in loads if load.errors] == []
    return topic
