"""With the caps lifted: Fetch from version 16 on, and share groups, name brokers behind their records."""

from collections.abc import Iterator

import pytest

from tests.harness.clients.java import run_tool
from tests.harness.clients.kinds import JAVA_4
from tests.harness.guarded import Guarded, guarded_sluice
from tests.harness.kafka import KafkaCluster
from tests.integration import operations
from tests.integration.conftest import fresh_name

pytestmark = pytest.mark.integration

UNCAPPED = {"kafka": {"fetch_max_version": 18, "share_groups": True}}
RECORDS = 300


@pytest.fixture(scope="module")
def guarded(cluster: KafkaCluster) -> Iterator[Guarded]:
    with guarded_sluice(cluster, settings=UNCAPPED) as running:
        yield running


def test_consumer_with_newest_fetch_version_stays_on_the_proxy(guarded: Guarded) -> None:
    operations.acks_leader(guarded, JAVA_4)
    assert guarded.watch.escapes == []


@pytest.mark.slow
def test_share_group_consumes_through_the_proxy(guarded: Guarded) -> None:
    topic, group, bootstrap = fresh_name("shared"), fresh_name("share-group"), guarded.sluice.bootstrap
    guarded.cluster.create_topic(topic)
    properties = f"bootstrap.servers={bootstrap}"
    load = ["--topic", topic, "--num-records", str(RECORDS), "--record-size", "100", "--throughput", "-1"]
    run_tool("org.apache.kafka.tools.ProducerPerformance", *load, "--producer-props", properties)
    where = ["--bootstrap-server", bootstrap]
    earliest = ["--alter", "--add-config", "share.auto.offset.reset=earliest"]
    run_tool("kafka.admin.ConfigCommand", *where, "--entity-type", "groups", "--entity-name", group, *earliest)
    consumed = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
        *where,
        "--topic",
        topic,
        "--group",
        group,
        "--max-messages",
        str(RECORDS),
        "--timeout-ms",
        "30000",
    )
    assert [len(line) for line in consumed.splitlines()] == [100] * RECORDS
    assert guarded.sluice.metrics().value("sluice_requests_total", api="ShareFetch") > 0
    assert guarded.watch.escapes == []
