"""A tall view of usage rows: a row for each quota kind with a value, each cap, and each limit in shadow.

No other module of gold has a case for a kind, a cap or an address. The columns are:

    date, hour, time, interval_ms, cluster, instance, broker, listener, user, client_id, ip, mode, exempt,
    owned
    kind         produce, fetch, request, mutation, connection
    role         quota: the one that won; cap: enforced besides it; shadow: measured, not enforced
    rule         as in usage records; null: no limit was in force, or it was in shadow
    unit_user    the user, group:NAME or ip:ADDRESS of the counter; null if that plays no role
    unit_client_id  the client-id or prefix* of the counter; null if that plays no role
    limit        in the kind's unit per second, on one broker; of mutations for the whole cluster (broker -1)
    used         in the unit of records: bytes, microseconds of threads, partitions, connections
    per_used     the limit's units times seconds for one of ``used``
    requests, throttled, throttle_ms, muted_ms
    window_ms    the window of enforcement
    counter      its number; one for each instance, broker and rule, or without a rule for each client; if brokers have
                 owners, one for all instances: a broker's counters are where its owner is
"""

from collections.abc import Collection, Iterable
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from quotas import kinds
from quotas.kinds import CLIENT_KINDS, Law, QuotaKind

Present = tuple[QuotaKind, str]
"""A kind and a role."""
KINDS: Final = tuple(QuotaKind)
"""The kinds with columns in usage records."""

_SAME: Final = "date, hour, time, interval_ms, cluster, instance, listener, user, client_id, ip, mode, exempt, owned"
BYTES: Final = ", ".join(f"'{kind.row.word}'" for kind in KINDS if kind.row.unit is kinds.BYTES)
"""The kinds that count bytes."""
MUTED_MS: Final = " + ".join(kind.row.columns.muted_ms for kind in KINDS)
"""The muted time of a row of ``usage``, for all kinds."""

_HELD: Final = ("throttled", "throttle_ms", "muted_ms")
_NAMES: Final = "kind, role, broker, rule, unit_user, unit_client_id"
_VALUES: Final = f"{_NAMES}, limit, used, per_used, requests, {', '.join(_HELD)}, window_ms"
_SAYS: Final = " OR ".join(f"{name} > 0" for name in ("used", *_HELD))

COUNTER: Final = "xxhash64(kind, cluster, IF(owned = 1, NULL, instance), broker, rule, unit_user, unit_client_id)"
_CAPS: Final = "array<struct<rule: string, limit: double, user: string, client_id: string>>"


def charges(spark: SparkSession, usage: str, present: Iterable[Present]) -> DataFrame:
    """Return the tall view of a view of rows; ``present`` has their kinds and roles, and may have more."""
    present = list(present)
    stacked = [_line(kind, role) for kind, role in present if role != "cap"] or [_line(KINDS[0], "quota")]
    same, values = (
        ", ".join(f"{of}.{each}" for each in names.split(", ")) for of, names in (("u", _SAME), ("c", _VALUES))
    )
    stack = f"LATERAL VIEW stack({len(stacked)}, {', '.join(stacked)}) c AS {_VALUES}"
    caps_of = [_of_caps(kind, usage) for kind, role in present if role == "cap"]
    parts = [f"SELECT {same}, {values} FROM {usage} u {stack}", *caps_of]
    return spark.sql(f"SELECT *, {COUNTER} AS counter FROM ({' UNION ALL '.join(parts)}) WHERE {_SAYS}")


def present_in(columns: Collection[str]) -> list[Present]:
    """Return the kinds and roles that files with these columns may have; an optional column has a value in its file."""
    quotas = [(kind, "quota", _figures(kind)) for kind in KINDS]
    shadows = [(kind, "shadow", kind.row.shadow_columns[:1]) for kind in CLIENT_KINDS]
    caps = [(kind, "cap", kind.row.cap_columns[:1]) for kind in CLIENT_KINDS]
    return [(kind, role) for kind, role, names in (*quotas, *shadows, *caps) if not set(names).isdisjoint(columns)]


def _figures(kind: QuotaKind) -> tuple[str, ...]:
    """Return the columns that a charge is of; all requests may be refused, and nothing used."""
    columns = kind.row.columns
    return columns.used, columns.throttled, columns.throttle_ms, columns.muted_ms


def _line(kind: QuotaKind, role: str) -> str:
    """Return _VALUES for the quota that won, without throttles by caps, or for a limit in shadow."""
    columns, row = kind.row.columns, kind.row
    if role == "shadow":
        limit, *held = row.shadow_columns
        rule, names = "CAST(NULL AS STRING)", "user, client_id"
    else:
        limit, rule, held = columns.limit, columns.rule, [columns.throttled, columns.throttle_ms, columns.muted_ms]
        names = "concat('ip:', ip), CAST(NULL AS STRING)"
        if not row.of_ip:
            of_user, of_client_id = columns.counter_user, columns.counter_client_id
            names = f"IF({rule} IS NULL, user, {of_user}), IF({rule} IS NULL, client_id, {of_client_id})"
            by_caps = row.cap_columns[2:]
            held = [f"greatest({in_all} - {cap}, 0)" for in_all, cap in zip(held, by_caps, strict=True)]
    used = columns.used if role == "quota" else f"IF({limit} IS NULL, 0, {columns.used})"
    requests = columns.used if row.of_ip else columns.requests
    return (
        f"'{row.word}', '{role}', {_broker(kind)}, {rule}, {names}, {limit}, {used}, {_per_used(kind)},"
        f" {requests}, {', '.join(held)}, {_window(kind)}"
    )


def _of_caps(kind: QuotaKind, usage: str) -> str:
    """Return a query with a row for each cap; the one that held longest in an interval gets all throttles of caps."""
    caps, longest, *held = kind.row.cap_columns
    columns = kind.row.columns
    did = ", ".join(f"IF(cap.rule <=> {longest}, {name}, 0)" for name in held)
    return f"""SELECT {_SAME}, '{kind.row.word}', 'cap', {_broker(kind)}, cap.rule, cap.user, cap.client_id, cap.limit,
        {columns.used}, {_per_used(kind)}, {columns.requests}, {did}, {_window(kind)}
        FROM {usage} LATERAL VIEW explode(from_json({caps}, '{_CAPS}')) t AS cap WHERE cap.rule IS NOT NULL"""


def _broker(kind: QuotaKind) -> str:
    return "-1" if kind.row.of_cluster else "broker"


def _per_used(kind: QuotaKind) -> str:
    return f"CAST({kind.row.unit.per_used!r} AS DOUBLE)"


def _window(kind: QuotaKind) -> str:
    whose = "controller_" if kind.row.law is Law.TOKEN_BUCKET else ""
    return f"{whose}samples * {whose}sample_ms"
