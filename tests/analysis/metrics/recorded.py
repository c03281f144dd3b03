"""Usage records with all that makes SQL go wrong: ties, gaps, nulls, shared counters, several instances, shadow."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tests.analysis.records import Document, document, row

SECONDS: Final = 320
BEGINS_S: Final = 43_200 - SECONDS // 2
"""In the middle of it a day ends."""
GAP: Final = range(150, 190)
"""Seconds that nobody recorded."""


@dataclass(frozen=True)
class Client:
    user: str
    client_id: str
    activity: float
    size: int
    rule: str | None
    limit: float | None


CLIENTS: Final = (
    Client("alice", "app", 0.9, 20_000, "user=alice", 15_000.0),
    Client("alice", "batch", 0.3, 90_000, "user=alice", 15_000.0),  # the same counter
    Client("bob", "app", 0.5, 5_000, "client-id=app", 5_000.0),
    Client("carol", "app", 0.2, 9_000, "client-id=app", 5_000.0),
    Client("eve, client-id=x", "y", 0.6, 4_000, "user='eve, client-id=x'", 3_000.0),
    Client("o'hara", "Z\\", 0.6, 4_000, 'user="o\'hara", client-id=<default>', 3_000.0),
    Client("dave", "", 0.1, 400_000, None, None),
    Client("<script>alert(1)</script>", "\u202egnp", 0.05, 50_000, "user=<default>, client-id=<default>", 1e9),
)


def documents(seed: int) -> Iterator[Document]:
    """Yield those of three instances: one in shadow mode, one with another window of enforcement and late clocks."""
    chance = random.Random(seed)
    instances: list[tuple[str, int, dict[str, Any]]] = [
        ("edge-1", 0, {}),
        ("edge-2", 370, {"samples": 31}),
        ("edge-3", 999, {"mode": "shadow"}),
    ]
    for name, offset_ms, fields in instances:
        seq = 0
        for second in range(SECONDS):
            if second in GAP:
                continue
            rows = list(_rows(chance, second))
            jitter_ms = chance.choice((0, 0, 1, 3))
            if rows:
                at = BEGINS_S + second + (offset_ms + jitter_ms) / 1000
                interval_ms = 1000 + chance.choice((-1, 0, 2))
                yield document(seq, rows, second=at, instance=name, interval_ms=interval_ms, **fields)
                seq += 1


def _rows(chance: random.Random, second: int) -> Iterator[dict[str, Any]]:
    # All are busy together for a while, and then all rest.
    busy = 2.0 if second % 100 < 30 else 0.6
    for client in CLIENTS:
        for broker in (1, 2):
            listeners = ["PLAIN", "TLS"] if client.client_id == "batch" else ["PLAIN"]
            for listener in listeners:
                if chance.random() < client.activity * busy:
                    yield _row(chance, client, broker, listener, second, busy)
    if second % 60 == 0:
        yield row(None, None, broker=-1, connections_refused=chance.randrange(1, 5))


def _row(chance: random.Random, client: Client, broker: int, listener: str, second: int, busy: float) -> dict[str, Any]:
    moved = int(client.size * chance.expovariate(1.0) * busy)
    muted_ms = chance.choice((0, 100, 1000)) if client.limit and moved > client.limit * 2 else 0
    kind = "fetch" if chance.random() < 0.3 else "produce"
    rule, limit = client.rule, client.limit
    if client.user == "bob" and second > 250:
        rule, limit = "user=bob", 50_000.0  # a quota that was made meanwhile
    limits = {
        f"{each}_{what}": value for each in ("produce", "fetch") for what, value in (("rule", rule), ("limit", limit))
    }
    of_kind = {
        "bytes": moved,
        "requests": 3,
        "muted_ms": muted_ms,
        "throttle_ms": 2 * muted_ms,
        "throttled": muted_ms // 100,
    }
    return row(
        client.user,
        client.client_id,
        broker=broker,
        listener=listener,
        bytes_in=moved if kind == "produce" else 100,
        bytes_out=moved if kind == "fetch" else 50,
        requests=4,
        request_time_ms=chance.randrange(0, 50),
        connections=2,
        connections_opened=chance.randrange(0, 2),
        **limits,
        **{f"{kind}_{what}": value for what, value in of_kind.items()},
    )
