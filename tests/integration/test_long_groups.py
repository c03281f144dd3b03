"""Groups of twenty and producers that get a hundredth of what they ask for, for minutes: nobody leaves a group for it.

All at the same time: each library with each protocol of groups, held by bytes and by the time of threads, beside
producers of four libraries. Ten minutes are longer than every time-out that a client has by default.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

import pytest

from tests.harness.clients.kinds import AIOKAFKA, CONFLUENT, JAVA_4, KAFKA_PYTHON, ClientKind
from tests.harness.clients.process import ClientProcess
from tests.harness.clients.tasks import Group, Produce
from tests.harness.groups import GroupRun
from tests.harness.kafka import KafkaCluster
from tests.harness.measure import WINDOW_S
from tests.harness.sluice import SluiceProcess
from tests.integration.conftest import NODE_IDS, fresh_name
from tests.integration.filled import filled_topic

pytestmark = pytest.mark.matrix

MEMBERS: Final = 20
DEMAND_BYTES_PER_S: Final = 5_000_000
LIMIT_BYTES_PER_S: Final = DEMAND_BYTES_PER_S // 100
LIMIT_PERCENT: Final = 3.0
"""Of one thread: 750 requests a second, which members that ask without a pause exceed on a busy machine too."""
MOST: Final = 1.1
IDLE_MINUTES: Final = 9
SETTLING_S: Final = 60.0
BATCH_BYTES: Final = 16_384
BY_TIME_BYTES: Final = 100_000
"""Of each partition: these groups have soon read everything, and ask on without a pause."""
END_S: Final = 150.0
"""What a producer has in hand at its end takes eighty seconds."""


@dataclass(frozen=True, slots=True)
class Held:
    """A group, and what holds it."""

    kind: ClientKind
    protocol: str
    quota: str
    limit: float

    @property
    def name(self) -> str:
        return f"{self.kind.name}-{self.protocol}-{self.quota}"

    @property
    def by_bytes(self) -> bool:
        return self.quota == "consumer_byte_rate"


GROUPS: Final = (
    *(
        Held(kind, protocol, "consumer_byte_rate", LIMIT_BYTES_PER_S)
        for kind in (CONFLUENT, JAVA_4)
        for protocol in ("classic", "consumer")
    ),
    Held(CONFLUENT, "classic", "request_percentage", LIMIT_PERCENT),
    Held(JAVA_4, "consumer", "request_percentage", LIMIT_PERCENT),
)
PRODUCERS: Final = (KAFKA_PYTHON, AIOKAFKA, CONFLUENT, JAVA_4)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("minutes", [1, 10])
def test_throttled_consumers_never_leave_their_group(cluster: KafkaCluster, minutes: int) -> None:
    with _run(cluster, SETTLING_S + 60.0 * minutes) as (clients, producers, sluice):
        timeout_s = SETTLING_S + 60.0 * minutes + END_S
        runs = {held: _of(held, clients[held], timeout_s) for held in GROUPS}
        results = {kind.name: client.result(timeout_s) for kind, client in producers.items()}
        windows = int((60.0 * minutes - 2.0) / WINDOW_S) - 1
        metrics = sluice.metrics()
        for held, run in runs.items():
            _print(held, run, windows)
            throttled_s = metrics.value("sluice_quota_throttle_seconds_total", kind=held.quota, client_id=held.name)
            print(f"{held.name}: held for {throttled_s:.0f} s in all")
            assert throttled_s > 0
        for name, result in results.items():
            print(f"produce-{name}: {result.records} records, {len(result.errors)} errors / 0")
    for held, run in runs.items():
        assert run.rebalances == 0, held.name
        # With a quota of time, a request of a librdkafka client that a busy machine made dear may time out: printed.
        assert not held.by_bytes or _without_idle(run, minutes) == [], held.name
        assert not held.by_bytes or run.rate(windows) <= MOST, held.name
    assert {name: result.errors for name, result in results.items() if result.errors} == {}


def _without_idle(run: GroupRun, minutes: int) -> list[str]:
    """Connections without traffic are closed after ten minutes, by Java itself after nine."""
    idle = 2 * MEMBERS if minutes >= IDLE_MINUTES else 0
    return [each for each in run.troubles if not (each.endswith(" disconnects") and int(each.split()[0]) <= idle)]


def _of(held: Held, client: ClientProcess, timeout_s: float) -> GroupRun:
    limit = LIMIT_BYTES_PER_S if held.by_bytes else 1
    return GroupRun.of(client, limit=limit, partitions=MEMBERS, members=MEMBERS, timeout_s=timeout_s)


def _print(held: Held, run: GroupRun, windows: int) -> None:
    rate = f"{run.rate(windows):.2f} x quota" if held.by_bytes else f"{run.rate(windows):.0f} bytes a second"
    heartbeat = run.closing.get("heartbeat_most_ms")
    waits = "" if heartbeat is None else f", longest heartbeat {heartbeat:.0f} ms"
    print(f"{held.name}: {rate}; rebalances {run.rebalances} / 0; troubles {run.troubles[:4]}{waits}")


Running = tuple[dict[Held, ClientProcess], dict[ClientKind, ClientProcess], SluiceProcess]


@contextmanager
def _run(cluster: KafkaCluster, duration_s: float) -> Iterator[Running]:
    with ExitStack() as stack:
        topics = {held: _topic(cluster, held, duration_s) for held in GROUPS}
        written = fresh_name("written")
        cluster.create_topic(written, partitions=len(PRODUCERS), leader=NODE_IDS[0])
        sluice = stack.enter_context(SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=_quotas(GROUPS)))
        clients, producers = {}, {}
        for held in GROUPS:
            task = Group(
                bootstrap=sluice.bootstrap,
                client_id=held.name,
                topic=topics[held],
                members=MEMBERS,
                duration_s=duration_s,
                group=fresh_name(held.name),
                protocol="consumer" if held.protocol == "consumer" else "classic",
                fetch_wait_ms=500 if held.by_bytes else 0,
            )
            clients[held] = stack.enter_context(held.kind.run(task))
        for number, kind in enumerate(PRODUCERS):
            producing = Produce(
                bootstrap=sluice.bootstrap,
                client_id=f"produce-{kind.name}",
                topic=written,
                partition=number,
                duration_s=duration_s,
                rate_bytes_per_s=DEMAND_BYTES_PER_S,
                niceness=19,
            )
            producers[kind] = stack.enter_context(kind.run(producing))
        yield clients, producers, sluice


def _topic(cluster: KafkaCluster, held: Held, duration_s: float) -> str:
    """With more than the group may read, were one member to read most of it."""
    each_bytes = int(4 * LIMIT_BYTES_PER_S * (duration_s / MEMBERS + WINDOW_S)) if held.by_bytes else BY_TIME_BYTES
    return filled_topic(cluster, NODE_IDS[0], each_bytes, batch_bytes=BATCH_BYTES, partitions=MEMBERS)


def _quotas(groups: Sequence[Held]) -> str:
    lines = [f"  - {{entity: {{client-id: {held.name}}}, {held.quota}: {held.limit:g}}}\n" for held in groups]
    lines += [
        f"  - {{entity: {{client-id: produce-{kind.name}}}, producer_byte_rate: {LIMIT_BYTES_PER_S}}}\n"
        for kind in PRODUCERS
    ]
    return "quotas:\n" + "".join(lines)
