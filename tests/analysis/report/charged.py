"""What usage documents say, charge by charge, in plain Python: nothing of the program is used."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

Row = dict[str, Any]
HOUR_MS: Final = 3_600_000
USED: Final = {
    "produce": ("produce_bytes", 1.0),
    "fetch": ("fetch_bytes", 1.0),
    "request": ("request_thread_us", 1e-4),
    "mutation": ("mutation_partitions", 1.0),
}
HELD: Final = ("throttled", "throttle_ms", "muted_ms")
MOVED: Final = ("bytes_in", "bytes_out", "requests")
CLIENT: Final = ("cluster", "user", "client_id")
STEPS_S: Final = (10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)


def charges_of(row: Row) -> Iterator[Row]:
    """What a row was charged: by the quota that won, by each cap, and by a limit in shadow."""
    for kind, (column, per_used) in USED.items():
        window_ms = (
            row["controller_samples"] * row["controller_sample_ms"]
            if kind == "mutation"
            else row["samples"] * row["sample_ms"]
        )
        same = {"kind": kind, "broker": -1 if kind == "mutation" else row["broker"], "per_used": per_used}
        same |= {"used": row[column], "requests": row[f"{kind}_requests"], "window_ms": window_ms}
        said = {name: row[f"{kind}_{name}"] for name in ("rule", "limit", "counter_user", "counter_client_id")}
        by_cap = {name: row[f"{kind}_cap_{name}"] for name in HELD}
        alone = {name: max(row[f"{kind}_{name}"] - by_cap[name], 0) for name in HELD}
        unit = (
            (row["user"], row["client_id"])
            if said["rule"] is None
            else (said["counter_user"], said["counter_client_id"])
        )
        yield {**same, "role": "quota", "rule": said["rule"], "limit": said["limit"], "unit": unit, **alone}
        for cap in json.loads(row[f"{kind}_caps"] or "[]"):
            did = by_cap if cap["rule"] == row[f"{kind}_cap_rule"] else dict.fromkeys(HELD, 0)
            unit = (cap["user"], cap["client_id"])
            yield {**same, "role": "cap", "rule": cap["rule"], "limit": cap["limit"], "unit": unit, **did}
        if (limit := row[f"{kind}_shadow_limit"]) is not None:
            would = {name: row[f"{kind}_shadow_{name}"] for name in HELD}
            unit = (row["user"], row["client_id"])
            yield {**same, "role": "shadow", "rule": None, "limit": limit, "unit": unit, **would}
    tried = row["connection_attempts"]
    held = {name: row[f"connection_{name}"] for name in HELD}
    same = {"kind": "connection", "broker": row["broker"], "per_used": 1.0, "used": tried, "requests": tried}
    same |= {"window_ms": row["samples"] * row["sample_ms"], "unit": (f"ip:{row['ip']}", None)}
    yield {**same, "role": "quota", "rule": row["connection_rule"], "limit": row["connection_limit"], **held}


def rows_of(documents: Iterable[Row]) -> Iterator[Row]:
    for each in documents:
        said = {name: value for name, value in each.items() if name != "rows"}
        for n in range(len(each["rows"]["listener"])):
            yield said | {name: values[n] for name, values in each["rows"].items()}


def grouped(found: Iterable[Row], keys: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    groups: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for each in found:
        groups[tuple(each[key] for key in keys)].append(each)
    return groups


def total(found: Iterable[Row], names: Iterable[str]) -> Row:
    listed = list(found)
    return {name: sum(each[name] for each in listed) for name in names}


def rounded(share: float) -> float:
    """256 steps an octave, or 1/1024 where these are finer; not 0."""
    level = 2.0 ** min(8 - math.floor(math.log2(share)), 10)
    return max(math.floor(share * level + 0.5), 1) / level


def at(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms // 1000, UTC) + timedelta(milliseconds=time_ms % 1000)


def named(counter: tuple[Any, ...]) -> Row:
    names = ("kind", "cluster", "broker", "rule", "unit_user", "unit_client_id")
    return {"counter": counter} | dict(zip(names, (*counter[:2], *counter[3:]), strict=True))


def is_quota(charge: Row) -> bool:
    return bool(charge["role"] != "shadow" and charge["kind"] != "connection")


def bytes_of(some: Iterable[Row]) -> int:
    return sum(each["bytes_in"] + each["bytes_out"] for each in some)


def limits_of(some: Iterable[Row]) -> Row:
    limits = [each["limit"] for each in some if each["limit"] is not None]
    return {"least_limit": min(limits, default=None), "most_limit": max(limits, default=None)}


class Charged:
    """Rows and charges of the hours from ``since_ms`` until ``until_ms``. A counter is what it counts together.

    ``is_late``: whether a document came after those of later hours.
    """

    def __init__(
        self, documents: Sequence[Row], since_ms: int, until_ms: int, is_late: Callable[[Row], bool], zone: tzinfo
    ) -> None:
        self.documents, self.since_ms, self.until_ms = documents, since_ms, until_ms
        self.is_late, self.zone = is_late, zone
        every = list(rows_of(documents))
        of_proxy: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)
        for row in every:
            of_proxy[row["cluster"], row["instance"]][max(round(row["interval_ms"] / 1000), 1)] += 1
        self.interval_s = {proxy: counts.most_common(1)[0][0] for proxy, counts in of_proxy.items()}
        self.every_charge = [
            {**row, **charge, "counter": self._counter(row, charge)}
            for row in every
            for charge in charges_of(row)
            if charge["used"] or any(charge[name] for name in HELD)
        ]
        self.rows = [row for row in every if self.is_in(row["time_ms"])]
        self.charges = [each for each in self.every_charge if self.is_in(each["time_ms"])]
        self.begin_ms = min(row["time_ms"] for row in self.rows)
        self.end_ms = max(row["time_ms"] + row["interval_ms"] for row in self.rows)
        self.gap_ms = max(row["samples"] * row["sample_ms"] for row in self.rows)
        length_s = (self.end_ms - self.begin_ms) / 1000
        self.step_s = next(step for step in STEPS_S if length_s / 180 <= step)

    def is_in(self, time_ms: int) -> bool:
        return self.since_ms <= time_ms < self.until_ms

    def _counter(self, row: Row, charge: Row) -> tuple[Any, ...]:
        instance = None if row["owned"] else row["instance"]
        return (charge["kind"], row["cluster"], instance, charge["broker"], charge["rule"], *charge["unit"])

    @cached_property
    def readings(self) -> dict[tuple[Any, ...], list[Row]]:
        """Of each counter the seconds with use in their window: share of the limit, limit, whether it was used then."""
        found: dict[tuple[Any, ...], list[Row]] = {}
        charges = [each for each in self.every_charge if each["role"] != "shadow" and each["used"]]
        for (counter,), uses in grouped(charges, ("counter",)).items():
            rate: defaultdict[int, Fraction] = defaultdict(Fraction)
            within: Counter[int] = Counter()
            in_use: set[int] = set()
            limits: dict[int, float] = {}
            for use in uses:
                step_s = self.interval_s[use["cluster"], use["instance"]]
                window_s = max(round(use["window_ms"] / 1000 / step_s), 1) * step_s
                at_s = use["time_ms"] // 1000 // step_s * step_s
                in_use |= {*range(at_s, at_s + step_s)}
                for second in range(at_s, at_s + window_s):
                    rate[second] += Fraction(use["used"], window_s)
                    within[second] += use["used"]
                if use["limit"] is not None:
                    limits[at_s] = max(limits.get(at_s, 0), use["limit"])
            per_used = uses[0]["per_used"]
            for second in sorted(rate):
                if self.is_in(second * 1000):
                    limit = next((limits[at_s] for at_s in sorted(limits, reverse=True) if at_s <= second), None)
                    share = float(rate[second]) * per_used / limit if limit else None
                    line = {"second": second, "share": share, "limit": limit, "is_used": second in in_use}
                    found.setdefault(counter, []).append(line | {"within": within[second] * per_used})
        return found
