"""Usage records with everything in them that gold tells apart, at random, but the same for a seed."""

import random
from typing import Any, Final

from quotas.kinds import CLIENT_KINDS, QuotaKind
from tests.analysis.records import Document, caps_of, document, row, with_counters

DAY_MS: Final = 86_400_000
MIDNIGHT_MS: Final = 1_772_409_600_000  # 2026-03-02T00:00:00Z
MIDDAY_MS: Final = MIDNIGHT_MS - DAY_MS // 2
_RULES: Final = {
    "alice": "user=alice",
    "bob": "user=<default>, client-id=<default>",
    "carol, the 2nd": "user='carol, the 2nd', client-id=<default>",
    "dave": "user-group=tenant-a, client-id-prefix=batch-",
    "erin": "user-group=tenant-a",
    "frank": "client-id-prefix=tmp-, shared=false",
    "grace": "client-id-prefix=batch-",
    "heidi": None,
}
_CLIENTS: Final = ("batch-1", "batch-2", "tmp-1")
_CAPS: Final = {"cap user-group=tenant-a": 5000, "cap user='x; cap y, client-id=z', client-id=<default>": 70000}


def documents(seed: int, begins_ms: list[int], seconds: int) -> list[Document]:
    """Documents of two proxies, for so many seconds from each begin on; most intervals of most clients have no row."""
    dice = random.Random(seed)
    found = []
    seq = 0
    for begin_ms in begins_ms:
        for second in range(seconds):
            for instance in ("edge-1", "edge-2"):
                rows = _rows(dice)
                fields: dict[str, Any] = {
                    "instance": instance,
                    "boot": f"boot-{instance}",
                    "time_ms": begin_ms + 1000 * second + (137 if instance == "edge-2" else dice.randrange(3)),
                    "interval_ms": 1000 if dice.random() < 0.9 else dice.randrange(400, 1400),
                    "mode": "shadow" if second % 50 == 7 else "enforce",
                }
                if rows and dice.random() < 0.95:  # or it is lost
                    found.append(document(seq, rows, **fields))
            seq += 1
    return found


def _rows(dice: random.Random) -> list[dict[str, Any]]:
    clients = [(user, client_id, rule) for user, rule in _RULES.items() for client_id in _CLIENTS]
    rows = [_row(dice, *each) for each in clients if dice.random() < 0.12]
    if dice.random() < 0.2:
        rows.append(row(None, None, broker=-1, connections_refused=dice.randrange(1, 5)))
    if dice.random() < 0.2:
        rows.append(_address(dice))
    if dice.random() < 0.1:
        rows.append(
            row("ivan", "app", exempt=True, broker=2, bytes_in=10, requests=1, produce_bytes=10, produce_requests=1)
        )
    if dice.random() < 0.1:
        rows.append(row("sluice:other", "sluice:other", bytes_in=5, requests=1))
    return rows


def _row(dice: random.Random, user: str, client_id: str, rule: str | None) -> dict[str, Any]:
    found = row(user, client_id, broker=dice.randrange(1, 3), listener=dice.choice(["PLAIN", "TLS"]))
    found |= {"bytes_in": dice.randrange(9000), "bytes_out": dice.randrange(9000), "requests": dice.randrange(1, 9)}
    found |= {"request_time_ms": dice.randrange(99), "connections": dice.randrange(4), "connections_opened": 1}
    for kind in CLIENT_KINDS:
        if dice.random() < 0.4:
            continue
        columns = kind.row.columns
        used = dice.choice([0, 1, dice.randrange(1, 200_000)])
        limit = None if rule is None else dice.choice([1000.0, 1000.0, 20_000.0, 0.5])
        found |= {columns.used: used, columns.requests: dice.randrange(3), columns.limit: limit, columns.rule: rule}
        if dice.random() < 0.3:
            held = [dice.randrange(1, 5), dice.randrange(1, 900), dice.randrange(1, 1000)]
            found |= dict(zip((columns.throttled, columns.throttle_ms, columns.muted_ms), held, strict=True))
            if rule is not None and dice.random() < 0.5:
                _, longest, *by_caps = kind.row.cap_columns
                found[longest] = dice.choice([*_CAPS])
                found |= {name: dice.randrange(most + 1) for name, most in zip(by_caps, held, strict=True)}
        if (rule is not None and dice.random() < 0.5) or found[kind.row.cap_columns[1]]:
            found[kind.row.cap_columns[0]] = caps_of(found, _CAPS)
        if rule is None and dice.random() < 0.5:
            found |= dict(zip(kind.row.shadow_columns, (900.0, 1, 5, dice.randrange(50)), strict=True))
    return with_counters(found)


def _address(dice: random.Random) -> dict[str, Any]:
    columns = QuotaKind.CONNECTION_CREATION_RATE.row.columns
    found = row(None, None, broker=-1, ip=dice.choice(["10.0.0.5", "10.0.0.6", "other"]), listener="TLS")
    found |= {columns.used: dice.randrange(1, 9), columns.limit: 2.0, columns.rule: "ip=<default>"}
    if dice.random() < 0.5:
        found |= {columns.throttled: 1, columns.throttle_ms: 300, columns.muted_ms: 250}
    return found
