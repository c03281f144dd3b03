"""Recordings that what-if and recommend are asked about: proxies, beats, gaps, modes, limits that changed."""

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

import numpy as np

from analysis.kernel.arrays import Floats
from tests.analysis.loads import MB, Load, documents
from tests.analysis.records import Document, document, row
from tests.analysis.workloads import recordings as of_workloads
from tests.reference.request_level import Shape, run

SECONDS: Final = 300


def uneven(mean: float, seed: int, seconds: int = SECONDS) -> Floats:
    return mean * np.random.default_rng(seed).gamma(4, 1 / 4, seconds)


def now_and_then(size: float) -> Floats:
    return np.where(np.arange(SECONDS) % 60 == 7, size, 0.0)


LOADS = (
    Load("alice", "over", uneven(1.4 * MB, 1)),
    Load("alice", "over", uneven(1.2 * MB, 2), broker=2),
    Load("alice", "over", uneven(1.1 * MB, 3), instance="edge-2"),
    Load("bob", "near", uneven(0.95 * MB, 4)),
    Load("bob", "under", uneven(0.2 * MB, 5), instance="edge-2"),
    Load("carol", "bursts", now_and_then(30 * MB)),
    Load("carol", "reads", uneven(1.3 * MB, 6), word="fetch"),
    Load("dave", "idles", now_and_then(1000.0), instance="edge-2", broker=2),
)
CLOCK = Load("zoe", "clock", np.ones(SECONDS))
"""Somebody who is there in every second: a recording ends with its last row."""
USE = uneven(1.4 * MB, 1)
FREE = Load("eve", "free", uneven(1.4 * MB, 9), limit=MB, rule="client-id=<default>", muted_s=np.full(SECONDS, 0.5))
MODES = ("shadow", "off")
WINDOWS = (11, 21)
WICKED = Load("<script>alert(1)</script>", "a\n\u202e&", uneven(2 * MB, 1))


def moved() -> list[Load]:
    first, then = USE.copy(), USE.copy()
    first[150:], then[:150] = 0, 0
    return [Load("alice", "over", first), Load("alice", "over", then, instance="edge-2")]


def drained() -> list[Load]:
    """Two proxies have a broker one after the other, and for twenty seconds both; the first is asked all the time."""
    first, then = USE.copy(), USE.copy()
    first[150:], then[:130] = 0, 0
    return [
        Load("alice", "over", first),
        Load("alice", "over", then, instance="edge-2"),
        Load("alice", "asks", np.full(SECONDS, 100.0)),
    ]


def held_up(limit: float, **fields: Any) -> tuple[Load, Floats, Shape]:
    """What a client recorded that wanted 0.8 MB/s in the mean, and had ``limit``: under 0.9 MB/s it gets all of it."""
    shape = Shape(request_bytes=10_000, peak_bytes_per_s=50e6)
    due_bytes = np.where(np.arange(SECONDS) % 100 < 50, 1.6 * MB, 0.0)
    real = run(due_bytes, shape, limit)
    load = Load(
        "eve",
        "held",
        np.array(real.served_bytes),
        limit=limit,
        rule="client-id=<default>",
        muted_s=np.array(real.muted_s),
        **fields,
    )
    return load, due_bytes, shape


def changed(mode: str | None = None) -> list[Document]:
    """Held under 0.7 MB/s at first, and then under 0.9 MB/s; the first document may be of another mode."""
    made = list(documents([held_up(0.9 * MB)[0], CLOCK]))
    for document_ in made[: SECONDS // 2]:
        limits = document_["rows"]["produce_limit"]
        document_["rows"]["produce_limit"] = [limit and 0.7 * MB for limit in limits]
    if mode is not None:
        made[0] |= {"mode": mode}
    return made


def of_ten_seconds() -> list[Document]:
    steady = Load("alice", "steady", np.full(30, 13 * MB))
    burst = Load("alice", "burst", np.where(np.arange(30) == 5, 9.5 * MB, 0.0))
    made = documents([steady, burst])
    return [{**each, "time_ms": each["time_ms"] + 9000 * each["seq"], "interval_ms": 10_000} for each in made]


@cache
def workloads() -> list[Load]:
    found = [each for number, each in enumerate(of_workloads(SECONDS)) if number % 4 == 1]
    return [Load("w", each.name, np.array(each.run.served_bytes)) for each in found]


def recordings() -> dict[str, Iterable[Document]]:
    """What is asked about besides LOADS, by name."""
    return {
        "shifted": documents(LOADS, phases_ms={"edge-1": 137, "edge-2": 904}),
        "moved": documents(moved()),
        "drained": documents(drained()),
        "drained by owners": documents(drained(), owned=1),
        "held": documents([held_up(0.9 * MB)[0], CLOCK]),
        "changed": changed(),
        "changed in shadow": changed(mode="shadow"),
        "held alone": documents([held_up(0.5 * MB)[0]]),
        **{f"free in {mode}": documents([FREE], mode=mode) for mode in MODES},
        "ten seconds": of_ten_seconds(),
        "gaps": documents(LOADS, lost=[50, 51, 52, 200]),
        **{f"window {n}": documents([Load("alice", "bursts", now_and_then(12 * MB))], samples=n) for n in WINDOWS},
        "refused": [
            *documents(LOADS[:1]),
            *(document(seq, [row(None, None, connections_refused=3)], boot="of them") for seq in range(3)),
        ],
        "without use": [document(0, [row("alice", requests=3)])],
        "wicked": documents([WICKED]),
        "workloads": documents(workloads()),
    }
