"""Usage records of clients whose bytes of each second are given: as a DataFrame, and as the kernel takes them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from analysis.kernel.arrays import Floats
from analysis.kernel.demand import Demand
from tests.analysis.demands import REQUEST_BYTES, demand_of
from tests.analysis.records import Document, document, row

MB: Final = 1e6


@dataclass(frozen=True, slots=True)
class Load:
    """One client at one broker, through one proxy."""

    user: str
    client_id: str
    sent_bytes: Floats
    instance: str = "edge-1"
    broker: int = 1
    word: str = "produce"
    limit: float | None = None
    rule: str | None = None
    muted_s: Floats = field(default_factory=lambda: np.zeros(0))

    def columns(self, second: int) -> dict[str, Any] | None:
        """Return its row of a second; None: it is idle."""
        sent = int(self.sent_bytes[second])
        muted_ms = int(self.muted_s[second] * 1000) if len(self.muted_s) else 0
        if not sent and not muted_ms:
            return None
        named = {
            "bytes": sent,
            "requests": -(-sent // REQUEST_BYTES),
            "throttled": int(muted_ms > 0),
            "throttle_ms": muted_ms,
            "muted_ms": muted_ms,
            "limit": self.limit,
            "rule": self.rule,
        }
        columns = {f"{self.word}_{name}": value for name, value in named.items()}
        return {**columns, "requests": named["requests"], "broker": self.broker, "connections": 2}

    @property
    def demand(self) -> Demand:
        """What the kernel makes of it by itself."""
        sent = np.floor(self.sent_bytes)[:, None]
        requests = np.ceil(sent / REQUEST_BYTES)
        return demand_of(sent, requests)


def documents(
    loads: Sequence[Load], *, phases_ms: Mapping[str, int] | None = None, lost: Sequence[int] = (), **fields: Any
) -> Iterator[Document]:
    """Yield the documents of each proxy, whose beats may be off; those of the ``lost`` seconds are missing."""
    for instance in sorted({load.instance for load in loads}):
        mine = [load for load in loads if load.instance == instance]
        for second in range(max(len(load.sent_bytes) for load in mine)):
            if second in lost:
                continue
            found = [(load, load.columns(second)) for load in mine]
            rows = [row(load.user, load.client_id, **columns) for load, columns in found if columns is not None]
            at = second + (phases_ms or {}).get(instance, 0) / 1000
            yield document(second, rows, second=at, instance=instance, boot=f"boot of {instance}", **fields)
