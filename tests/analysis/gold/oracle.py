"""The gold tables again, made of documents in plain Python, row by row: what the SQL is held against."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from analysis.kernel.units import read_rule
from quotas.entities import Group, Prefix
from quotas.kinds import CLIENT_KINDS, Law, QuotaKind
from tests.analysis.records import Document

HOUR_MS: Final = 3_600_000
WHO: Final = ("cluster", "instance", "broker", "listener", "user", "client_id", "ip")
HELD: Final = ("throttled", "throttle_ms", "muted_ms")
Row = dict[str, Any]


class Name(NamedTuple):
    """A counter, by what it counts together."""

    kind: str
    cluster: str
    instance: str
    broker: int
    rule: str | None
    unit_user: str | None
    unit_client_id: str | None


def rows(documents: Sequence[Document]) -> list[Row]:
    """Return the rows of documents, each with what its document says once."""
    found = []
    for each in documents:
        said = {name: value for name, value in each.items() if name != "rows"}
        columns = each["rows"]
        found += [said | {name: columns[name][n] for name in columns} for n in range(len(columns["listener"]))]
    return found


def charges(documents: Sequence[Document]) -> Iterator[Row]:
    """Yield what each row was charged, by kind and role."""
    for row in rows(documents):
        for kind in (*CLIENT_KINDS, QuotaKind.CONNECTION_CREATION_RATE):
            for charge in _charges(row, kind):
                if charge["used"] or any(charge[name] for name in HELD):
                    yield {**row, **charge, "name": _name(charge | {n: row[n] for n in WHO if n != "broker"})}


def _charges(row: Row, kind: QuotaKind) -> Iterator[Row]:
    columns, word = kind.row.columns, kind.row.word
    of_bucket = kind.row.law is Law.TOKEN_BUCKET
    same = {
        "kind": word,
        "broker": -1 if kind.row.of_cluster else row["broker"],
        "used": row[columns.used],
        "requests": row[columns.requests] if kind in CLIENT_KINDS else row[columns.used],
        "per_used": kind.row.unit.per_used,
        "window_ms": row["controller_samples"] * row["controller_sample_ms"]
        if of_bucket
        else row["samples"] * row["sample_ms"],
    }
    held = [row[columns.throttled], row[columns.throttle_ms], row[columns.muted_ms]]
    if kind not in CLIENT_KINDS:
        yield same | {"role": "quota", "rule": row[columns.rule], "limit": row[columns.limit]} | _held(held)
        return
    caps, longest, *by_caps = (row[name] for name in kind.row.cap_columns)
    alone = [max(every - cap, 0) for every, cap in zip(held, by_caps, strict=True)]
    yield same | {"role": "quota", "rule": row[columns.rule], "limit": row[columns.limit]} | _held(alone)
    if caps is not None:
        for cap in json.loads(caps):
            did = by_caps if cap["rule"] == longest else [0, 0, 0]
            yield same | {"role": "cap", "rule": cap["rule"], "limit": cap["limit"]} | _held(did)
    limit, *would = (row[name] for name in kind.row.shadow_columns)
    if limit is not None:
        yield same | {"role": "shadow", "rule": None, "limit": limit} | _held(would)


def _held(figures: Sequence[int]) -> Row:
    return dict(zip(HELD, figures, strict=True))


def _name(charge: Row) -> Name:
    rule, user, client_id = charge["rule"], charge["user"], charge["client_id"]
    if rule is not None:
        entity, shared = read_rule(rule)
        if isinstance(entity.user, Group):
            user = f"group:{entity.user.name}"
        elif entity.user is None:
            user = None
        if isinstance(entity.client_id, Prefix) and shared:
            client_id = f"{entity.client_id.text}*"
        elif entity.client_id is None:
            client_id = None
    if charge["kind"] == "connection":
        user = f"ip:{charge['ip']}"
    return Name(charge["kind"], charge["cluster"], charge["instance"], charge["broker"], rule, user, client_id)


def hour_of(time_ms: int) -> int:
    """Return the hour since 1970."""
    return time_ms // HOUR_MS


def client(documents: Sequence[Document]) -> dict[tuple[Any, ...], Row]:
    """Return sums by hour, WHO, mode and exemption."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows(documents):
        key = (hour_of(row["time_ms"]), *(row[name] for name in WHO), row["mode"], row["exempt"], _nominal(row))
        line = found.setdefault(key, defaultdict(int))
        for name in (
            "bytes_in",
            "bytes_out",
            "requests",
            "request_time_ms",
            "connections_opened",
            "connections_refused",
            "accept_waits",
            "accept_wait_ms",
        ):
            line[name] += row[name]
        line["rows"] += 1
        line["active_ms"] += row["interval_ms"]
        line["connections"] = max(line["connections"], row["connections"])
        line["begin_ms"] = min(line["begin_ms"] or row["time_ms"], row["time_ms"])
        line["end_ms"] = max(line["end_ms"], row["time_ms"] + row["interval_ms"])
    return found


def _nominal(row: Row) -> int:
    return max(math.floor(int(row["interval_ms"]) / 1000 + 0.5), 1) * 1000


def charged(documents: Sequence[Document]) -> dict[tuple[Any, ...], Row]:
    """Return sums by hour, WHO, mode, exemption, role and counter."""
    found: dict[tuple[Any, ...], Row] = {}
    for charge in charges(documents):
        who = tuple(charge[name] for name in WHO)
        key = (hour_of(charge["time_ms"]), *who, charge["mode"], charge["exempt"], charge["role"], charge["name"])
        line = found.setdefault(key, {"limits": set(), **dict.fromkeys(("used", "requests", *HELD), 0)})
        for name in ("used", "requests", *HELD):
            line[name] += charge[name]
        if charge["limit"] is not None:
            line["limits"].add(charge["limit"])
    return found


def readings(documents: Sequence[Document]) -> dict[tuple[int, Name], Row]:
    """Return by hour and counter the use of the window that ends with each interval, over the limit."""
    interval_ms = {
        instance: Counter(_nominal(row) for row in rows(documents) if row["instance"] == instance).most_common(1)[0][0]
        for instance in {each["instance"] for each in documents}
    }
    of_counter: defaultdict[Name, list[Row]] = defaultdict(list)
    for charge in charges(documents):
        if charge["used"] and charge["role"] != "shadow":
            of_counter[charge["name"]].append(charge)
    found: dict[tuple[int, Name], Row] = {}
    for name, uses in of_counter.items():
        step_ms = interval_ms[name.instance]
        whole = max(round(uses[0]["window_ms"] / step_ms), 1)
        used: Counter[int] = Counter()
        limits: dict[int, float] = {}
        for use in uses:
            slot = use["time_ms"] // step_ms
            used[slot] += use["used"]
            if use["limit"] is not None:
                limits[slot] = max(limits.get(slot, 0), use["limit"])
        for slot in sorted({slot + later for slot in used for later in range(whole)}):
            total = sum(used[slot - back] for back in range(whole)) * uses[0]["per_used"]
            limit = next((limits[slot - back] for back in range(whole) if slot - back in limits), None)
            line = found.setdefault(
                (hour_of(slot * step_ms), name),
                {"values": Counter(), "over": 0, "busy": 0, "used_intervals": 0, "max": None, "most_window": 0},
            )
            share = total / (limit * whole * step_ms / 1000) if limit else None
            line["busy"] += 1
            line["used_intervals"] += slot in used
            line["most_window"] = max(line["most_window"], total)
            line["limit"] = limit
            if share is not None:
                line["values"][rounded(share)] += 1
                line["over"] += share > 1
                line["max"] = max(line["max"] or 0, share)
    return found


def rounded(share: float) -> float:
    """Return the nearest of 256 steps an octave, or of 1/1024 where these are finer; not 0."""
    level = 2.0 ** min(8 - math.floor(math.log2(share)), 10)
    return max(math.floor(share * level + 0.5), 1) / level


def muted(documents: Sequence[Document]) -> Counter[tuple[Any, ...]]:
    """Return intervals with a mute."""
    return Counter(
        (
            *(c[n] for n in WHO),
            c["mode"],
            c["role"],
            c["name"],
            c["time_ms"],
            c["time_ms"] + c["interval_ms"],
            c["used"],
            *(c[n] for n in HELD),
            c["limit"],
        )
        for c in charges(documents)
        if c["muted_ms"]
    )


def shared(documents: Sequence[Document]) -> dict[tuple[Any, ...], float]:
    """Return by hour, counter, client and victim the muted time that is laid to the client."""
    used: defaultdict[tuple[int, Name, int], defaultdict[tuple[Any, Any], list[int]]] = defaultdict(
        lambda: defaultdict(lambda: [0, 0])
    )
    clients: defaultdict[tuple[int, Name], set[Any]] = defaultdict(set)
    for charge in charges(documents):
        if charge["role"] != "shadow":
            hour, who = hour_of(charge["time_ms"]), (charge["user"], charge["client_id"])
            both = used[hour, charge["name"], charge["time_ms"] // 10_000][who]
            both[0] += charge["used"]
            both[1] += charge["muted_ms"]
            clients[hour, charge["name"]].add(who)
    found: defaultdict[tuple[Any, ...], float] = defaultdict(float)
    for (hour, name, _), by_client in used.items():
        total = sum(each[0] for each in by_client.values())
        for who, (bytes_, _) in by_client.items():
            for victim, (_, muted_ms) in by_client.items():
                if total and muted_ms and who != victim and bytes_ / total >= 0.05:
                    found[hour, name, *who, *victim] += muted_ms * bytes_ / total
    return found


def moments(documents: Sequence[Document]) -> dict[tuple[Any, ...], Row]:
    """Return by cluster, broker, client (one of the 20 of the hour, or None) and 10 s what it moved."""
    moved: defaultdict[int, Counter[tuple[Any, ...]]] = defaultdict(Counter)
    every = rows(documents)
    for row in every:
        if row["user"] is not None:
            moved[hour_of(row["time_ms"])][row["cluster"], row["user"], row["client_id"]] += (
                row["bytes_in"] + row["bytes_out"]
            )
    best = {
        hour: {who for who, _ in sorted(by.items(), key=lambda each: (-each[1], each[0]))[:20]}
        for hour, by in moved.items()
    }
    found: dict[tuple[Any, ...], Row] = {}
    for row in every:
        who = row["cluster"], row["user"], row["client_id"]
        is_one = who in best.get(hour_of(row["time_ms"]), ())
        key = (row["cluster"], row["broker"], *(who[1:] if is_one else (None, None)), row["time_ms"] // 10_000 * 10)
        line = found.setdefault(key, Counter())
        for name in ("bytes_in", "bytes_out", "requests", "request_time_ms"):
            line[name] += row[name]
        line["muted_ms"] += sum(
            row[kind.row.columns.muted_ms] for kind in (*CLIENT_KINDS, QuotaKind.CONNECTION_CREATION_RATE)
        )
    return found
