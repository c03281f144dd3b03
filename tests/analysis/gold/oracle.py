"""The gold tables again, made of documents in plain Python, row by row: what the SQL is held against."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
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
                    name = _name(charge | {n: row[n] for n in WHO if n != "broker"})
                    yield {**row, **charge, "name": name._replace(instance="") if row["owned"] else name}


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
    """Return by hour and counter the use of the windows that end with each second, over the limit.

    The use of each proxy is spread over its own window; what several proxies have of one counter is added up.
    """
    interval_s = {
        instance: Counter(_nominal(row) for row in rows(documents) if row["instance"] == instance).most_common(1)[0][0]
        // 1000
        for instance in {each["instance"] for each in documents}
    }
    of_counter: defaultdict[Name, list[Row]] = defaultdict(list)
    for charge in charges(documents):
        if charge["used"] and charge["role"] != "shadow":
            of_counter[charge["name"]].append(charge)
    found: dict[tuple[int, Name], Row] = {}
    for name, uses in of_counter.items():
        per_s: defaultdict[int, Fraction] = defaultdict(Fraction)
        in_window: Counter[int] = Counter()
        in_use: set[int] = set()
        limits: dict[int, float] = {}
        for use in uses:
            step_s = interval_s[use["instance"]]
            window_s = max(round(use["window_ms"] / 1000 / step_s), 1) * step_s
            at_s = use["time_ms"] // 1000 // step_s * step_s
            in_use.update(range(at_s, at_s + step_s))
            for second in range(at_s, at_s + window_s):
                per_s[second] += Fraction(use["used"], window_s)
                in_window[second] += use["used"]
            if use["limit"] is not None:
                limits[at_s] = max(limits.get(at_s, 0), use["limit"])
        for second in sorted(per_s):
            rate = float(per_s[second]) * uses[0]["per_used"]
            limit = next((limits[at_s] for at_s in sorted(limits, reverse=True) if at_s <= second), None)
            line = found.setdefault(
                (hour_of(second * 1000), name),
                {"values": Counter(), "over_s": 0, "busy_s": 0, "used_s": 0, "max": None, "most_window": 0},
            )
            share = rate / limit if limit else None
            line["busy_s"] += 1
            line["used_s"] += second in in_use
            line["most_window"] = max(line["most_window"], in_window[second] * uses[0]["per_used"])
            line["limit"] = limit
            if share is not None:
                line["values"][rounded(share)] += 1
                line["over_s"] += share > 1
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
    """Return by hour, counter, client (or all unnamed ones), whether it is these, and victim the mutes laid to it."""
    charged: defaultdict[tuple[int, Name], defaultdict[int, defaultdict[Any, list[int]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(lambda: [0, 0]))
    )
    for charge in charges(documents):
        if charge["role"] != "shadow" and charge["kind"] != "connection":
            at = charged[hour_of(charge["time_ms"]), charge["name"]][charge["time_ms"] // 10_000]
            both = at[charge["user"], charge["client_id"]]
            both[0] += charge["used"]
            both[1] += charge["muted_ms"]
    found: defaultdict[tuple[Any, ...], float] = defaultdict(float)
    for key, moments_ in charged.items():
        shares: dict[Any, float] = {}
        laid = []  # the shares and the mutes of each moment
        for _, clients in sorted(moments_.items()):
            if total := sum(used for used, _ in clients.values()):
                shares = {who: used / total for who, (used, _) in clients.items() if used}
            laid += [(shares, {who: muted_ms for who, (_, muted_ms) in clients.items() if muted_ms})]
        weights: defaultdict[Any, float] = defaultdict(float)
        for shares, mutes in laid:
            for who, share in shares.items():
                weights[who] += share * sum(mutes.values())
        matter = {who for shares, mutes in laid if mutes for who, share in shares.items() if share >= 0.05}
        named = sorted(matter, key=lambda who: (-weights[who], who))[:20]
        for shares, mutes in laid:
            for victim, muted_ms in mutes.items():
                rest = 1.0
                for who in {*named, victim} & shares.keys():
                    found[*key, *who, False, *victim] += muted_ms * shares[who]
                    rest -= shares[who]
                if rest > 1e-12:
                    found[*key, None, None, True, *victim] += muted_ms * rest
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
