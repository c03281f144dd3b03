"""One client with many connections does not shut out another one of the same counter, in front of a real broker.

Every attack has a client-id of its own, and all run side by side; each victim has one connection.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from tests.harness.kafka import KafkaCluster
from tests.harness.load import fetch_request, produce_request
from tests.harness.measure import SHORT_SAMPLES, Series
from tests.harness.ports import LOOPBACK
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Address, Connection
from tests.integration.conftest import fresh_name
from tests.integration.filled import filled_topic

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

LIMIT_BYTES_PER_S = 50_000
FETCH_LIMIT_BYTES_PER_S = 200_000
"""So much that the answers without data are a small part of it."""
DEFAULT_SAMPLES = 11
MEASURED_S = {SHORT_SAMPLES: 18.0, DEFAULT_SAMPLES: 33.0}
"""By samples of the window, which are its seconds: whole windows, behind the first allowance."""
LEAST_BESIDE_IDLE = {SHORT_SAMPLES: 0.6, DEFAULT_SAMPLES: 0.85}
"""The least share of what one that fetches gets alone. Each renewed fetch may wait for its share of a window, and short
windows have few of them.
"""
OTHER_HOST = "127.0.0.2"
"""Clients that have not logged in are told apart by their addresses."""
MANY, CROWD = 20, 60
LARGE_BYTES, SMALL_BYTES = 20_000, 10_000
CLAIMED_BYTES = 40_000
BATCH_BYTES = 20_000
LEAST_BYTES = 5_000
"""Shorter answers bring no records."""
IMPATIENT_S, RENEWED_S, CLAIMED_AGAIN_S = 0.5, 1.0, 2.0
GIVE_UP_S = 60.0

GONE, POLLED, CLAIMED, ALONE, FETCHING_ALONE = "gone", "polled", "claimed", "alone", "fetching-alone"


@dataclass(slots=True)
class Victim:
    """One connection that sends its request again and again, and takes no notice of throttles."""

    address: Address
    request: bytes
    limit: int = LIMIT_BYTES_PER_S
    host: str = LOOPBACK
    answers: list[tuple[float, int]] = field(default_factory=list)

    def run(self, until_s: float) -> None:
        with suppress(OSError), Connection(self.address, GIVE_UP_S, source=self.host) as connection:
            while time.monotonic() < until_s:
                answer = connection.exchange(self.request)
                self.answers.append((time.monotonic(), max(len(answer), len(self.request)) - 4))

    def rate(self, begin_s: float, end_s: float, period_s: float) -> float:
        """A share of the quota, from the begin of a burst to the begin of another."""
        total = 0
        series = Series([(begin_s - period_s, 0)])
        for at_s, size in self.answers:
            series.append(at_s, total)
            total += size if size > LEAST_BYTES else 0
            series.append(at_s, total)
        series.append(max(end_s, series.end_s()), total)
        return series.rate_by_bursts(begin_s, end_s, period_s) / self.limit

    def longest_pause_s(self, begin_s: float, end_s: float) -> float:
        moments = [at_s for at_s, size in self.answers if begin_s <= at_s < end_s and size > LEAST_BYTES]
        return max(later - earlier for earlier, later in pairwise([begin_s, *moments, end_s]))


def renewed(address: Address, request: bytes, count: int, pause_s: float) -> Callable[[float], None]:
    """So many connections that send a request, read nothing, close after the pause, and come again."""

    def run(until_s: float) -> None:
        while time.monotonic() < until_s:
            with ExitStack() as stack:
                for _ in range(count):
                    with suppress(OSError):
                        stack.enter_context(Connection(address)).send(request)
                time.sleep(pause_s)

    return run


@dataclass(frozen=True, slots=True)
class Scene:
    victims: dict[str, Victim]
    samples: int
    begin_s: float
    """Behind the first allowance, and what follows from it."""

    @property
    def period_s(self) -> float:
        """From the begin of a burst to that of the next."""
        return self.samples + 1.0

    @property
    def end_s(self) -> float:
        return self.begin_s + MEASURED_S[self.samples]

    def rate(self, name: str) -> float:
        return self.victims[name].rate(self.begin_s, self.end_s, self.period_s)

    def longest_pause_s(self, name: str) -> float:
        return self.victims[name].longest_pause_s(self.begin_s, self.end_s)


@pytest.fixture(
    scope="module", params=[SHORT_SAMPLES, pytest.param(DEFAULT_SAMPLES, marks=pytest.mark.matrix)], ids="{} s".format
)
def scene(cluster: KafkaCluster, request: pytest.FixtureRequest) -> Iterator[Scene]:
    node_id = cluster.node_ids[0]
    topic, empty = fresh_name("shut-out"), fresh_name("empty")
    for name in (topic, empty):
        cluster.create_topic(name, leader=node_id)
    filled = filled_topic(cluster, node_id, 1_000_000, batch_bytes=BATCH_BYTES)
    kinds = {GONE: "producer", POLLED: "consumer", CLAIMED: "producer", ALONE: "producer", FETCHING_ALONE: "consumer"}
    limits = {"producer": LIMIT_BYTES_PER_S, "consumer": FETCH_LIMIT_BYTES_PER_S}
    quotas = "quotas:\n" + "".join(
        f"  - {{entity: {{client-id: {name}}}, {kind}_byte_rate: {limits[kind]}}}\n" for name, kind in kinds.items()
    )
    window = {"quotas": {"window": {"samples": request.param, "size": "1s"}}}
    with SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=quotas, settings=window) as sluice:
        address = sluice.broker_addresses[node_id]
        large = produce_request(topic, GONE, LARGE_BYTES)
        claim = produce_request(topic, CLAIMED, CLAIMED_BYTES)[:200]
        victims = {
            GONE: Victim(address, large),
            POLLED: Victim(address, fetch_request(filled, POLLED, BATCH_BYTES), FETCH_LIMIT_BYTES_PER_S, OTHER_HOST),
            CLAIMED: Victim(address, produce_request(topic, CLAIMED, SMALL_BYTES)),
            ALONE: Victim(address, produce_request(topic, ALONE, SMALL_BYTES)),
            FETCHING_ALONE: Victim(
                address, fetch_request(filled, FETCHING_ALONE, BATCH_BYTES), FETCH_LIMIT_BYTES_PER_S
            ),
        }
        runs = [
            renewed(address, large, MANY - 1, IMPATIENT_S),
            renewed(address, fetch_request(empty, POLLED, BATCH_BYTES), CROWD, RENEWED_S),
            renewed(address, claim, MANY, CLAIMED_AGAIN_S),
            *(victim.run for victim in victims.values()),
        ]
        made = Scene(victims, request.param, time.monotonic() + request.param + 1.0)
        threads = [threading.Thread(target=run, args=(made.end_s,), daemon=True) for run in runs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(made.end_s + GIVE_UP_S - time.monotonic())
        yield made


def test_requests_of_clients_that_have_gone_take_nothing_from_a_patient_one(scene: Scene) -> None:
    """Nineteen give up after half a second and come again: the patient one had 0.000 of the quota."""
    rate = scene.rate(GONE)
    print(f"patient beside {MANY - 1} that give up: {rate:.3f} of the quota / {1 / MANY:.3f} would be fair")
    assert rate >= 1 / MANY


def test_fetches_that_fetch_nothing_keep_nobody_from_fetching(scene: Scene) -> None:
    """Sixty connections, renewed: one that fetches beside them had nothing for 8 to 16 s at a time.

    Alone it has a pause of a window too, after what may be used at once.
    """
    rate, alone = scene.rate(POLLED), scene.rate(FETCHING_ALONE)
    pause_s, pause_alone_s = scene.longest_pause_s(POLLED), scene.longest_pause_s(FETCHING_ALONE)
    print(
        f"fetching beside {CROWD} that fetch nothing: {rate:.2f} of the quota / {alone:.2f} alone, "
        f"at the most {pause_s:.1f} s of nothing / {pause_alone_s:.1f}"
    )
    assert rate >= LEAST_BESIDE_IDLE[scene.samples] * min(alone, 1.0)
    assert pause_s < max(pause_alone_s, scene.period_s) + 2.0


def test_claims_that_fit_take_nothing_from_who_sends(scene: Scene) -> None:
    """Twenty that announce 40 kB and send nothing, again each two seconds: the victim had .71 of its quota."""
    rate, alone = scene.rate(CLAIMED), scene.rate(ALONE)
    print(f"producing beside {MANY} claims: {rate:.2f} of the quota / {alone:.2f} alone")
    assert rate >= 0.9 * alone
