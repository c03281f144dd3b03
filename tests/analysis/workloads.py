"""Demand to compare models by: bytes of each second, 1 MB/s in the mean, or nearly."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from analysis.kernel.arrays import Floats
from analysis.kernel.censoring import Recorded
from analysis.kernel.demand import Demand
from tests.analysis.demands import cells_of
from tests.reference.request_level import Run, Shape, run

MEAN_BYTES_PER_S: Final = 1e6

SHAPES: Final = (
    Shape(request_bytes=50_000, peak_bytes_per_s=50e6),
    Shape(request_bytes=50_000, peak_bytes_per_s=50e6),
    Shape(request_bytes=100_000, peak_bytes_per_s=50e6),
    Shape(request_bytes=500_000, peak_bytes_per_s=50e6),
)
"""From many small requests to those that the window hardly holds."""


def workloads(seconds: int, seed: int = 5) -> dict[str, Floats]:
    """Return the bytes that fall due in each second."""
    rng = np.random.default_rng(seed)
    time_s = np.arange(seconds)
    even = np.full(seconds, MEAN_BYTES_PER_S)
    shares = {
        "steady": rng.gamma(50, 1 / 50, seconds),
        "bursts": np.where(rng.random(seconds) < 0.05, 20 * rng.gamma(4, 1 / 4, seconds), 0),
        "on and off": np.where(time_s // 60 % 3 == 0, 3 * rng.gamma(20, 1 / 20, seconds), 0),
        "tides": (1 + 0.8 * np.sin(2 * np.pi * time_s / 600)) * rng.gamma(10, 1 / 10, seconds),
        "batches": np.where(time_s % 90 == 0, 40, 0.1),
    }
    return {name: even * share for name, share in shares.items()}


class RecordedClient(NamedTuple):
    """What usage records would say of one client."""

    name: str
    due_bytes: Floats
    shape: Shape
    limit: float | None
    run: Run

    @property
    def demand(self) -> Demand:
        return self.recorded.low

    @property
    def recorded(self) -> Recorded:
        """Its demand at least and at most, by how it was held up."""
        sent, muted_s = (np.array(each)[:, None] for each in (self.run.served_bytes, self.run.muted_s))
        requests = np.array([float(sum(self.run.requests))])
        return Recorded.of(cells_of(sent, muted_s), np.zeros(1, dtype=np.intp), requests, len(sent))

    def again(self, limit: float) -> Run:
        """Return what the same client does under another limit."""
        return run(self.due_bytes, self.shape, limit)


def recordings(seconds: int, shapes: tuple[Shape, ...] = SHAPES) -> Iterator[RecordedClient]:
    """Yield every workload in every shape, without a limit."""
    for name, due_bytes in workloads(seconds).items():
        for shape in shapes:
            yield RecordedClient(name, due_bytes, shape, None, run(due_bytes, shape, None))
