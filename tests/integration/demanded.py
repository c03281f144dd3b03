"""A demand that can fall due again and again, before real brokers, under one quota file or another."""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import numpy as np
import pytest

from analysis.kernel.arrays import Floats
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.rate import Window
from tests.harness.clients.kinds import JAVA_4, KAFKA_PYTHON, ClientKind
from tests.harness.clients.tasks import Produce
from tests.harness.kafka import KafkaCluster
from tests.harness.load import Load, Shape, fetch_request, produce_request
from tests.harness.polling import wait_until
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Connection
from tests.integration.conftest import NODE_IDS, fresh_name
from tests.integration.paced import Client, lateness_s, run_paced
from tests.integration.recorded import Counter, Document, Recording, documents, recording

QUOTA: Final = 200_000.0
"""Bytes per second, of everybody."""
RECORDS_BYTES: Final = 24_000
"""Of a request: its share of the quota, 120 ms, is long against an answer's way, and short against the window."""
OUT_OF_REACH: Final = 1e12
MARGIN_S: Final = 0.05
"""Of the demand within the records' seconds, at both ends."""
LEAD_S: Final = 3
"""Before the demand begins: libraries send as soon as they are ready."""
ATTEMPTS: Final = 3
LATEST_S: Final = 0.5
FETCH_BYTES: Final = 20_000
QUOTA_OF: Final[Mapping[str, QuotaKind]] = {
    "produce": QuotaKind.PRODUCER_BYTE_RATE,
    "fetch": QuotaKind.CONSUMER_BYTE_RATE,
}


@dataclass(frozen=True, slots=True)
class Plan:
    """How long it goes, under which window."""

    window: Window
    seconds: int

    @property
    def window_s(self) -> float:
        return self.window.keep_ms / 1000


@dataclass(frozen=True, slots=True)
class Library:
    """A client library that is told to send at a pace, and knows nothing of this test."""

    client_id: str
    kind: ClientKind
    rate_bytes_per_s: int
    share: float
    """Of the time; it starts when it is ready, and has sent everything before the end."""


LIBRARIES: Final = (
    Library("library-over", JAVA_4, int(1.5 * QUOTA), 0.4),
    Library("library-under", KAFKA_PYTHON, int(0.6 * QUOTA), 0.6),
)


@dataclass(frozen=True, slots=True)
class Run:
    """What one run showed: clients' own counts, and what was recorded."""

    begin_s: float
    seconds: int
    limits: Floats
    loads: list[Load]
    usage_topic: str
    documents: list[Document]
    recording: Recording

    @property
    def muted_s(self) -> Floats:
        """For how long each counter was muted."""
        return np.asarray(self.recording.muted_s.sum(axis=0))


class Stage:
    """The cluster, its topics, and everybody's demand."""

    def __init__(self, cluster: KafkaCluster, plan: Plan) -> None:
        self.cluster = cluster
        self.plan = plan
        self._topics = {node_id: fresh_name("demanded") for node_id in NODE_IDS}
        for node_id, topic in self._topics.items():
            cluster.create_topic(topic, leader=node_id)
        self.clients = self._clients()
        self.counters = [Counter(each.client_id, each.broker, each.word) for each in self.clients]
        self.counters += [Counter(each.client_id, NODE_IDS[0], "produce") for each in LIBRARIES]

    def run(self, limits: Floats) -> Run:
        """Let the demand meet quotas, of ``counters``."""
        usage_topic = fresh_name("usage")
        settings = {
            "usage": {"topic": {"name": usage_topic, "partitions": 1}},
            "quotas": {"window": {"samples": self.plan.window.samples, "size": f"{self.plan.window.size_ms}ms"}},
        }
        at = self.cluster.bootstrap
        with SluiceProcess(at, NODE_IDS, quotas=self.quotas(limits), settings=settings) as sluice:
            begin_s = self._next_beat_s(sluice, usage_topic)
            with ExitStack() as stack:
                libraries = [stack.enter_context(each.kind.run(self._task(each, sluice))) for each in LIBRARIES]
                span_s = self.plan.seconds - 2 * MARGIN_S
                loads = run_paced(self.clients, sluice.broker_addresses, begin_s + MARGIN_S, span_s)
                for library in libraries:
                    assert library.result().errors == ()
            assert [error for load in loads for error in load.errors] == [], sluice.log_tail()
            assert sluice.stop() == 0  # ships the last record
        found = documents(at, usage_topic)
        recorded = recording(found, self.counters, begin_s - LEAD_S, self.plan.seconds + LEAD_S)
        return Run(begin_s, self.plan.seconds, limits, loads, usage_topic, found, recorded)

    def run_on_time(self, limits: Floats) -> Run:
        """Run again where the machine had no time: then another demand came than the one that fell due."""
        for _ in range(ATTEMPTS):
            run = self.run(limits)
            late_s = {
                client.client_id: lateness_s(client, load, run.begin_s + MARGIN_S) for client, load in self._unheld(run)
            }
            if max(late_s.values(), default=0.0) < LATEST_S:
                return run
        pytest.fail(f"this machine is too busy to send what falls due: it was late by {late_s} s")

    def _unheld(self, run: Run) -> Iterator[tuple[Client, Load]]:
        """Yield those that no throttle made late."""
        for client, load in zip(self.clients, run.loads, strict=True):
            if not any(answer.throttle_ms for answers in load.connections for answer in answers):
                yield client, load

    def quotas(self, limits: Floats) -> str:
        """Return the quota file."""
        lines = {
            f"  - {{entity: {{client-id: {counter.client_id}}}, {QUOTA_OF[counter.word].value}: {limit:.0f}}}\n"
            for counter, limit in zip(self.counters, limits.tolist(), strict=True)
        }
        return "quotas:\n" + "".join(sorted(lines))

    def limits(self, policy: Policy) -> Floats:
        """Return what a policy of client-ids has for the counters, out of reach where it has nothing."""
        return np.array(
            [
                policy.limits.get(Entity(client_id=counter.client_id), {}).get(QUOTA_OF[counter.word], OUT_OF_REACH)
                for counter in self.counters
            ]
        )

    def _next_beat_s(self, sluice: SluiceProcess, usage_topic: str) -> float:
        """Return a moment at which an interval of the records will begin: demand is cut as they are."""
        node_id = NODE_IDS[0]
        with Connection(sluice.broker_addresses[node_id]) as connection:
            connection.exchange(produce_request(self._topics[node_id], "beat", 1000))
        wait_until(lambda: sluice.metrics().value("sluice_usage_rows_total", outcome="shipped") > 0, "a record")
        first = documents(self.cluster.bootstrap, usage_topic)[0]
        beat_s = (first["time_ms"] + first["interval_ms"]) / 1000
        return float(beat_s + math.ceil(time.time() + 1 - beat_s))

    def _task(self, library: Library, sluice: SluiceProcess) -> Produce:
        return Produce(
            bootstrap=sluice.bootstrap,
            client_id=library.client_id,
            topic=self._topics[NODE_IDS[0]],
            # As many as fall due: until a moment it would be fewer in the run in which it started later.
            records=int(library.share * self.plan.seconds * library.rate_bytes_per_s / RECORDS_BYTES),
            rate_bytes_per_s=library.rate_bytes_per_s,
            record_bytes=RECORDS_BYTES,
            batch_bytes=RECORDS_BYTES + 1_000,
        )

    def _clients(self) -> list[Client]:
        """In units of the quota, and of the window: what fits into it passes at once."""
        second = np.arange(self.plan.seconds)
        uneven = np.random.default_rng(5).gamma(50, 1 / 50, len(second))
        even = np.ones(len(second))
        window_s = self.plan.window_s
        rare = second % (7 * window_s) == 2
        return [
            self._producer("under", 1, 0.5 * even),
            self._producer("near", 2, 0.85 * uneven),
            self._producer("over", 2, 1.5 * even),
            self._producer("over", 3, 1.3 * even, node=1),  # one client at two brokers: each has a count of its own
            self._producer("leaks", 5, 1.3 * uneven, node=1),
            self._producer("catches-up", 3, np.where(second < len(second) / 3, 1.8, 0.2), node=2),
            self._producer("bursts", 4, np.where(rare, 1.5 * window_s, 0.1)),
            self._producer("sips", 4, np.where(rare, 0.5 * window_s, 0.05), node=1),
            self._consumer("reads-over", 2, 1.4 * uneven),
            self._consumer("reads-under", 1, 0.6 * uneven),
        ]

    def _producer(self, client_id: str, connections: int, demand: Floats, *, node: int = 0) -> Client:
        node_id = NODE_IDS[node]
        request = produce_request(self._topics[node_id], client_id, RECORDS_BYTES)
        return Client(client_id, node_id, request, len(request) - 4, connections, tuple(demand * QUOTA))

    def _consumer(self, client_id: str, connections: int, demand: Floats) -> Client:
        """It reads the same again and again, from a topic that has enough of it."""
        node_id = NODE_IDS[2]
        request = fetch_request(self._topics[node_id], client_id, FETCH_BYTES)
        fill = Shape(self.cluster.direct(node_id), produce_request(self._topics[node_id], "fill", FETCH_BYTES // 2))
        with Connection(fill.address) as connection:
            for _ in range(4):
                connection.exchange(fill.request)
            charged_bytes = len(connection.exchange(request)) - 4
        return Client(client_id, node_id, request, charged_bytes, connections, tuple(demand * QUOTA))
