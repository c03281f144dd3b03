"""Every client, every operation, through a proxy whose brokers nobody else may reach."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.harness.broker import GUARD_HOST
from tests.harness.clients.java import run_tool
from tests.harness.clients.kinds import AIOKAFKA, CONFLUENT, JAVA_1, JAVA_4, KAFKA_PYTHON, KINDS, ClientKind
from tests.harness.clients.process import ClientError
from tests.harness.clients.tasks import Administer
from tests.harness.guarded import Guarded, guarded_sluice
from tests.harness.kafka import KafkaCluster
from tests.harness.polling import wait_until
from tests.integration import operations
from tests.integration.conftest import fresh_name
from tests.integration.operations import SLOW_BYTES_PER_S, Operation, slow

# Two seconds' worth instead of ten may go at once: a throttle shows after little data.
SHORT_WINDOW = {"quotas": {"window": {"samples": 3, "size": "1s"}}}
ALL = (
    operations.acks_none,
    operations.acks_leader,
    operations.acks_all,
    operations.idempotent,
    operations.transactional,
    operations.under_quota,
    operations.administration,
    operations.classic_rebalance,
)
ONE_OF_EACH = (AIOKAFKA, CONFLUENT, JAVA_1, JAVA_4, KAFKA_PYTHON)
"""Of Java the oldest and the newest."""
# `make test` runs these; what it leaves out, and all of it on the old broker, is the matrix.
SHORT = {
    *((operations.under_quota, kind) for kind in ONE_OF_EACH),
    *((operations.transactional, kind) for kind in ONE_OF_EACH),
    *((operations.administration, kind) for kind in ONE_OF_EACH),
    (operations.idempotent, KAFKA_PYTHON),
    (operations.acks_none, CONFLUENT),
    (operations.acks_all, JAVA_4),
    (operations.classic_rebalance, KAFKA_PYTHON),
    (operations.classic_rebalance, CONFLUENT),
}


def _cases(*, old: bool) -> list[object]:
    def case(operation: Operation, kind: ClientKind) -> object:
        short = not old and (operation, kind) in SHORT
        mark = pytest.mark.integration if short else pytest.mark.matrix
        return pytest.param(operation, kind, marks=mark, id=f"{kind.name}-{operation.__name__}")

    return [case(operation, kind) for kind in KINDS for operation in ALL]


@pytest.fixture(scope="module")
def guarded(cluster: KafkaCluster) -> Iterator[Guarded]:
    with guarded_sluice(cluster, quotas=_quotas(), settings=SHORT_WINDOW) as running:
        yield running


@pytest.fixture(scope="module")
def old_guarded(old_cluster: KafkaCluster) -> Iterator[Guarded]:
    with guarded_sluice(old_cluster, quotas=_quotas(), settings=SHORT_WINDOW) as running:
        yield running


@pytest.fixture(scope="module")
def slow_clients(guarded: Guarded) -> Iterator[dict[ClientKind, Future[None]]]:
    """Clients that wait for their quotas, all at the same time."""
    with ThreadPoolExecutor(len(ONE_OF_EACH)) as threads:
        yield {kind: threads.submit(operations.under_quota, guarded, kind) for kind in ONE_OF_EACH}


@pytest.mark.parametrize(("operation", "kind"), _cases(old=False))
def test_every_operation_on_newest_broker_stays_on_the_proxy(
    guarded: Guarded, slow_clients: dict[ClientKind, Future[None]], operation: Operation, kind: ClientKind
) -> None:
    if operation is operations.under_quota and kind in slow_clients:
        slow_clients[kind].result()
    else:
        operation(guarded, kind)
    assert guarded.watch.escapes == []


@pytest.mark.parametrize(("operation", "kind"), _cases(old=True))
def test_every_operation_on_old_broker_stays_on_the_proxy(
    old_guarded: Guarded, operation: Operation, kind: ClientKind
) -> None:
    operation(old_guarded, kind)
    assert old_guarded.watch.escapes == []


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.has_consumer_protocol], ids=lambda kind: kind.name)
def test_consumer_protocol_group_rebalances_through_the_proxy(guarded: Guarded, kind: ClientKind) -> None:
    operations.consumer_protocol_rebalance(guarded, kind)
    assert guarded.watch.escapes == []


@pytest.mark.integration
def test_kafka_topics_perf_test_and_console_consumer_work_through_proxy(guarded: Guarded) -> None:
    topic, bootstrap = fresh_name("tools"), guarded.sluice.bootstrap
    command = "org.apache.kafka.tools"
    run_tool(f"{command}.TopicCommand", "--bootstrap-server", bootstrap, "--create", "--topic", topic)
    where = ["--bootstrap-server", bootstrap, "--topic", topic]
    described = run_tool(f"{command}.TopicCommand", "--describe", *where)
    assert f"Topic: {topic}" in described
    properties = f"bootstrap.servers={bootstrap}"
    load = ["--topic", topic, "--num-records", "500", "--record-size", "200", "--throughput", "-1"]
    performed = run_tool(f"{command}.ProducerPerformance", *load, "--producer-props", properties)
    assert "500 records sent" in performed
    consumed = run_tool(f"{command}.consumer.ConsoleConsumer", *where, "--from-beginning", "--max-messages", "500")
    assert [len(line) for line in consumed.splitlines()] == [200] * 500
    assert guarded.watch.escapes == []


@pytest.mark.integration
def test_watch_sees_a_client_that_escapes(guarded: Guarded) -> None:
    """What all the assertions above rest on: a client that is sent to a broker's own address is caught.

    The proxy asks its brokers whenever it likes, so what counts is who came, not how many.
    """
    watch, before = guarded.watch, len(guarded.watch.escapes)

    def caught() -> set[int]:
        return {escape.pid for escape in watch.escapes[before:] if "confluent_client" in escape.command}

    task = Administer(bootstrap=guarded.cluster.guarded_bootstrap, client_id="escaper", topic="never")
    with CONFLUENT.run(task) as client:
        wait_until(lambda: len(caught()) > 0, "the client caught", timeout_s=30.0)
        with pytest.raises(ClientError):
            client.event("admin", timeout_s=1.0)
    assert not caught() & watch.admitted.keys()
    assert watch.admitted.keys() == {guarded.sluice.pid}
    del watch.escapes[before:]
    assert GUARD_HOST in guarded.cluster.guarded_bootstrap


def _quotas() -> str:
    rates = f"producer_byte_rate: {SLOW_BYTES_PER_S}, consumer_byte_rate: {SLOW_BYTES_PER_S}"
    entries = [f"  - {{entity: {{client-id: {slow(kind)}}}, {rates}}}\n" for kind in KINDS]
    return "quotas:\n" + "".join(entries)
