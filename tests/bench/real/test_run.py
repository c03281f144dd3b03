"""The rows on a real broker, very short: every target has its figures. What they are is nothing to assert."""

import os
import struct
from collections.abc import Iterator

import psutil
import pytest

from bench.build import build
from bench.errors import BenchError
from bench.measure import FIGURES, Duration
from bench.programs import DIRECT, PROXIES
from bench.rows import ROWS, choose
from bench.run import Plan, Run
from bench.targets import Cores, Fleet

pytestmark = [pytest.mark.slow, pytest.mark.integration, pytest.mark.timeout(600)]

API_VERSIONS = 18
REAL = [row.name for row in ROWS if row.load.is_real]


def split_frames(data: bytes) -> list[bytes]:
    found = []
    while data:
        length = 4 + int(struct.unpack_from(">i", data)[0])
        found.append(data[:length])
        data = data[length:]
    return found


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    build()
    cores = Cores.plan(sorted(os.sched_getaffinity(0)))
    before = set(psutil.Process().children(recursive=True))  # those of other modules, which end with the session
    with Fleet(tmp_path_factory.mktemp("bench"), cores) as running:
        yield running
    assert set(psutil.Process().children(recursive=True)) <= before


@pytest.fixture(scope="module")
def run(fleet: Fleet) -> Run:
    return Run(fleet, Plan(PROXIES, 1, Duration(0.1, 0.2)))


@pytest.mark.parametrize("name", [REAL[0], *(pytest.param(name, marks=pytest.mark.matrix) for name in REAL[1:])])
def test_every_target_has_figures(run: Run, name: str) -> None:
    (row,) = choose([name])
    samples = run.row(row)
    assert set(samples) == {DIRECT, *PROXIES}
    (figure,) = FIGURES[row.measure]
    assert all(samples[target][0][figure] > 0 for target in PROXIES)


def test_replayed_produce_has_the_size_of_its_row(fleet: Fleet) -> None:
    greeting, produce = split_frames(fleet.stage.recorded().file.read_bytes())
    assert struct.unpack_from(">h", greeting, 4) == (API_VERSIONS,)
    assert len(produce) == 512


def test_a_broker_that_has_ended_is_named_with_its_log(run: Run, fleet: Fleet) -> None:
    fleet.stage.close()
    (row,) = choose([REAL[0]])
    with pytest.raises(BenchError, match=r"the broker of the real-\* rows has ended\n--- end of .*broker.log"):
        run.row(row)
