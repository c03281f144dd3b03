"""Who was muted, how long and by whose use, in plain Python over documents."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from tests.analysis.report.charged import (
    CLIENT,
    HELD,
    HOUR_MS,
    Charged,
    Row,
    at,
    grouped,
    is_quota,
    limits_of,
    named,
    total,
)


class Muted(Charged):
    """Tables of mutes, and of one client."""

    def episodes(self) -> list[Row]:
        keys = ("cluster", "broker", "user", "client_id", "kind", "rule", "mode")
        held = [each for each in self.charges if is_quota(each) and each["muted_ms"]]
        found = []
        for key, some in grouped(held, keys).items():
            parts: list[list[Row]] = []
            until_ms = -math.inf
            for each in sorted(some, key=lambda each: (each["time_ms"], each["interval_ms"])):
                if each["time_ms"] - until_ms > self.gap_ms:
                    parts.append([])
                parts[-1].append(each)
                until_ms = max(until_ms, each["time_ms"] + each["interval_ms"])
            for part in parts:
                of_bytes = key[4] in ("produce", "fetch")
                found.append(
                    {
                        **dict(zip(keys, key, strict=True)),
                        **total(part, HELD),
                        "begin": at(part[0]["time_ms"]),
                        "end": at(max(each["time_ms"] + each["interval_ms"] for each in part)),
                        "bytes": sum(each["used"] for each in part) if of_bytes else None,
                        "limit": limits_of(part)["least_limit"],
                        "instances": len({each["instance"] for each in part}),
                        "counters": len({each["counter"] for each in part}),
                    }
                )
        return found

    def muted_steps(self) -> list[Row]:
        keys = (*CLIENT, "broker", "kind", "rule")
        held = grouped((each for each in self.charges if is_quota(each) and each["muted_ms"]), keys)
        sums = {key: sum(each["muted_ms"] for each in some) for key, some in held.items()}
        found = []
        for key in sorted(sums, key=lambda key: -sums[key])[:20]:
            steps: Counter[int] = Counter()
            for each in held[key]:
                steps[each["time_ms"] // 1000 // self.step_s * self.step_s] += each["muted_ms"]
            found += [
                {**dict(zip(keys, key, strict=True)), "in_all_ms": sums[key], "at_s": at_s}
                | {"share": min(muted_ms / (self.step_s * 1000), 1)}
                for at_s, muted_ms in steps.items()
            ]
        return found

    def caused(self, is_own: Callable[[Row], bool] | None = None) -> list[Row]:
        """With ``is_own``, of one client alone: as victim or as cause."""
        parts: defaultdict[tuple[Any, ...], list[float]] = defaultdict(lambda: [0.0, 0.0])
        charges = [each for each in self.charges if is_quota(each)]
        hours = ({**each, "hour": each["time_ms"] // HOUR_MS} for each in charges)
        for (_, counter), some in grouped(hours, ("hour", "counter")).items():
            for (cause, victim), (laid_ms, number) in _laid(some).items():
                part = parts[counter, cause, victim]
                part[0] += laid_ms
                part[1] = max(part[1], number)
        muted: defaultdict[tuple[Any, ...], float] = defaultdict(float)
        for (counter, _, victim), (ms, _) in parts.items():
            muted[counter, victim] += ms
        found = []
        for (counter, cause, victim), (ms, clients) in parts.items():
            user, client_id = cause or (None, None)
            line = {name: named(counter)[name] for name in ("kind", "cluster", "broker", "rule")}
            line |= {"counter": counter, "user": user, "client_id": client_id, "is_rest": cause is None}
            line |= {"clients": clients, "is_itself": cause == victim, "caused_ms": ms}
            line |= {"victim_user": victim[0], "victim_client_id": victim[1], "muted_ms": muted[counter, victim]}
            own = is_own is not None and is_own({"user": victim[0], "client_id": victim[1]})
            if is_own is None or own or is_own({"user": user, "client_id": client_id}):
                found.append({**line, "victim_is_own": own})
        return found

    def client_use(self, is_own: Callable[[Row], bool]) -> list[Row]:
        own = {each["counter"] for each in self.charges if is_own(each)}
        charges = [each for each in self.charges if each["counter"] in own and each["role"] != "shadow"]
        in_all: Counter[tuple[Any, ...]] = Counter()
        for each in charges:
            in_all[each["counter"]] += each["used"] if is_own(each) else 0
        hours = ({**each, "at_s": each["time_ms"] // HOUR_MS * 3600} for each in charges)
        found = []
        for (counter, at_s), some in grouped(hours, ("counter", "at_s")).items():
            mine = [each for each in some if is_own(each)]
            sums = total(mine, ("used", "muted_ms")) if mine else {"used": None, "muted_ms": None}
            line = {name: named(counter)[name] for name in ("kind", "broker", "rule")} | {"counter": counter}
            line |= {"at_s": at_s, **sums, "used_by_all": sum(each["used"] for each in some), **limits_of(some)}
            found.append({**line, "in_all": in_all[counter], "per_used": some[0]["per_used"]})
        return found

    def company(self, is_own: Callable[[Row], bool]) -> list[Row]:
        own = {each["counter"] for each in self.charges if is_own(each)}
        keys = ("counter", "user", "client_id")
        caused = self.caused(is_own)
        others = [
            each
            for each in self.charges
            if each["counter"] in own and each["role"] != "shadow" and not is_own(each) and each["rule"] is not None
        ]
        by_them = grouped((each for each in caused if each["victim_is_own"]), (*keys, "is_rest"))
        by_us = grouped(
            (each for each in caused if not each["victim_is_own"]), ("counter", "victim_user", "victim_client_id")
        )

        def ms(of: list[Row] | None) -> float | None:
            return None if of is None else sum(each["caused_ms"] for each in of)

        found = []
        for key, some in grouped(others, keys).items():
            line = dict(zip(keys, key, strict=True)) | {
                "is_rest": False,
                "clients": 1,
                **total(some, ("used", "muted_ms")),
            }
            found.append(
                {**line, "caused_ms": ms(by_them.get((*key, False))), "caused_by_client_ms": ms(by_us.get(key))}
            )
        for (counter, *_, is_rest), some in by_them.items():
            if is_rest:
                line = {
                    "counter": counter,
                    "user": None,
                    "client_id": None,
                    "is_rest": True,
                    "used": None,
                    "muted_ms": None,
                }
                line |= {"clients": max(each["clients"] for each in some), "caused_ms": ms(some)}
                found.append({**line, "caused_by_client_ms": None})
        return [
            {**each, **{name: named(each["counter"])[name] for name in ("kind", "broker", "rule")}} for each in found
        ]


def _laid(charges: Iterable[Row]) -> dict[tuple[Any, Any], tuple[float, int]]:
    """Of an hour and a counter: muted time by cause (None: the others) and victim, and how many clients a cause is."""
    moments: defaultdict[int, defaultdict[Any, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for each in charges:
        of = moments[each["time_ms"] // 10_000][each["user"], each["client_id"]]
        of["used"] += each["used"]
        of["muted_ms"] += each["muted_ms"]
    shares: dict[Any, float] = {}
    laid = []
    for _, clients in sorted(moments.items()):
        if used := sum(each["used"] for each in clients.values()):
            shares = {who: each["used"] / used for who, each in clients.items() if each["used"]}
        laid.append((shares, {who: each["muted_ms"] for who, each in clients.items() if each["muted_ms"]}))
    weights: defaultdict[Any, float] = defaultdict(float)
    for shares, mutes in laid:
        for who, share in shares.items():
            weights[who] += share * sum(mutes.values())
    matter = {who for shares, mutes in laid if mutes for who, share in shares.items() if share >= 0.05}
    names = sorted(matter, key=lambda who: (-weights[who], who))[:20]
    found: dict[tuple[Any, Any], tuple[float, int]] = {}

    def add(cause: Any, victim: Any, ms: float, clients: int) -> None:
        before = found.get((cause, victim), (0.0, 0))
        found[cause, victim] = (before[0] + ms, max(before[1], clients))

    for shares, mutes in laid:
        for victim, muted_ms in mutes.items():
            own = {*names, victim} & shares.keys()
            for who in own:
                add(who, victim, muted_ms * shares[who], 1)
            others = shares.keys() - own
            if others or not shares:
                add(None, victim, muted_ms * (sum(shares[who] for who in others) if shares else 1), len(others))
    return found
