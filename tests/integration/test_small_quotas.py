"""Unchanged clients under quotas that are small against what they send at once, beside the broker's own quota.

Transactions, whose requests share a connection; messages larger than all that a quota allows at once; batches of ten
seconds' worth from a client that knows nothing of throttles.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import pytest

from tests.harness.clients.kinds import CONFLUENT, JAVA_1, JAVA_4, KAFKA_PYTHON, ClientKind
from tests.harness.clients.process import ClientProcess
from tests.harness.clients.tasks import Consume, Produce
from tests.harness.kafka import KafkaCluster
from tests.harness.load import Load, Shape, fetch_request, produce_request, start_loads
from tests.harness.measure import LEAD_S, WINDOW_S, LogMeter, Series
from tests.harness.secure import SecureCluster
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Address
from tests.integration.conftest import fresh_name
from tests.integration.filled import filled_topic

SIDES = ("own", "sluice")
MOST = 1.1
LEAST = 0.85
"""Of a quota that is to be used."""
STARTING_S = 4.0
AT_ONCE_S = 10
"""Of its quota a client may use so many seconds' worth at once: ten of eleven samples."""
LIMIT_OF_TRANSACTIONS = 50_000
LIMIT_OF_ONE_MESSAGE = 10_000
LIMIT_OF_OLD = 40_000
MESSAGE_BYTES = 200_000
OLD_BATCH_BYTES = 400_000
RECORD_BYTES = 4_000
PARTITIONS = 24
PRODUCER, CONSUMER = "producer_byte_rate", "consumer_byte_rate"
FEW = 10


@dataclass(frozen=True, slots=True)
class Place:
    """Where one side of a case runs: the broker itself or the proxy."""

    cluster: KafkaCluster
    bootstrap: str
    address: Address
    client_id: str
    topic: str
    duration_s: float


@dataclass(slots=True)
class Run:
    """One client at work."""

    client: ClientProcess | None = None
    load: Load = field(default_factory=Load)
    meter: LogMeter | None = None

    @property
    def series(self) -> Series:
        if self.meter is not None:
            return self.meter.series
        if self.client is None:
            return self.load.series()
        progress = self.client.of_kind("progress")
        begin_s = progress[0]["at_s"] - 0.001 if progress else 0.0
        return Series([(begin_s, 0), *((event["at_s"], event["bytes"]) for event in progress)])


Start = Callable[[Place, ExitStack], Run]


@dataclass(frozen=True, slots=True)
class Rate:
    """Of a client, x its quota."""

    used: float
    earned: float
    """From its beginning on, less the ten seconds' worth that may be used at once: it may do so at any time."""


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    quota: str
    limit: int
    quantum: int
    """What comes at once, at the least."""
    start: Start

    def rate(self, run: Run, windows: int) -> "Rate":
        """Against the quota, behind the first window."""
        series = run.series
        start_s = series.start_s()
        begin_s = start_s + WINDOW_S - LEAD_S
        end_s = begin_s + windows * WINDOW_S
        rate = series.rate(begin_s, end_s) / self.limit
        earned = (series.bytes_at(end_s) / self.limit - AT_ONCE_S) / (end_s - start_s)
        return Rate(rate, earned)

    def marks(self, windows: int) -> tuple[float, float]:
        """What `rate` may be, at the least and at the most: one request more falls into the span, or does not."""
        one = self.quantum / (windows * WINDOW_S * self.limit)
        return LEAST - one, MOST + one

    def least_messages(self, windows: int) -> int:
        """What has come at the end, the first one included, where the quota is used; one more may be under way."""
        return int(((1 + windows) * WINDOW_S * self.limit) / self.quantum) - 1


def _transactions(records: int) -> Start:
    """Of Java's producer, unchanged: a request holds a batch for each partition."""

    def start(place: Place, stack: ExitStack) -> Run:
        task = Produce(
            bootstrap=place.bootstrap,
            client_id=place.client_id,
            topic=place.topic,
            duration_s=place.duration_s,
            partitions=PARTITIONS,
            record_bytes=RECORD_BYTES,
            transactional_id=fresh_name("txn"),
            transaction_records=records,
        )
        return _producing(JAVA_4, task, place, stack)

    return start


def _messages(kind: ClientKind, batch_bytes: int, record_bytes: int) -> Start:
    def start(place: Place, stack: ExitStack) -> Run:
        task = Produce(
            bootstrap=place.bootstrap,
            client_id=place.client_id,
            topic=place.topic,
            duration_s=place.duration_s,
            record_bytes=record_bytes,
            batch_bytes=batch_bytes,
        )
        return _producing(kind, task, place, stack)

    return start


def _producing(kind: ClientKind, task: Produce, place: Place, stack: ExitStack) -> Run:
    folders = [place.cluster.log_folder(place.topic, number) for number in range(task.partitions)]
    meter = stack.enter_context(LogMeter(*folders))
    return Run(stack.enter_context(kind.run(task)), meter=meter)


def _consuming(kind: ClientKind) -> Start:
    def start(place: Place, stack: ExitStack) -> Run:
        task = Consume(
            bootstrap=place.bootstrap, client_id=place.client_id, topic=place.topic, duration_s=place.duration_s
        )
        return Run(stack.enter_context(kind.run(task)))

    return start


def _by_hand(make: Callable[[str, str, int], bytes]) -> Start:
    """One connection that obeys."""

    def start(place: Place, stack: ExitStack) -> Run:
        shape = Shape(place.address, make(place.topic, place.client_id, MESSAGE_BYTES), obeys=True)
        (load,), _ = start_loads([shape], place.duration_s)
        return Run(load=load)

    return start


def _slow(name: str, quota: str, start: Start) -> Case:
    """A quota that allows at once half of a message."""
    return Case(name, quota, LIMIT_OF_ONE_MESSAGE, MESSAGE_BYTES, start)


def _transactional(records: int) -> Case:
    size = records * RECORD_BYTES
    return Case(f"transactions-{size // 1000}k", PRODUCER, LIMIT_OF_TRANSACTIONS, size, _transactions(records))


TRANSACTIONS = (_transactional(100), _transactional(200))
OLD = Case("java-1-400k", PRODUCER, LIMIT_OF_OLD, OLD_BATCH_BYTES, _messages(JAVA_1, OLD_BATCH_BYTES, RECORD_BYTES))
BY_HAND = (
    _slow("fetch-by-hand", CONSUMER, _by_hand(fetch_request)),
    _slow("produce-by-hand", PRODUCER, _by_hand(produce_request)),
)
LIBRARIES = (
    *(_slow(f"consume-{kind.name}", CONSUMER, _consuming(kind)) for kind in (CONFLUENT, JAVA_4, KAFKA_PYTHON)),
    *(_slow(f"produce-{kind.name}", PRODUCER, _messages(kind, 16_384, MESSAGE_BYTES)) for kind in (CONFLUENT, JAVA_4)),
)
ALL = (*TRANSACTIONS, *BY_HAND, *LIBRARIES, OLD)
SHORT_WINDOWS = 3
LONG_WINDOWS = 8

Runs = dict[tuple[str, str], Run]


@pytest.fixture(scope="module")
def short(secure_cluster: SecureCluster) -> Iterator[Runs]:
    with _run(secure_cluster.cluster, (TRANSACTIONS[0], *BY_HAND), ("sluice",), SHORT_WINDOWS) as runs:
        yield runs


@pytest.fixture(scope="module")
def long(secure_cluster: SecureCluster) -> Iterator[Runs]:
    with _run(secure_cluster.cluster, ALL, SIDES, LONG_WINDOWS) as runs:
        yield runs


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(240)
def test_transactions_are_held_to_the_quota(short: Runs) -> None:
    _assert_transactions(short, TRANSACTIONS[0], SHORT_WINDOWS)


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(240)
@pytest.mark.parametrize("case", BY_HAND, ids=lambda case: case.name)
def test_quota_smaller_than_a_message_makes_progress(short: Runs, case: Case) -> None:
    _assert_progress(short, case, SHORT_WINDOWS)


@pytest.mark.matrix
@pytest.mark.timeout(500)
@pytest.mark.parametrize("case", TRANSACTIONS, ids=lambda case: case.name)
def test_transactions_under_small_quota_match_the_broker(long: Runs, case: Case) -> None:
    _assert_transactions(long, case, LONG_WINDOWS)


@pytest.mark.matrix
@pytest.mark.timeout(500)
@pytest.mark.parametrize("case", [*BY_HAND, *LIBRARIES], ids=lambda case: case.name)
def test_quota_smaller_than_a_message_makes_progress_for_each_client(long: Runs, case: Case) -> None:
    _assert_progress(long, case, LONG_WINDOWS)


@pytest.mark.matrix
@pytest.mark.timeout(500)
def test_client_from_before_throttles_keeps_its_connections(long: Runs) -> None:
    """Java 1.1.1 with its defaults: no retries, and 30 s for a request."""
    own, sluice = (long[side, OLD.name] for side in SIDES)
    rate = _print(long, OLD, LONG_WINDOWS)
    lost, lost_own = _lost(sluice), _lost(own)
    print(f"{OLD.name}: {lost} NetworkExceptions / {lost_own + FEW} (broker {lost_own})")
    least, most = OLD.marks(LONG_WINDOWS)
    assert least <= rate.used
    assert rate.earned <= most
    assert lost <= lost_own + FEW


def _assert_transactions(runs: Runs, case: Case, windows: int) -> None:
    rate = _print(runs, case, windows)
    client = runs["sluice", case.name].client
    assert client is not None
    result = client.result(timeout_s=120)  # ends well: no transaction has timed out
    print(f"{case.name}: {result.records} records committed, {len(result.errors)} errors / 0")
    assert result.errors == ()
    least, most = case.marks(windows)
    assert least <= rate.used
    assert rate.earned <= most


def _assert_progress(runs: Runs, case: Case, windows: int) -> None:
    rate = _print(runs, case, windows)
    run = runs["sluice", case.name]
    came = run.series.bytes_at(time.monotonic()) / case.quantum
    print(f"{case.name}: {came:.1f} messages / {case.least_messages(windows)} at the least; errors {run.load.errors}")
    assert rate.earned <= case.marks(windows)[1]
    assert came >= case.least_messages(windows)
    assert run.load.errors == []


def _print(runs: Runs, case: Case, windows: int) -> Rate:
    """The proxy's rate."""
    rates = {}
    for side in SIDES:
        run = runs.get((side, case.name))
        rates[side] = Rate(0.0, 0.0) if run is None or run.series.is_empty() else case.rate(run, windows)
    marks = "{:.2f}-{:.2f}".format(*case.marks(windows))
    ours = rates["sluice"]
    print(
        f"{case.name}: {ours.used:.2f} x quota, {ours.earned:.2f} with the first window / {marks}"
        f" (broker {rates['own'].used:.2f})"
    )
    return ours


def _lost(run: Run) -> int:
    if run.client is None:
        raise ValueError("a load by hand loses no records")
    progress = run.client.of_kind("progress")
    return int(progress[-1]["failed"].get("NetworkException", 0)) if progress else 0


@contextmanager
def _run(cluster: KafkaCluster, cases: Sequence[Case], sides: Sequence[str], windows: int) -> Iterator[Runs]:
    """All cases at the same time, each on its sides."""
    duration_s = STARTING_S + (1 + windows) * WINDOW_S
    (node_id,) = cluster.node_ids  # one: transactions are coordinated where they are written
    with SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=_quotas(cases)) as sluice, ExitStack() as stack:
        for quota in (PRODUCER, CONSUMER):
            own = {f"own-{case.name}": float(case.limit) for case in cases if case.quota == quota}
            cluster.set_client_quotas(quota, own)
            stack.callback(cluster.set_client_quotas, quota, dict.fromkeys(own))
        at = {
            "own": (cluster.bootstrap, cluster.direct(node_id)),
            "sluice": (sluice.bootstrap, sluice.broker_addresses[node_id]),
        }
        places = [
            (case, side, Place(cluster, *at[side], f"{side}-{case.name}", _topic(cluster, case), duration_s))
            for case in cases
            for side in sides
        ]
        runs = {(side, case.name): case.start(place, stack) for case, side, place in places}
        time.sleep(duration_s)
        yield runs


def _topic(cluster: KafkaCluster, case: Case) -> str:
    if case.quota == CONSUMER:
        return filled_topic(cluster, cluster.node_ids[0], 20 * MESSAGE_BYTES, batch_bytes=MESSAGE_BYTES)
    topic = fresh_name(case.name)
    cluster.create_topic(topic, partitions=PARTITIONS)
    return topic


def _quotas(cases: Sequence[Case]) -> str:
    lines = [f"  - {{entity: {{client-id: sluice-{case.name}}}, {case.quota}: {case.limit}}}\n" for case in cases]
    return "quotas:\n" + "".join(lines)
