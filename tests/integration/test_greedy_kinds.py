"""Ways around request_percentage, and around quotas by a client-id that is another with each request.

The measures are the proxy's own charge, and what each way was answered, against what one connection that asks steadily
is answered under the same quota.
"""

import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Final

import pytest

from tests.harness.greedy import (
    Attack,
    Counter,
    Outcome,
    Way,
    Ways,
    anew_each_time,
    attack,
    half_closed,
    impatient,
    pipelined,
    steadily,
)
from tests.harness.kafka import KafkaCluster
from tests.harness.load import fetch_request, produce_request
from tests.harness.measure import WINDOW_S
from tests.harness.sluice import Metrics, SluiceProcess
from tests.harness.wire import Address, frame
from tests.integration.conftest import fresh_name
from tests.integration.filled import filled_topic
from tests.integration.request_loads import heartbeat, metadata

pytestmark = [pytest.mark.slow, pytest.mark.alone]

MOST: Final = 1.15
"""Of the quota, by what was charged."""
LIMIT_PERCENT: Final = 2.0
LIMIT_BYTES_PER_S: Final = 1_000_000
FETCH_BYTES: Final = 1_000_000
PRODUCE_BYTES: Final = 200_000
BATCH_BYTES: Final = 65_536
FILL_BYTES: Final = 12_000_000
TAIL_S: Final = 2.0
MANY: Final = 20
LONG_WINDOWS: Final = 5
STEADY: Final = "steady"
STEADY_BEATS: Final = "beats"

_names = count(1)


def find_coordinator(client_id: str) -> bytes:
    """FindCoordinator v2 of a group: a request that waits for one window at the most."""
    return frame(10, 2, 1, client_id, b"\0\1g\0")


def list_offsets(client_id: str) -> bytes:
    """ListOffsets v3 of no topic."""
    return frame(2, 3, 1, client_id, struct.pack(">ibi", -1, 0, 0))


def describe_configs(client_id: str) -> bytes:
    """DescribeConfigs v2 of nothing."""
    return frame(32, 2, 1, client_id, struct.pack(">ib", 0, 0))


def all_apis(counter: Counter) -> None:
    """One API after the other on a connection of its own, the next life with them once more."""
    with counter.connection() as connection:
        for make in (metadata, list_offsets, describe_configs, find_coordinator, heartbeat):
            connection.exchange(make(counter.client_id))


def renamed(make: Callable[[str], bytes]) -> Way:
    """Another client-id with each request."""

    def under_other_names(counter: Counter) -> None:
        with counter.connection() as connection:
            while not counter.is_over:
                request = make(f"{counter.client_id}{next(_names)}")
                connection.exchange(request)
                if counter.is_produce:
                    counter.sent(len(request))

    return under_other_names


def renamed_anew(make: Callable[[str], bytes]) -> Way:
    """Another client-id and another connection with each request."""

    def once(counter: Counter) -> None:
        with counter.connection() as connection:
            connection.exchange(make(f"{counter.client_id}{next(_names)}"))
            if counter.is_produce:
                counter.sent(len(counter.request))

    return once


ASKING: Final[dict[str, Ways]] = {
    STEADY: [(steadily, 1)],
    "twenty": [(steadily, MANY)],
    "anew": [(anew_each_time, 4)],
    "half-closed": [(half_closed, 4)],
    "pipelined": [(pipelined, 1)],
    "impatient": [(impatient, 8)],
    "apis": [(all_apis, MANY)],
}
BEATING: Final[dict[str, Ways]] = {
    STEADY_BEATS: [(steadily, 1)],
    "beats-twenty": [(steadily, MANY)],
    "beats-anew": [(anew_each_time, MANY)],
    "beats-pipelined": [(pipelined, 4)],
}
FEW_PASS: Final = ("impatient", "half-closed")
"""Those that may get little, by their own doing."""


@dataclass(frozen=True, slots=True)
class Held:
    """What attacks came to, x the quota."""

    outcomes: Mapping[str, Outcome]
    charged: Mapping[str, float]

    def answered(self, name: str, windows: int) -> float:
        """Bytes of answers in a second, behind the first window; all of a kind are as long."""
        return self.outcomes[name].rate(windows) * self.outcomes[name].counter.limit


@pytest.fixture(scope="module")
def long(cluster: KafkaCluster) -> Held:
    return _ask(cluster, LONG_WINDOWS)


@pytest.mark.matrix
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", [*ASKING, *BEATING])
def test_greedy_client_stays_within_request_percentage(long: Held, name: str) -> None:
    _assert_held(long, name, LONG_WINDOWS)


@pytest.mark.matrix
@pytest.mark.timeout(400)
def test_another_client_id_with_each_request_gains_nothing(cluster: KafkaCluster) -> None:
    """Under a quota of the user, and under those of a prefix of client-ids."""
    node_id = cluster.node_ids[0]
    filled = filled_topic(cluster, node_id, FILL_BYTES, batch_bytes=BATCH_BYTES)
    written = fresh_name("renamed")
    cluster.create_topic(written, leader=node_id)
    of_user = f"quotas:\n  - {{entity: {{user: ANONYMOUS}}, request_percentage: {LIMIT_PERCENT}}}\n"
    of_prefix = "quotas:\n" + "".join(
        f"  - {{entity: {{client-id: {{prefix: {name}-}}}}, {quota}: {limit}}}\n"
        for name, quota, limit in (
            ("asking", "request_percentage", LIMIT_PERCENT),
            ("fetching", "consumer_byte_rate", LIMIT_BYTES_PER_S),
            ("producing", "producer_byte_rate", LIMIT_BYTES_PER_S),
        )
    )

    def fetching(client_id: str) -> bytes:
        return fetch_request(filled, client_id, FETCH_BYTES)

    def producing(client_id: str) -> bytes:
        return produce_request(written, client_id, PRODUCE_BYTES)

    with (
        SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=of_user) as by_user,
        SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=of_prefix) as by_prefix,
    ):
        user_at, prefix_at = by_user.broker_addresses[node_id], by_prefix.broker_addresses[node_id]
        attacks = [
            _attack("user-", user_at, metadata, [(renamed(metadata), 4), (renamed_anew(metadata), 4)]),
            _attack("asking-", prefix_at, metadata, [(renamed(metadata), 4), (renamed_anew(metadata), 4)]),
            _attack("fetching-", prefix_at, fetching, [(renamed(fetching), 4), (renamed_anew(fetching), 4)]),
            Attack(
                Counter("producing-", prefix_at, producing("producing-"), LIMIT_BYTES_PER_S, quantum=PRODUCE_BYTES),
                [(renamed(producing), 4), (renamed_anew(producing), 4)],
                log=cluster.log_folder(written),
            ),
        ]
        with _Charges({"user-": by_user, "asking-": by_prefix}, LONG_WINDOWS) as charges:
            outcomes = attack(attacks, _duration_s(LONG_WINDOWS))
    for name in ("user-", "asking-"):
        print(f"{name}: {charges.rate(name):.2f} x quota / {MOST}; {outcomes[name].counter.lives} lives")
    for name in ("fetching-", "producing-"):
        print(f"{name}: {outcomes[name].rate(LONG_WINDOWS):.2f} x quota / {outcomes[name].mark(LONG_WINDOWS):.2f}")
    assert all(0 < charges.rate(name) <= MOST for name in ("user-", "asking-"))
    for name in ("fetching-", "producing-"):
        assert 0 < outcomes[name].rate(LONG_WINDOWS) <= outcomes[name].mark(LONG_WINDOWS)


def _assert_held(held: Held, name: str, windows: int) -> None:
    one = STEADY_BEATS if name in BEATING else STEADY
    answered = held.answered(name, windows) / held.answered(one, windows)
    counter = held.outcomes[name].counter
    print(
        f"{name}: {held.charged[name]:.2f} x quota / {MOST}, {answered:.2f} x what one connection is answered / {MOST}"
    )
    print(f"{name}: {counter.lives} lives, {counter.lost} lost")
    assert min(held.charged[name], answered) <= MOST
    assert held.charged[name] > 0 or name in FEW_PASS


def _ask(cluster: KafkaCluster, windows: int) -> Held:
    names = [*ASKING, *BEATING]
    quotas = "quotas:\n" + "".join(
        f"  - {{entity: {{client-id: {name}}}, request_percentage: {LIMIT_PERCENT}}}\n" for name in names
    )
    with SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=quotas) as sluice:
        address = sluice.broker_addresses[cluster.node_ids[0]]
        attacks = [_attack(name, address, metadata, ways) for name, ways in ASKING.items()]
        attacks += [_attack(name, address, heartbeat, ways) for name, ways in BEATING.items()]
        with _Charges(dict.fromkeys(names, sluice), windows) as charges:
            outcomes = attack(attacks, _duration_s(windows))
    return Held(outcomes, {name: charges.rate(name) for name in names})


def _attack(name: str, address: Address, make: Callable[[str], bytes], ways: Ways) -> Attack:
    return Attack(Counter(name, address, make(name), LIMIT_BYTES_PER_S, quantum=BATCH_BYTES), ways)


def _duration_s(windows: int) -> float:
    return (1 + windows) * WINDOW_S + TAIL_S


class _Charges:
    """What is charged under request_percentage behind the first window, for whole windows, as a context manager."""

    def __init__(self, proxies: Mapping[str, SluiceProcess], windows: int) -> None:
        self._proxies = proxies
        self._windows = windows
        self._rates: dict[str, float] = {}
        self._thread = threading.Thread(target=self._measure, daemon=True)

    def rate(self, name: str) -> float:
        """X the quota; of a counter of many names that of all of them."""
        return self._rates[name]

    def _measure(self) -> None:
        time.sleep(WINDOW_S)
        before = {name: (self._used(name), time.monotonic()) for name in self._proxies}
        time.sleep(self._windows * WINDOW_S)
        for name, (used, at_s) in before.items():
            grown, seconds = self._used(name) - used, time.monotonic() - at_s
            self._rates[name] = grown / seconds / LIMIT_PERCENT

    def _used(self, name: str) -> float:
        metrics: Metrics = self._proxies[name].metrics()
        found = metrics.samples("sluice_quota_percent_seconds_total")
        own = [each.value for each in found if each.labels["client_id"] in {name, f"{name}*"}]
        return sum(own) if own else sum(each.value for each in found if not each.labels["client_id"])

    def __enter__(self) -> "_Charges":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(2 * WINDOW_S)
