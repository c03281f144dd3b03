"""Producers and consumers of four libraries at 1, 10 and 50 % of what they ask for: no more time-outs than at a broker.

The same load at the same time under the broker's own quota and through the proxy with the same one, with what each
library has by default. Counted is what a client reports: records that it gives up, errors of a consumer, connections
lost, and lines of its log that speak of a time-out.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final, Literal

import pytest

from tests.harness.clients.kinds import AIOKAFKA, CONFLUENT, JAVA_4, KAFKA_PYTHON, ClientKind
from tests.harness.clients.process import ClientProcess, Result
from tests.harness.clients.tasks import Consume, Produce
from tests.harness.kafka import KafkaCluster
from tests.harness.measure import SHORT_WINDOW
from tests.harness.reconnections import Reconnections
from tests.harness.sluice import SluiceProcess
from tests.integration.conftest import NODE_IDS, fresh_name
from tests.integration.filled import filled_topic

pytestmark = pytest.mark.matrix

DEMAND_BYTES_PER_S: Final = 1_000_000
DURATION_S: Final = 70.0
"""More than each request time-out: 30 s of Java and kafka-python, 40 s of aiokafka, 60 s of librdkafka's sockets."""
END_S: Final = 240.0
"""What a producer has in hand is sent or given up: within two minutes, by default."""
BATCH_BYTES: Final = 16_384
RECORD_BYTES: Final = 2_000
MORE: Final = 1.1
FEW: Final = 2
"""So many more may happen by chance: batches that a producer gives up are counted one by one."""
KINDS: Final = (KAFKA_PYTHON, AIOKAFKA, CONFLUENT, JAVA_4)
SIDES: Final = ("own", "sluice")
Work = Literal["produce", "consume"]
QUOTAS: Final[dict[Work, str]] = {"produce": "producer_byte_rate", "consume": "consumer_byte_rate"}
_TIME_OUTS: Final = ("timed out", "timeout", "time-out", "disconnect", "setup timeout")


@dataclass(frozen=True, slots=True)
class Case:
    """One client at one place."""

    side: str
    work: Work
    kind: ClientKind

    @property
    def client_id(self) -> str:
        return f"{self.side}-{self.work}-{self.kind.name}"


@dataclass(frozen=True, slots=True)
class Seen:
    """What one client reported."""

    result: Result
    lines: int
    reconnections: int

    @property
    def troubles(self) -> int:
        return len(self.result.errors) + self.lines + self.reconnections

    def __str__(self) -> str:
        return f"{self.result.records} records, {len(self.result.errors)}/{self.lines}/{self.reconnections}"


CASES: Final = tuple(Case(side, work, kind) for side in SIDES for work in QUOTAS for kind in KINDS)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("percent", [1, 10, 50])
def test_clients_time_out_no_more_than_under_broker_quota(cluster: KafkaCluster, percent: int) -> None:
    limit = DEMAND_BYTES_PER_S * percent // 100
    with _run(cluster, limit) as (clients, lost):
        time.sleep(DURATION_S)
        again = {name: len(ports) for name, ports in lost.seen().items()}
        seen = {case: _seen(client, again.get(case.client_id, 0)) for case, client in clients.items()}
    worse = {}
    for case, sluice in seen.items():
        if case.side == "sluice":
            own = seen[Case("own", case.work, case.kind)]
            print(f"{percent} %, {case.work} {case.kind.name}: {sluice} (broker {own}): errors/lines/reconnections")
            if sluice.troubles > MORE * own.troubles + FEW:
                worse[case.client_id] = f"{sluice} (broker {own}): {sluice.result.errors[:2]}"
    assert worse == {}


def _seen(client: ClientProcess, reconnections: int) -> Seen:
    result = client.result(END_S)
    lines = [line for line in client.stderr().splitlines() if _speaks_of_it(line)]
    return Seen(result, len(lines), reconnections)


def _speaks_of_it(line: str) -> bool:
    """Settings that Java lists have an equals sign; those of Java's own closing are of the end."""
    return any(words in line.lower() for words in _TIME_OUTS) and " = " not in line


@contextmanager
def _run(cluster: KafkaCluster, limit: int) -> Iterator[tuple[dict[Case, ClientProcess], Reconnections]]:
    quotas = "quotas:\n" + "".join(
        f"  - {{entity: {{client-id: {case.client_id}}}, {QUOTAS[case.work]}: {limit}}}\n"
        for case in CASES
        if case.side == "sluice"
    )
    filled = filled_topic(cluster, NODE_IDS[0], int(DEMAND_BYTES_PER_S * DURATION_S), batch_bytes=BATCH_BYTES)
    proxy = SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=quotas, settings=SHORT_WINDOW)
    with proxy as sluice, ExitStack() as stack:
        for work, quota in QUOTAS.items():
            own = {case.client_id: float(limit) for case in CASES if case.side == "own" and case.work == work}
            cluster.set_client_quotas(quota, own)
            stack.callback(cluster.set_client_quotas, quota, dict.fromkeys(own))
        bootstraps = {"own": cluster.bootstrap, "sluice": sluice.bootstrap}
        clients = {}
        for case in CASES:
            task = _task(cluster, case, bootstraps[case.side], filled)
            clients[case] = stack.enter_context(case.kind.run(task))
        lost = Reconnections({case.client_id: client.pid for case, client in clients.items()})
        yield clients, stack.enter_context(lost)


def _task(cluster: KafkaCluster, case: Case, bootstrap: str, filled: str) -> Produce | Consume:
    if case.work == "consume":
        return Consume(bootstrap=bootstrap, client_id=case.client_id, topic=filled, duration_s=DURATION_S)
    topic = fresh_name("timed")
    cluster.create_topic(topic, leader=NODE_IDS[0])
    return Produce(
        bootstrap=bootstrap,
        client_id=case.client_id,
        topic=topic,
        duration_s=DURATION_S,
        record_bytes=RECORD_BYTES,
        rate_bytes_per_s=DEMAND_BYTES_PER_S,
        batch_bytes=BATCH_BYTES,
        niceness=10,
    )
