"""Rows of a batch that bursts together and sends heartbeats in between, and of one that delays somebody else."""

from typing import Any

import numpy as np

from tests.analysis.metrics.neighbour_cases import waves
from tests.analysis.records import Document, document, row

MOMENTS = 720


def documents() -> list[Document]:
    """Two hours of ``a`` and ``b``, who share a counter, and ``alone``, who has its own: all are muted as they burst.

    ``victim`` is muted when ``noisy`` bursts, which is at other times.
    """
    chance = np.random.default_rng(4)
    busy, noisy = (waves(chance, MOMENTS, 30, 6) for _ in range(2))
    return [_document(chance, moment, busy=bool(busy[moment]), noisy=bool(noisy[moment])) for moment in range(MOMENTS)]


def _document(chance: np.random.Generator, moment: int, *, busy: bool, noisy: bool) -> Document:
    bytes_ = 6_000_000 if busy else 20_000
    rows = []
    for name, rule in (("a", "user-group=batch"), ("b", "user-group=batch"), ("alone", "user=alone")):
        muted: dict[str, Any] = {"produce_muted_ms": 7000 * int(busy and chance.random() < 0.8), "produce_rule": rule}
        rows.append(row(name, bytes_in=bytes_, produce_bytes=bytes_, **muted))
    kept: dict[str, Any] = {"produce_muted_ms": 6000 * int(noisy), "produce_rule": "user=victim"}
    rows.append(row("victim", bytes_in=900, produce_bytes=900, **kept))
    rows.append(row("noisy", bytes_in=5_000_000 if noisy else 200_000))
    return document(moment, rows, second=10 * moment, interval_ms=10_000)
