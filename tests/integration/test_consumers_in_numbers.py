"""Consumers that share a quota, beside the broker's own: connections that wait as long as throttle_time_ms says.

Kafka throws away what a throttled Fetch has read, and gives a half to all of the quota, the less the larger the
answers are; here each cell gets what it is allowed, however many connections ask and for however much.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean

import pytest

from tests.harness.kafka import KafkaCluster
from tests.harness.load import Load, Shape, fetch_request, run_loads
from tests.harness.measure import LEAD_S
from tests.harness.sluice import SluiceProcess
from tests.integration.conftest import SHORT_WINDOW_SAMPLES
from tests.integration.filled import filled_topic

pytestmark = [pytest.mark.slow]

LIMIT_BYTES_PER_S = 250_000
LEAST, MOST = 0.93, 1.06
BATCH_BYTES = 4_000
DEFAULT_WINDOW_SAMPLES = 11
TOLD_MS = 50
"""So much more than the broker's may be told in any case: clocks and schedulers are no finer."""
SIDES = ("own", "sluice")


@dataclass(frozen=True, slots=True)
class Cell:
    """So many connections, each asking for that part of what the quota allows at once."""

    part: float
    connections: int

    @property
    def name(self) -> str:
        return f"{self.part:.2f}x{self.connections}"


CELLS = tuple(Cell(part, count) for part in (0.02, 0.07, 0.13, 0.26, 0.52, 1.0) for count in (1, 3, 8))
SHORT_CELLS = (Cell(0.02, 8), Cell(0.13, 3), Cell(0.52, 8))


@dataclass(frozen=True, slots=True)
class Seen:
    """One cell on one side."""

    load: Load
    samples: int
    windows: int

    @property
    def rate(self) -> float:
        """Against the quota, over whole windows behind the first one."""
        begin_s = self.load.series().start_s() + self.samples - LEAD_S
        end_s = begin_s + self.samples * self.windows
        return self.load.series().rate_by_bursts(begin_s, end_s, self.samples + 1.0) / LIMIT_BYTES_PER_S

    @property
    def told_ms(self) -> list[int]:
        return [answer.throttle_ms for answers in self.load.connections for answer in answers]

    @property
    def parts(self) -> tuple[float, float]:
        """What the connection with the least and that with the most got, against a fair part."""
        each = [sum(answer.charged_bytes for answer in answers) for answers in self.load.connections]
        return min(each) / fmean(each), max(each) / fmean(each)


Table = dict[tuple[str, str], Seen]


@pytest.fixture(scope="module")
def short(cluster: KafkaCluster) -> Table:
    return _compare(cluster, SHORT_CELLS, SHORT_WINDOW_SAMPLES, windows=6)


@pytest.fixture(scope="module")
def whole(old_cluster: KafkaCluster) -> Table:
    return _compare(old_cluster, CELLS, DEFAULT_WINDOW_SAMPLES, windows=7)


@pytest.mark.integration
@pytest.mark.timeout(240)
@pytest.mark.parametrize("cell", SHORT_CELLS, ids=lambda cell: cell.name)
def test_consumers_get_their_quota(short: Table, cell: Cell) -> None:
    _assert_in_full(short, cell)


@pytest.mark.matrix
@pytest.mark.timeout(400)
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_consumers_get_their_quota_in_every_cell(whole: Table, cell: Cell) -> None:
    _assert_in_full(whole, cell)


def _assert_in_full(table: Table, cell: Cell) -> None:
    own, sluice = (table[side, cell.name] for side in SIDES)
    assert own.load.errors == sluice.load.errors == []
    print(f"consumers {cell.name}: {sluice.rate:.3f} x quota / {LEAST}-{MOST} (broker {own.rate:.3f})")
    told = f"mean {fmean(sluice.told_ms):.0f} ms, most {max(sluice.told_ms)} ms"
    print(f"consumers {cell.name}, told: {told} (broker {fmean(own.told_ms):.0f} ms, {max(own.told_ms)} ms)")
    print("consumers {}, parts: {:.2f}-{:.2f} (broker {:.2f}-{:.2f})".format(cell.name, *sluice.parts, *own.parts))
    assert LEAST <= sluice.rate <= MOST
    assert fmean(sluice.told_ms) <= 2 * fmean(own.told_ms) + TOLD_MS


def _compare(cluster: KafkaCluster, cells: tuple[Cell, ...], samples: int, windows: int) -> Table:
    """All cells at once, on both sides; what is allowed at once is what fits all samples but one."""
    node_id = cluster.node_ids[0]
    allowance_bytes = LIMIT_BYTES_PER_S * (samples - 1)
    topic = filled_topic(cluster, node_id, allowance_bytes, batch_bytes=BATCH_BYTES)
    settings = {"quotas": {"window": {"samples": samples, "size": "1s"}}}
    keys = [(side, cell.name) for cell in cells for side in SIDES]
    with (
        _own_quotas(cluster, cells),
        SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=_quotas(cells), settings=settings) as sluice,
    ):
        addresses = {"own": cluster.direct(node_id), "sluice": sluice.broker_addresses[node_id]}
        shapes = []
        for cell in cells:
            for side in SIDES:
                request = fetch_request(topic, f"{side}-{cell.name}", int(cell.part * allowance_bytes))
                shapes.append(Shape(addresses[side], request, cell.connections, obeys=True))
        loads = run_loads(shapes, duration_s=samples * (1.0 + windows) + 1.0)
    return {key: Seen(load, samples, windows) for key, load in zip(keys, loads, strict=True)}


@contextmanager
def _own_quotas(cluster: KafkaCluster, cells: tuple[Cell, ...]) -> Iterator[None]:
    """The broker's own quotas, while the block runs."""
    names = [f"own-{cell.name}" for cell in cells]
    cluster.set_client_quotas("consumer_byte_rate", dict.fromkeys(names, LIMIT_BYTES_PER_S))
    try:
        yield
    finally:
        cluster.set_client_quotas("consumer_byte_rate", dict.fromkeys(names))


def _quotas(cells: tuple[Cell, ...]) -> str:
    lines = [
        f"  - {{entity: {{client-id: sluice-{cell.name}}}, consumer_byte_rate: {LIMIT_BYTES_PER_S}}}\n"
        for cell in cells
    ]
    return "quotas:\n" + "".join(lines)
