"""Ways around a throttle, each alone and all at once on one counter: none gets more than the quota, from the first on.

Every attack has a client-id of its own, and all run side by side. What a counter was given is taken from what reached
the client, or from the log of the partition.
"""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.harness.greedy import (
    OLD_FETCH,
    Attack,
    Counter,
    Login,
    Outcome,
    Way,
    Ways,
    anew_each_time,
    attack,
    beside_heartbeats,
    half_closed,
    impatient,
    logging_in_again,
    pipelined,
    pipelined_beside_heartbeats,
    reconnecting_at_the_end,
    steadily,
    two_versions,
)
from tests.harness.kafka import KafkaCluster
from tests.harness.load import fetch_request, produce_request
from tests.harness.measure import WINDOW_S
from tests.harness.secure import REAUTH, REAUTH_MS, SecureCluster
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Address
from tests.integration.conftest import fresh_name
from tests.integration.filled import filled_topic
from tests.integration.identity import USERS

LIMIT_BYTES_PER_S = 1_000_000
BATCH_BYTES = 65_536
FETCH_BYTES = 10_000_000
FILL_BYTES = 12_000_000
PRODUCE_BYTES = 200_000
HUGE_BYTES = 20_000_000
MANY = 12
STAGGER_S = 0.5
LEAST = 0.5
"""Of the quota: what is less was no attack."""
USER = "alice"
SHORT_WINDOWS = 3
LONG_WINDOWS = 6
TAIL_S = 2.0

FETCHING: dict[str, Ways] = {
    "anew": [(anew_each_time, 4)],
    "half-closed": [(half_closed, 4)],
    "staggered": [(steadily, MANY)],
    "pipelined": [(pipelined, 1)],
    "heartbeats": [(pipelined_beside_heartbeats, 1)],
    "impatient": [(impatient, 8)],
}
PRODUCING: dict[str, Ways] = {
    "anew": [(anew_each_time, 4)],
    "half-closed": [(half_closed, 4)],
    "staggered": [(steadily, MANY)],
    "pipelined": [(pipelined, 1)],
    "heartbeats": [(beside_heartbeats, 2)],
}
LOGGING_IN: dict[str, Ways] = {
    "again": [(logging_in_again, MANY)],
    "reconnecting": [(reconnecting_at_the_end, MANY)],
    "mixed": [(logging_in_again, MANY // 2), (reconnecting_at_the_end, MANY // 2)],
}
HELD_ANYWAY = ("fetch-impatient", "fetch-half-closed", "fetch-mixed")
"""Those that may get nothing at all, by their own doing."""
NAMES = (
    *(f"fetch-{name}" for name in (*FETCHING, "versions", "mixed")),
    *(f"produce-{name}" for name in (*PRODUCING, "mixed")),
    *(f"login-{api}-{name}" for api in ("fetch", "produce") for name in LOGGING_IN),
)
HUGE = "produce-huge"


class Stage:
    """A cluster, the proxy in front of it, and topics: where attacks are made."""

    def __init__(self, cluster: KafkaCluster, address: Address, node_id: int, login: Login | None = None) -> None:
        self.cluster = cluster
        self.address = address
        self.node_id = node_id
        self.login = login
        self.filled = filled_topic(cluster, node_id, FILL_BYTES, batch_bytes=BATCH_BYTES)

    def fetching(self, name: str, ways: Ways, stagger_s: float = 0.0) -> Attack:
        request = fetch_request(self.filled, name, FETCH_BYTES)
        counter = Counter(name, self.address, request, LIMIT_BYTES_PER_S, quantum=BATCH_BYTES, login=self.login)
        return Attack(counter, ways, stagger_s)

    def producing(self, name: str, ways: Ways, stagger_s: float = 0.0, size: int = PRODUCE_BYTES) -> Attack:
        topic = fresh_name(name)
        largest = {"max.message.bytes": str(2 * HUGE_BYTES)}
        self.cluster.create_topic(topic, leader=self.node_id, **largest)  # type: ignore[arg-type]  # dotted names
        request = produce_request(topic, name, size)
        counter = Counter(name, self.address, request, LIMIT_BYTES_PER_S, quantum=size, login=self.login)
        return Attack(counter, ways, stagger_s, self.cluster.log_folder(topic))

    def all_of(self, old_version: int = OLD_FETCH) -> list[Attack]:
        """Without those that log in."""
        versions = two_versions(fetch_request(self.filled, "fetch-versions", FETCH_BYTES, old_version))
        mixed_versions = two_versions(fetch_request(self.filled, "fetch-mixed", FETCH_BYTES, old_version))
        fetch_mix = [*_mixed(FETCHING), (mixed_versions, 1)]
        return [
            *(self.fetching(f"fetch-{name}", ways, STAGGER_S) for name, ways in FETCHING.items()),
            self.fetching("fetch-versions", [(versions, 1)]),
            self.fetching("fetch-mixed", fetch_mix),
            *(self.producing(f"produce-{name}", ways, STAGGER_S) for name, ways in PRODUCING.items()),
            self.producing("produce-mixed", _mixed(PRODUCING)),
        ]

    def all_that_log_in(self) -> list[Attack]:
        stagger_s = REAUTH_MS / 1000 / MANY
        return [
            make(f"login-{api}-{name}", ways, stagger_s)
            for api, make in (("fetch", self.fetching), ("produce", self.producing))
            for name, ways in LOGGING_IN.items()
        ]


@pytest.fixture(scope="module")
def short(cluster: KafkaCluster, secure_cluster: SecureCluster) -> Iterator[dict[str, Outcome]]:
    with ExitStack() as stack:
        attacks = [*_open(cluster, stack).all_of(), *_secure(secure_cluster, stack).all_that_log_in()]
        yield attack(attacks, _duration_s(SHORT_WINDOWS))


@pytest.fixture(scope="module")
def long(cluster: KafkaCluster, secure_cluster: SecureCluster) -> Iterator[dict[str, Outcome]]:
    with ExitStack() as stack:
        stage = _open(cluster, stack)
        huge = stage.producing(HUGE, [(beside_heartbeats, 1)], size=HUGE_BYTES)
        attacks = [*stage.all_of(), huge, *_secure(secure_cluster, stack).all_that_log_in()]
        yield attack(attacks, _duration_s(LONG_WINDOWS))


@pytest.fixture(scope="module")
def old(old_cluster: KafkaCluster) -> Iterator[dict[str, Outcome]]:
    """Fetch v3, which brokers of today no longer know, and answers that are held back."""
    with ExitStack() as stack:
        stage = _open(old_cluster, stack, {"quotas": {"response": "delay"}})
        yield attack(stage.all_of(old_version=3), _duration_s(LONG_WINDOWS))


@pytest.mark.integration
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", NAMES)
def test_greedy_client_stays_within_quota(short: dict[str, Outcome], name: str) -> None:
    _assert_held(short[name], SHORT_WINDOWS)


@pytest.mark.matrix
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", [*NAMES, HUGE])
def test_greedy_client_stays_within_quota_in_the_long_run(long: dict[str, Outcome], name: str) -> None:
    _assert_held(long[name], LONG_WINDOWS)


@pytest.mark.matrix
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("login")])
def test_greedy_client_stays_within_quota_when_responses_are_delayed(old: dict[str, Outcome], name: str) -> None:
    _assert_held(old[name], LONG_WINDOWS)


def _assert_held(outcome: Outcome, windows: int) -> None:
    name, rate, first = outcome.counter.name, outcome.rate(windows), outcome.first()
    print(f"{name}: {rate:.2f} x quota / {outcome.mark(windows):.2f}")
    print(f"{name}, first ten seconds: {first:.1f} s' worth / {outcome.first_mark():.1f}")
    print(f"{name}: {outcome.counter.lives} lives, {outcome.counter.lost} lost")
    unused_s = max(WINDOW_S - first, 0.0)  # of the first burst: it may be used later
    assert rate <= outcome.mark(windows) + unused_s / (windows * WINDOW_S)
    assert first <= outcome.first_mark()
    assert rate >= LEAST or name in HELD_ANYWAY


def _open(cluster: KafkaCluster, stack: ExitStack, settings: dict[str, object] | None = None) -> Stage:
    node_id = cluster.node_ids[0]
    names = [name for name in (*NAMES, HUGE) if not name.startswith("login")]
    sluice = SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=_quotas(names), settings=settings)
    return Stage(cluster, stack.enter_context(sluice).broker_addresses[node_id], node_id)


def _secure(secure: SecureCluster, stack: ExitStack) -> Stage:
    cluster, node_id = secure.cluster, secure.cluster.node_ids[0]
    listeners = {REAUTH: {"authentication": "sasl", "cluster": secure.route(REAUTH, guarded=False)}}
    quotas = _quotas([name for name in NAMES if name.startswith("login")])
    sluice = SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=quotas, listeners=listeners)
    address = stack.enter_context(sluice).listeners[REAUTH].brokers[node_id]
    return Stage(cluster, address, node_id, Login(USER, USERS[USER]))


def _mixed(ways: dict[str, Ways]) -> list[tuple[Way, int]]:
    return [each for group in ways.values() for each in group]


def _duration_s(windows: int) -> float:
    return (1 + windows) * WINDOW_S + TAIL_S


def _quotas(names: list[str]) -> str:
    def line(name: str) -> str:
        kind = "producer" if "produce" in name else "consumer"
        return f"  - {{entity: {{client-id: {name}}}, {kind}_byte_rate: {LIMIT_BYTES_PER_S}}}\n"

    return "quotas:\n" + "".join(map(line, names))
