"""Stored rows in Spark, and two tall views: what rows were charged, and the counters that their names lead to.

No other module of gold has a case for a kind, a cap or an address. ``charges`` has, for each row, kind and role with a
value:

    date, hour, time, interval_ms
    line         the key, together with kind and role: what to join by
    limit        in the kind's unit per second, on one broker; of mutations for the whole cluster; null for caps
    used         in the unit of records: bytes, microseconds of threads, partitions, connections
    requests, throttled, throttle_ms, muted_ms

``rules`` has, for each line (of caps, each cap):

    line, key
    kind         produce, fetch, request, mutation, connection
    role         quota: the one that won; cap: enforced besides it; shadow: measured, not enforced
    rule         as in usage records; null: no limit was in force, or it was in shadow
    unit_user    the user, group:NAME or ip:ADDRESS of the counter; null if that plays no role
    unit_client_id  the client-id or prefix* of the counter; null if that plays no role
    broker       -1 for all brokers (mutations)
    per_used     the limit's units times seconds for one of ``used``
    window_ms    the window of enforcement
    cap_limit    the limit of a cap
    is_longest   false for caps but the one that held longest in these intervals: all throttles of caps are its
    counter      a number; one for each instance, broker and rule, or without a rule for each client; if brokers have
                 owners, one for all instances: a broker's counters are where its owner is
"""

from collections.abc import Collection
from hashlib import blake2b
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from analysis.schema import OPTIONAL
from quotas import kinds
from quotas.kinds import CLIENT_KINDS, Law, QuotaKind

Present = tuple[QuotaKind, str]
"""A kind and a role."""
KINDS: Final = tuple(QuotaKind)
"""The kinds with columns in usage records."""

BYTES: Final = ", ".join(f"'{kind.row.word}'" for kind in KINDS if kind.row.unit is kinds.BYTES)
"""The kinds that count bytes."""
MUTED_MS: Final = " + ".join(kind.row.columns.muted_ms for kind in KINDS)
"""The muted time of a row of ``usage``, for all kinds."""

_HELD: Final = ("throttled", "throttle_ms", "muted_ms")
_FIGURES: Final = f"line, limit, used, requests, {', '.join(_HELD)}"
_SAYS: Final = " OR ".join(f"{name} > 0" for name in ("used", *_HELD))
_RULE: Final = "line, kind, role, broker, per_used, window_ms, rule, unit_user, unit_client_id, cap_limit, is_longest"
_COUNTER: Final = "xxhash64(kind, cluster, IF(owned = 1, NULL, instance), broker, rule, unit_user, unit_client_id)"
_CAPS: Final = "array<struct<rule: string, limit: double, user: string, client_id: string>>"
_ANY: Final = ((KINDS[0], "quota"),)


def charges(spark: SparkSession, usage: DataFrame, present: Collection[Present]) -> DataFrame:
    """Return what rows were charged, for the kinds and roles that are ``present`` (there may be fewer in them)."""
    lines = [_figures(kind, role) for kind, role in present or _ANY]
    stack = f"stack({len(lines)}, {', '.join(lines)})"
    query = f"SELECT date, hour, time, interval_ms, c.* FROM {{usage}} LATERAL VIEW {stack} c AS {_FIGURES}"
    return spark.sql(f"{query} WHERE {_SAYS}", usage=usage)


def rules(spark: SparkSession, keys: DataFrame, present: Collection[Present]) -> DataFrame:
    """Return the counters that keys lead to."""
    lines = [_rule(kind, role) for kind, role in present if role != "cap"] or [_rule(*_ANY[0])]
    stack = f"stack({len(lines)}, {', '.join(lines)})"
    parts = [f"SELECT k.* EXCEPT (broker), r.* FROM {{keys}} k LATERAL VIEW {stack} r AS {_RULE}"]
    parts += [_of_caps(kind) for kind, role in present if role == "cap"]
    return spark.sql(f"SELECT key, {_RULE}, {_COUNTER} AS counter FROM ({' UNION ALL '.join(parts)})", keys=keys)


def with_defaults(rows: DataFrame) -> DataFrame:
    """Replace nulls of optional columns, which files lack if no row has a value, by their defaults."""
    optional: dict[str, bool | float | int | str] = {
        each.name: each.missing for each in OPTIONAL if each.missing is not None and each.name in rows.columns
    }
    return rows.fillna(optional)


def present_in(columns: Collection[str]) -> list[Present]:
    """Return the kinds and roles that files with these columns may have; an optional column has a value in its file."""
    quotas = [(kind, "quota", _used_or_held(kind)) for kind in KINDS]
    shadows = [(kind, "shadow", kind.row.shadow_columns[:1]) for kind in CLIENT_KINDS]
    caps = [(kind, "cap", kind.row.cap_columns[:1]) for kind in CLIENT_KINDS]
    return [(kind, role) for kind, role, names in (*quotas, *shadows, *caps) if not set(names).isdisjoint(columns)]


def _used_or_held(kind: QuotaKind) -> tuple[str, ...]:
    """Return the columns that a charge is of; all requests may be refused, and nothing used."""
    columns = kind.row.columns
    return columns.used, columns.throttled, columns.throttle_ms, columns.muted_ms


def _line(kind: QuotaKind, role: str) -> str:
    number = int.from_bytes(blake2b(f"{kind.row.word} {role}".encode(), digest_size=8).digest(), signed=True)
    return f"key ^ {number}L"


def _figures(kind: QuotaKind, role: str) -> str:
    """Return _FIGURES for the quota that won, without throttles by caps; for caps; or for a limit in shadow."""
    row, columns = kind.row, kind.row.columns
    limit, used = columns.limit, columns.used
    held = [columns.throttled, columns.throttle_ms, columns.muted_ms]
    if role == "shadow":
        limit, *held = row.shadow_columns
        used = f"IF({limit} IS NULL, 0, {used})"
    elif role == "cap":
        limit, held = "CAST(NULL AS DOUBLE)", [*row.cap_columns[2:]]
    elif not row.of_ip:
        held = [f"greatest({in_all} - {cap}, 0)" for in_all, cap in zip(held, row.cap_columns[2:], strict=True)]
    requests = columns.used if row.of_ip else columns.requests
    return f"{_line(kind, role)}, {limit}, {used}, {requests}, {', '.join(held)}"


def _rule(kind: QuotaKind, role: str) -> str:
    """Return _RULE for the quota that won, or for a limit in shadow."""
    columns = kind.row.columns
    rule, names = columns.rule, "concat('ip:', ip), CAST(NULL AS STRING)"
    if role == "shadow":
        rule, names = "CAST(NULL AS STRING)", "user, client_id"
    elif not kind.row.of_ip:
        of_user, of_client_id = columns.counter_user, columns.counter_client_id
        names = f"IF({rule} IS NULL, user, {of_user}), IF({rule} IS NULL, client_id, {of_client_id})"
    return f"{_begin(kind, role)}, {rule}, {names}, CAST(NULL AS DOUBLE), true"


def _of_caps(kind: QuotaKind) -> str:
    caps, longest, *_ = kind.row.cap_columns
    return f"""
        SELECT k.* EXCEPT (broker), {_begin(kind, "cap")}, cap.rule, cap.user, cap.client_id, cap.limit,
            cap.rule <=> {longest}
        FROM {{keys}} k LATERAL VIEW explode(from_json({caps}, '{_CAPS}')) t AS cap WHERE cap.rule IS NOT NULL"""


def _begin(kind: QuotaKind, role: str) -> str:
    """Return line, kind, role, broker, per_used and window_ms."""
    whose = "controller_" if kind.row.law is Law.TOKEN_BUCKET else ""
    broker = "-1" if kind.row.of_cluster else "broker"
    per_used = f"CAST({kind.row.unit.per_used!r} AS DOUBLE)"
    return f"{_line(kind, role)}, '{kind.row.word}', '{role}', {broker}, {per_used}, {whose}samples * {whose}sample_ms"
