"""What a client's limits would have done at a half to four times what they are: replayed as what-if replays quotas.

The quotas that are replayed are those that rows name: the last rule of whoever is charged to a counter of the client,
with its last limit. Those of the client are scaled, the others stay. Whoever had no limit of a kind at the end is not
charged for it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from analysis.client.charged import charged, read
from analysis.client.counters import Panel
from analysis.kernel.units import Rule, read_rule
from analysis.replay.recording import Circumstances, Recording
from analysis.replay.recording import read as read_recording
from analysis.table.arrays import with_columns
from analysis.table.exchange import collected
from analysis.table.parquet import plain
from analysis.table.scan import UsageRows
from analysis.table.schema import COUNT, LIMIT, TEXT
from analysis.whatif.job import whatif
from analysis.whatif.scenarios import Scenario
from quotas.entities import Entity, Group
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms

_KINDS: Final = {kind.row.word: kind for kind in QuotaKind}
FACTORS: Final = (0.5, 0.75, 1.0, 1.5, 2.0, 4.0)
_WHO: Final = ("kind", "cap", "cluster", "instance", "broker", "user", "client_id", "ip", "rule")
_SCHEMA: Final = pa.schema(
    [
        *(("kind", TEXT), ("cap", pa.bool_()), ("cluster", TEXT), ("instance", TEXT), ("broker", pa.int32())),
        *((name, TEXT) for name in ("user", "client_id", "ip", "rule")),
        *(("time_ms", COUNT), ("limit", LIMIT)),
    ]
)


@dataclass(frozen=True, slots=True)
class Scaled:
    """The answer: ``rows`` are those of ``WhatIf.units`` for the client's counters, with their ``factor``."""

    rows: Sequence[Mapping[str, Any]]
    notes: Sequence[str]


def scaled(
    members: UsageRows, mine: Sequence[Panel], circumstances: Circumstances, capped: Sequence[str]
) -> Scaled | None:
    """Replay the rows of all who are charged to the counters of a client; None where nothing limited it at the end."""
    kinds = sorted({panel.last.kind for panel in mine})
    held = _held(mine)
    if not held:
        return None
    last = _last(members, kinds, capped)
    policies = [_policy(last, held, factor) for factor in FACTORS]
    of_kinds = [kind for kind in QuotaKind if kind.row.word in kinds]
    recording = _without_the_unlimited(read_recording(members, of_kinds, circumstances), last)
    names = {f"{factor:g}": factor for factor in FACTORS}
    found = whatif(recording, [Scenario(name, policy) for name, policy in zip(names, policies, strict=True)])
    rows = [{**row, "factor": names[row["scenario"]]} for row in found.units.to_pylist() if _is_one_of(row, mine, held)]
    notes = [f"{each.kind}: {each.reason}" for each in found.left_out if each.scenario == "1"]
    return Scaled(rows, tuple(dict.fromkeys(notes)))


def _held(mine: Sequence[Panel]) -> set[tuple[str, str]]:
    """Return (kind, rule) of what is scaled: the quotas of each kind, and where there is none the caps."""
    quotas = {(each.last.kind, each.last.rule) for each in mine if each.last.rule and not each.last.cap}
    of_caps = {(each.last.kind, each.last.rule) for each in mine if each.last.rule and each.last.cap}
    has_quota = {kind for kind, _ in quotas}
    return {(kind, rule) for kind, rule in (*quotas, *(each for each in of_caps if each[0] not in has_quota)) if rule}


@dataclass(frozen=True, slots=True)
class _Last:
    """The last rules of whoever is charged to a counter: (kind, rule) with the limit, and the users of each group."""

    limits: Mapping[tuple[str, str], float]
    users: Mapping[str, Sequence[str]]
    unlimited: frozenset[tuple[object, ...]]
    """(kind, cluster, instance, broker, user, client-id, ip) of those without a limit at the end."""


def _last(members: UsageRows, kinds: Sequence[str], capped: Sequence[str]) -> _Last:
    work = _Rules(tuple(kinds), tuple(capped))
    found = collected(members, read(kinds, capped), work, _SCHEMA, _newest)
    by_client: dict[tuple[object, ...], list[dict[str, Any]]] = {}
    for row in found.to_pylist():
        who = tuple(row[name] for name in ("kind", *_WHO[2:-1]))
        by_client.setdefault(who, []).append(row)
    limits: dict[tuple[str, str], tuple[int, float]] = {}
    group_of: dict[str, tuple[int, str]] = {}
    unlimited = set()
    for who, of_client in by_client.items():
        at = max(row["time_ms"] for row in of_client)
        now = [
            row for row in of_client if row["time_ms"] == at and row["rule"] is not None and row["limit"] is not None
        ]
        if not now:
            unlimited.add(who)
        for row in now:
            key = (row["kind"], row["rule"])
            limits[key] = max(limits.get(key, (0, 0.0)), (at, row["limit"]))
            rule = _read(row["rule"])
            if rule is not None and isinstance(rule.entity.user, Group):
                user = row["user"]
                group_of[user] = max(group_of.get(user, (0, "")), (at, rule.entity.user.name))
    users: dict[str, list[str]] = {}
    for user, (_, group) in sorted(group_of.items()):
        users.setdefault(group, []).append(user)
    return _Last({key: limit for key, (_, limit) in limits.items()}, users, frozenset(unlimited))


@dataclass(frozen=True, slots=True)
class _Rules:
    kinds: tuple[str, ...]
    capped: tuple[str, ...]

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for table in tables:
            for kind, cap, rows in charged(table, self.kinds, self.capped):
                values = {"kind": pa.array([kind] * len(rows), TEXT), "cap": pa.array([cap] * len(rows))}
                yield _newest(with_columns(plain(rows), values))


def _newest(rows: pa.Table) -> pa.Table:
    newest = rows.sort_by("time_ms").group_by(list(_WHO), use_threads=False)
    return newest.aggregate([("time_ms", "last"), ("limit", "last")]).rename_columns([*_WHO, "time_ms", "limit"])


def _policy(last: _Last, held: set[tuple[str, str]], factor: float) -> Policy:
    """Return the quotas as they were at the end, those in ``held`` times a factor."""
    limits: dict[Entity, dict[QuotaKind, float]] = {}
    terms: dict[Entity, Terms] = {}
    groups = {group: list(users) for group, users in last.users.items()}
    for (kind, text), limit in last.limits.items():
        rule = _read(text)
        if rule is None:
            continue
        entity, shared = rule
        scale = factor if (kind, text) in held else 1.0
        limits.setdefault(entity, {})[_KINDS[kind]] = limit * scale
        if not shared:
            terms[entity] = Terms(shared=False)
        if isinstance(entity.user, Group):
            groups.setdefault(entity.user.name, [])
    return Policy(limits, terms, groups)


def _read(text: str) -> Rule | None:
    try:
        return read_rule(text)
    except ValueError:  # of another product
        return None


def _without_the_unlimited(recording: Recording, last: _Last) -> Recording:
    """Return the recording without the use of those who had no limit of a kind at the end: nobody knows under which
    they would come.
    """
    places = recording.identities.select(["cluster", "instance"]).to_pylist()
    used = {}
    for kind, each in recording.used.items():
        row = kind.row
        counted = [
            (
                *(row.word, place["cluster"], place["instance"], -1 if row.of_cluster else client.broker),
                *((None, None, client.ip) if client.ip else (client.user, client.client_id, None)),
            )
            not in last.unlimited
            for place, client in zip(places, recording.clients, strict=True)
        ]
        used[kind] = replace(each, rows=np.where(counted, each.rows, 0))
    return replace(recording, used=used)


def _is_one_of(row: Mapping[str, Any], mine: Sequence[Panel], held: set[tuple[str, str]]) -> bool:
    """Return whether a unit of what-if is a counter of the client."""
    for panel in mine:
        last = panel.last
        rule = _read(last.rule or "")
        if rule is None or (last.kind, last.rule) not in held:
            continue
        place = (last.cluster, last.instance, last.broker)
        names = (f"cap:{last.unit_user}" if last.cap and last.unit_user else last.unit_user or "", last.unit_client_id)
        if (
            _KINDS[last.kind].value == row["kind"]
            and place == (row["cluster"], row["instance"], row["broker"])
            and rule.entity.describe() == row["rule"]
            and names[0] == row["user"]
            and (names[1] or "") == row["client_id"].removeprefix("cap:")
        ):
            return True
    return False
