"""A client that Sluice and its broker both hold to the same quota: what it meets is the larger throttle, and no sum."""

import pytest

from tests.harness.admin import set_client_quotas
from tests.harness.kafka import KafkaCluster
from tests.harness.load import Shape, produce_request, run_loads
from tests.harness.polling import wait_until
from tests.harness.sluice import SluiceProcess
from tests.integration.conftest import SHORT_WINDOW_SAMPLES, fresh_name

pytestmark = [pytest.mark.integration, pytest.mark.matrix, pytest.mark.timeout(180)]

RATE = "producer_byte_rate"
LIMIT = 200_000
REQUEST_BYTES = 20_000
LOAD_S = 15.0
TOLERANCE = 0.15
WINDOW = {"samples": SHORT_WINDOW_SAMPLES, "size": "1s"}
"""As the brokers of these tests have it."""


def test_client_throttled_by_proxy_and_broker_gets_quota_once(cluster: KafkaCluster) -> None:
    """One client comes through the proxy, and another one, with a quota of its own, to the broker itself."""
    topic, node_id = fresh_name("both"), cluster.node_ids[0]
    by_both, by_broker = fresh_name("held-by-both"), fresh_name("held-by-the-broker")
    cluster.create_topic(topic, leader=node_id)
    settings = {"quotas": {"store": {"type": "cluster", "poll": "200ms"}, "window": WINDOW}}
    with SluiceProcess(cluster.bootstrap, cluster.node_ids, settings=settings) as sluice:
        set_client_quotas(cluster.direct(node_id), RATE, {by_both: LIMIT, by_broker: LIMIT})
        try:
            wait_until(lambda: sluice.metrics().value("sluice_quotas_configured"), "the quotas", equals=2)
            places = {by_both: sluice.broker_addresses[node_id], by_broker: cluster.direct(node_id)}
            shapes = [Shape(at, produce_request(topic, name, REQUEST_BYTES)) for name, at in places.items()]
            loads = run_loads(shapes, LOAD_S)
        finally:
            set_client_quotas(cluster.direct(node_id), RATE, {by_both: None, by_broker: None})
    assert [load.errors for load in loads] == [[], []]
    both, broker = (load.series() for load in loads)
    rates = [series.rate(series.end_s() - LOAD_S / 2, series.end_s()) for series in (both, broker)]
    throttles = [sum(answer.throttle_ms for answer in load.connections[0]) for load in loads]
    assert throttles[1] > 0
    assert rates[0] == pytest.approx(rates[1], rel=TOLERANCE)
    assert throttles[0] == pytest.approx(throttles[1], rel=0.5), "their sum would be twice as much"
