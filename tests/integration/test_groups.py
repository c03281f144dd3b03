"""Real groups that share one quota, beside the same group under the broker's own.

Nobody leaves, nobody times out, and the quota is used. A group's coordinator is asked on other connections than the
partitions, or on the same, as its broker happens to be.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from tests.harness.clients.kinds import CONFLUENT, JAVA_4, ClientKind
from tests.harness.clients.process import ClientProcess
from tests.harness.clients.tasks import Group
from tests.harness.groups import GroupRun
from tests.harness.kafka import KafkaCluster
from tests.harness.measure import SHORT_SAMPLES, WINDOW_S
from tests.harness.sluice import SluiceProcess
from tests.integration.conftest import NODE_IDS, fresh_name
from tests.integration.filled import filled_topic

pytestmark = [pytest.mark.slow]

LEAST, MOST = 0.93, 1.1
TOLD_MS = 50
BATCH_BYTES = 16_384
SIDES = ("own", "sluice")
LEADER = NODE_IDS[0]


@dataclass(frozen=True, slots=True)
class Case:
    """So many members of a client library; a protocol, or none for consumers that are no group."""

    kind: ClientKind
    members: int
    protocol: str
    limit: int
    batch_bytes: int = BATCH_BYTES

    @property
    def name(self) -> str:
        return f"{self.members}-{self.kind.name}-{self.protocol}-{self.limit // 1000}k-by-{self.batch_bytes}"

    @property
    def first_mark(self) -> float:
        """Of ten seconds, in seconds' worth: one allowance, which Kafka's window makes up to eleven, or what a shorter
        window lets through meanwhile.

        A broker sends a whole batch, however little is asked for: one for each member may be beyond it.
        """
        return WINDOW_S + self.members * self.batch_bytes / self.limit

    def task(self, bootstrap: str, side: str, topic: str, duration_s: float) -> Group:
        grouped = {"group": fresh_name(self.name), "protocol": self.protocol} if self.protocol != "alone" else {}
        return Group(
            bootstrap=bootstrap,
            client_id=f"{side}-{self.name}",
            topic=topic,
            members=self.members,
            duration_s=duration_s,
            **grouped,  # type: ignore[arg-type]  # the two of them are
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """Cases that run at the same time; `settling_s` is what joining may take."""

    cases: tuple[Case, ...]
    settling_s: float
    windows: int
    samples: int = 11
    """Of the window: its seconds."""
    least: float = LEAST

    @property
    def duration_s(self) -> float:
        return self.settling_s + (1 + self.windows) * self.samples + 2.0


def _both(kind: ClientKind, members: int, limit: int) -> tuple[Case, ...]:
    return tuple(Case(kind, members, protocol, limit) for protocol in ("classic", "consumer"))


SHORT = Plan(
    (Case(CONFLUENT, 5, "classic", 250_000),),
    settling_s=8.0,
    windows=6,
    samples=SHORT_SAMPLES,
    least=0.85,  # clients report once a second, of windows of three
)
LONG = {
    "5-librdkafka": Plan(_both(CONFLUENT, 5, 50_000), settling_s=15.0, windows=5),
    "5-java": Plan(_both(JAVA_4, 5, 50_000), settling_s=20.0, windows=5),
    "20-librdkafka": Plan(_both(CONFLUENT, 20, 50_000), settling_s=25.0, windows=5),
    "20-java": Plan(_both(JAVA_4, 20, 50_000), settling_s=40.0, windows=5),
}
CROWD = Plan(
    (Case(CONFLUENT, 60, "alone", 30_000, batch_bytes=4096), Case(CONFLUENT, 60, "alone", 30_000)),
    settling_s=20.0,
    windows=5,
)


@pytest.mark.integration
@pytest.mark.timeout(240)
def test_group_uses_its_quota(cluster: KafkaCluster) -> None:
    with _run(cluster, SHORT) as runs:
        _print(runs, SHORT.cases[0], SHORT.windows)
        _assert_whole(runs, SHORT.cases[0], SHORT)


@pytest.mark.matrix
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", LONG)
def test_every_group_uses_its_quota(cluster: KafkaCluster, name: str) -> None:
    plan = LONG[name]
    with _run(cluster, plan) as runs:
        for case in plan.cases:
            _print(runs, case, plan.windows)
        for case in plan.cases:
            _assert_whole(runs, case, plan)


@pytest.mark.matrix
@pytest.mark.timeout(400)
def test_crowd_is_held_to_its_quota(cluster: KafkaCluster) -> None:
    """Consumers of librdkafka, each with a partition of its own."""
    with _run(cluster, CROWD) as runs:
        for case in CROWD.cases:
            own, sluice = (runs[side, case.name] for side in SIDES)
            rates = [run.rate(CROWD.windows, settled_s=run.series.start_s()) for run in (sluice, own)]
            print(f"group {case.name}: {rates[0]:.2f} x quota / {MOST} (broker {rates[1]:.2f})")
            _print_more(case, own, sluice)
        for case in CROWD.cases:
            sluice = runs["sluice", case.name]
            assert sluice.rate(CROWD.windows, settled_s=sluice.series.start_s()) <= MOST
            assert sluice.first <= case.first_mark
            assert sluice.troubles == []


Runs = dict[tuple[str, str], GroupRun]


@contextmanager
def _run(cluster: KafkaCluster, plan: Plan) -> Iterator[Runs]:
    """All cases on both sides at the same time."""
    own = {f"own-{case.name}": float(case.limit) for case in plan.cases}
    settings = {"quotas": {"window": {"samples": plan.samples, "size": "1s"}}}
    with (
        SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=_quotas(plan.cases), settings=settings) as sluice,
        ExitStack() as stack,
    ):
        bootstraps = {"own": cluster.bootstrap, "sluice": sluice.bootstrap}
        topics = {case.name: _topic(cluster, case, plan) for case in plan.cases}
        cluster.set_client_quotas("consumer_byte_rate", own)
        stack.callback(cluster.set_client_quotas, "consumer_byte_rate", dict.fromkeys(own))
        clients: dict[tuple[str, str], ClientProcess] = {}
        for case in plan.cases:
            for side in SIDES:
                task = case.task(bootstraps[side], side, topics[case.name], plan.duration_s)
                clients[side, case.name] = stack.enter_context(case.kind.run(task))
        cases = {case.name: case for case in plan.cases}
        yield {
            (side, name): GroupRun.of(
                client,
                limit=cases[name].limit,
                partitions=cases[name].members,
                members=cases[name].members,
                timeout_s=plan.duration_s + 90,
                window_s=float(plan.samples),
            )
            for (side, name), client in clients.items()
        }


def _topic(cluster: KafkaCluster, case: Case, plan: Plan) -> str:
    """With more than the group would read at four times the quota, were each member given an allowance of its own."""
    each_bytes = int(4 * case.limit * (plan.duration_s / case.members + WINDOW_S))
    return filled_topic(cluster, LEADER, each_bytes, batch_bytes=case.batch_bytes, partitions=case.members)


def _assert_whole(runs: Runs, case: Case, plan: Plan) -> None:
    own, sluice = (runs[side, case.name] for side in SIDES)
    assert plan.least <= sluice.rate(plan.windows) <= MOST
    assert sluice.first <= case.first_mark
    assert sluice.rebalances == 0
    assert sluice.troubles == []
    assert sluice.told_ms[0] <= 2 * own.told_ms[0] + TOLD_MS


def _print(runs: Runs, case: Case, windows: int) -> None:
    own, sluice = (runs[side, case.name] for side in SIDES)
    rates = sluice.rate(windows), own.rate(windows)
    print(f"group {case.name}: {rates[0]:.2f} x quota / {LEAST}-{MOST} (broker {rates[1]:.2f})")
    print(f"group {case.name}, rebalances: {sluice.rebalances} / 0 (broker {own.rebalances})")
    _print_more(case, own, sluice)


def _print_more(case: Case, own: GroupRun, sluice: GroupRun) -> None:
    for run, side in ((sluice, "sluice"), (own, "broker")):
        told = "mean {:.0f} ms, most {:.0f} ms".format(*run.told_ms)
        parts = "{:.2f}-{:.2f}".format(*run.parts)
        print(f"group {case.name} at {side}: told {told}; parts {parts}")
        print(f"group {case.name} at {side}, first ten seconds: {run.first:.1f} s' worth / {case.first_mark:.1f}")
        print(f"group {case.name} at {side}: troubles {_summary(run.troubles)} / none")


def _summary(troubles: Sequence[str]) -> str:
    return f"{len(troubles)}: {'; '.join(sorted(set(troubles))[:4])}" if troubles else "none"


def _quotas(cases: Sequence[Case]) -> str:
    lines = [f"  - {{entity: {{client-id: sluice-{case.name}}}, consumer_byte_rate: {case.limit}}}\n" for case in cases]
    return "quotas:\n" + "".join(lines)
