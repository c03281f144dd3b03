"""The queries of gold tables: one makes hours from rows, the other a day from its hours.

Queries of hours read ``usage`` (rows of one date, with those of the window before), ``charges`` (``analysis.charges``),
``clocks``, and earlier tables of TABLES.
"""

from dataclasses import dataclass
from typing import Final

from analysis.charges import BYTES, MUTED_MS

WHO: Final = "cluster, instance, broker, listener, user, client_id, ip"
_SUMMED: Final = (
    "rows, active_ms, bytes_in, bytes_out, requests, request_time_ms, connections_opened, connections_refused,"
    " accept_waits, accept_wait_ms"
)
_HELD: Final = "throttled, throttle_ms, muted_ms"
MOST_SUM: Final = 2**60
"""An exbibyte, far below the maximum of a BIGINT."""
_MOMENT_S: Final = 10
_MOST_CLIENTS: Final = 20
_LEAST_SHARE: Final = 0.05

CLOCKS: Final = """
    SELECT cluster, instance, max_by(interval_ms, rows) AS interval_ms FROM (
        SELECT cluster, instance, interval_ms, sum(rows) AS rows FROM client GROUP BY ALL) GROUP BY ALL"""
"""The nominal interval of each proxy: that of most rows."""


@dataclass(frozen=True, slots=True)
class Table:
    """A gold table."""

    name: str
    hours: str
    """The query for hours, with ``date`` and ``hour``."""
    day: str
    """The query for a day over the view ``hours``; "": the concatenated hours."""
    is_kept: bool = False
    """Whether queries of later tables read it."""


def _sums(names: str) -> str:
    """Return sums that stop at MOST_SUM: forged numbers must not overflow."""
    return ", ".join(
        f"least(coalesce(try_sum({name}), {MOST_SUM}), {MOST_SUM}) AS {name}" for name in names.split(", ")
    )


_CLIENT: Final = f"{WHO}, mode, exempt, interval_ms, window_ms, sample_ms, controller_window_ms"
_CLIENT_OF_HOURS: Final = (
    f"{_sums(_SUMMED)}, max(connections) AS connections, min(begin_ms) AS begin_ms, max(end_ms) AS end_ms"
)
client: Final = Table(
    "client",
    f"""SELECT date, hour, {_CLIENT}, {_CLIENT_OF_HOURS} FROM (
        SELECT * EXCEPT (interval_ms, exempt), 1 AS rows, interval_ms AS active_ms, coalesce(exempt, false) AS exempt,
            CAST(greatest(round(interval_ms / 1000), 1) * 1000 AS BIGINT) AS interval_ms,
            samples * sample_ms AS window_ms,
            controller_samples * controller_sample_ms AS controller_window_ms,
            unix_millis(time) AS begin_ms, unix_millis(time) + interval_ms AS end_ms FROM usage)
        WHERE {{due}} GROUP BY date, hour, {_CLIENT}""",
    f"SELECT {_CLIENT}, {_CLIENT_OF_HOURS} FROM hours GROUP BY {_CLIENT}",
    is_kept=True,
)

_CHARGED: Final = f"{WHO}, mode, exempt, kind, role, rule, counter"
_CHARGED_SUMS: Final = (
    f"{_sums(f'used, requests, {_HELD}')}, first(unit_user) AS unit_user, first(unit_client_id) AS unit_client_id"
)
charged: Final = Table(
    "charged",
    f"""SELECT date, hour, {_CHARGED}, {_CHARGED_SUMS}, min(limit) AS least_limit, max(limit) AS most_limit,
        first(per_used) AS per_used, max(window_ms) AS window_ms
        FROM charges WHERE {{due}} GROUP BY date, hour, {_CHARGED}""",
    f"""SELECT {_CHARGED}, {_CHARGED_SUMS}, min(least_limit) AS least_limit, max(most_limit) AS most_limit,
        first(per_used) AS per_used, max(window_ms) AS window_ms FROM hours GROUP BY {_CHARGED}""",
    is_kept=True,
)

_COUNTER: Final = "kind, role, cluster, instance, broker, rule, unit_user, unit_client_id, per_used"
counters: Final = Table(
    "counters",
    f"""SELECT /*+ BROADCAST(clocks) */ date, hour, counter, {_COUNTER}, window_ms, interval_ms, first_client,
        last_client, first_client <> last_client AS is_shared FROM (
            SELECT date, hour, counter, any_value(kind) AS kind, any_value(role) AS role, any_value(cluster) AS cluster,
                any_value(instance) AS instance, any_value(broker) AS broker, any_value(rule) AS rule,
                any_value(unit_user) AS unit_user, any_value(unit_client_id) AS unit_client_id,
                any_value(per_used) AS per_used, max(window_ms) AS window_ms,
                min(struct(user, client_id)) AS first_client, max(struct(user, client_id)) AS last_client
            FROM charged WHERE role <> 'shadow' GROUP BY date, hour, counter) JOIN clocks USING (cluster, instance)""",
    f"""SELECT counter, {", ".join(f"any_value({name}) AS {name}" for name in _COUNTER.split(", "))},
        max(window_ms) AS window_ms, max(interval_ms) AS interval_ms, min(first_client) AS first_client,
        max(last_client) AS last_client, min(first_client) <> max(last_client) AS is_shared
        FROM hours GROUP BY counter""",
    is_kept=True,
)

# Use enters the sum of the window in its interval (slot) and leaves it a window later; the last change of a slot holds
# until the next one (the others last 0 intervals). Where a window reaches into the next hour, a change by nothing ends
# the run at the hour.
_HOUR_AFTER: Final = "(slot * interval_ms DIV 3600000 + 1) * 3600000"
_TO_NEXT_HOUR: Final = f"""IF((slot + whole - 1) * interval_ms >= {_HOUR_AFTER},
    ({_HOUR_AFTER} + interval_ms - 1) DIV interval_ms - slot, NULL)"""
_LEVEL: Final = "pow(2, least(8 - floor(log2(share)), 10))"
_ROUNDED: Final = f"IF(share IS NULL, NULL, CAST(greatest(round(share * {_LEVEL}), 1) / {_LEVEL} AS FLOAT))"
_ADDED_UP: Final = """sum(over) AS over, sum(busy) AS busy, sum(used_intervals) AS used_intervals, max(max) AS max,
    max(most_window) AS most_window, max_by(limit, last_ms) AS limit, max(last_ms) AS last_ms"""
_SPREAD: Final = """coalesce(transform(pairs, x -> x.value), CAST(array() AS ARRAY<FLOAT>)) AS values,
    coalesce(transform(pairs, x -> CAST(x.intervals AS INT)), CAST(array() AS ARRAY<INT>)) AS counts"""
_SCALARS: Final = "over, busy, used_intervals, max, most_window, limit, last_ms"
readings: Final = Table(
    "readings",
    f"""
    WITH used AS (
        SELECT /*+ REPARTITION(counter), BROADCAST(clocks) */ counter, per_used, interval_ms,
            CAST(used AS DOUBLE) AS used, limit, unix_millis(time) DIV interval_ms AS slot,
            CAST(greatest(round(window_ms / interval_ms), 1) AS BIGINT) AS whole
        FROM (SELECT * EXCEPT (interval_ms) FROM charges WHERE used > 0 AND role <> 'shadow')
        JOIN clocks USING (cluster, instance)),
    changes AS (
        SELECT counter, per_used, interval_ms, whole, slot + later AS slot, later = 0 AS is_used, change,
            IF(later = 0, limit, NULL) AS limit
        FROM used LATERAL VIEW stack(3, 0L, used, whole, -used, {_TO_NEXT_HOUR}, 0D) AS later, change
        WHERE later IS NOT NULL),
    runs AS (
        SELECT counter, slot * interval_ms AS begin_ms, is_used, lead(slot) OVER (in_order) - slot AS intervals,
            sum(change) OVER (past) * per_used AS used, last(limit, true) OVER (past) AS limit,
            whole * interval_ms AS window_ms
        FROM changes WINDOW in_order AS (PARTITION BY counter ORDER BY slot, is_used, limit),
            past AS (PARTITION BY counter ORDER BY slot, is_used, limit ROWS UNBOUNDED PRECEDING)),
    shares AS (
        SELECT *, CAST(timestamp_millis(begin_ms) AS DATE) AS date, hour(timestamp_millis(begin_ms)) AS hour,
            IF(limit > 0, used / (limit * window_ms / 1000), NULL) AS share
        FROM runs WHERE used > 0 AND intervals > 0),
    steps AS (
        SELECT date, hour, counter, {_ROUNDED} AS value, sum(intervals) AS intervals,
            sum(IF(share > 1, intervals, 0)) AS over, count_if(is_used) AS used_intervals, max(share) AS max,
            max(used) AS most_window, max_by(limit, begin_ms) AS limit, max(begin_ms) AS last_ms
        FROM shares WHERE {{due}} GROUP BY ALL)
    SELECT date, hour, counter, {_SPREAD}, {_SCALARS} FROM (
        SELECT date, hour, counter, {_ADDED_UP},
            sort_array(collect_list(IF(value IS NULL, NULL, struct(value, intervals)))) AS pairs
            FROM (SELECT *, intervals AS busy FROM steps) GROUP BY date, hour, counter)""",
    f"""
    WITH steps AS (
        SELECT counter, pair.values AS value, sum(pair.counts) AS intervals
        FROM hours LATERAL VIEW explode(arrays_zip(values, counts)) AS pair GROUP BY counter, pair.values)
    SELECT counter, {_SPREAD}, {_SCALARS} FROM (SELECT counter, {_ADDED_UP} FROM hours GROUP BY counter)
        LEFT JOIN (
            SELECT counter, sort_array(collect_list(struct(value, intervals))) AS pairs FROM steps GROUP BY counter)
        USING (counter)""",
)

muted: Final = Table(
    "muted",
    f"""SELECT date, hour, {WHO}, mode, kind, role, counter, rule, unix_millis(time) AS begin_ms,
        unix_millis(time) + interval_ms AS end_ms, used, IF(kind IN ({BYTES}), used, NULL) AS bytes, {_HELD}, limit
        FROM charges WHERE muted_ms > 0 AND {{due}}""",
    "",
    is_kept=True,
)

_MOVED: Final = "bytes_in, bytes_out, requests"
moments: Final = Table(
    "moments",
    f"""
    WITH moved AS (
        SELECT date, hour, cluster, user, client_id, sum(CAST(bytes_in AS DOUBLE) + bytes_out) AS bytes FROM client
        WHERE user IS NOT NULL GROUP BY date, hour, cluster, user, client_id),
    busiest AS (
        SELECT date, hour, cluster, user, client_id, false AS is_rest FROM (SELECT *, row_number() OVER (
            PARTITION BY date, hour ORDER BY bytes DESC, cluster, user, client_id) AS place FROM moved)
        WHERE place <= {_MOST_CLIENTS})
    SELECT /*+ BROADCAST(b) */ u.date, u.hour, u.cluster, broker, b.user, b.client_id, b.is_rest IS NULL AS is_rest,
        unix_seconds(time) DIV {_MOMENT_S} * {_MOMENT_S} AS at_s,
        {_sums(f"{_MOVED}, request_time_ms, muted_ms")}
    FROM (SELECT *, {MUTED_MS} AS muted_ms FROM usage WHERE {{due}}) u LEFT JOIN busiest b
        ON u.date = b.date AND u.hour = b.hour AND u.cluster = b.cluster AND u.user = b.user
            AND u.client_id = b.client_id
    GROUP BY u.date, u.hour, u.cluster, broker, b.user, b.client_id, b.is_rest IS NULL, at_s""",
    "",
)

_SHARED: Final = "counter, kind, user, client_id, victim_user, victim_client_id"
shared: Final = Table(
    "shared",
    f"""
    WITH held AS (SELECT DISTINCT m.date, m.hour, m.counter FROM muted m JOIN counters c
            ON c.date = m.date AND c.hour = m.hour AND c.counter = m.counter WHERE c.is_shared),
    used AS (
        SELECT /*+ BROADCAST(h) */ c.date, c.hour, c.counter, kind, user, client_id,
            unix_seconds(time) DIV {_MOMENT_S} AS moment, sum(CAST(used AS DOUBLE)) AS used, sum(muted_ms) AS muted_ms
        FROM (SELECT * FROM charges WHERE {{due}} AND role <> 'shadow') c JOIN held h
            ON c.date = h.date AND c.hour = h.hour AND c.counter = h.counter
        GROUP BY c.date, c.hour, c.counter, kind, user, client_id, moment),
    shares AS (SELECT *, try_divide(used, sum(used) OVER (PARTITION BY counter, moment)) AS share FROM used)
    SELECT o.date, o.hour, o.counter, o.kind, o.user, o.client_id, v.user AS victim_user,
        v.client_id AS victim_client_id, sum(v.muted_ms * o.share) AS caused_ms, sum(v.muted_ms) AS muted_ms
    FROM shares o JOIN shares v ON o.counter = v.counter AND o.moment = v.moment AND o.date = v.date AND o.hour = v.hour
    WHERE v.muted_ms > 0 AND o.share >= {_LEAST_SHARE} AND NOT (o.user <=> v.user AND o.client_id <=> v.client_id)
    GROUP BY o.date, o.hour, o.counter, o.kind, o.user, o.client_id, v.user, v.client_id""",
    f"SELECT {_SHARED}, sum(caused_ms) AS caused_ms, sum(muted_ms) AS muted_ms FROM hours GROUP BY {_SHARED}",
)

users: Final = Table(
    "users",
    f"""SELECT date, hour, cluster, user, exempt, {_sums(_MOVED)}, min(begin_ms) AS begin_ms, max(end_ms) AS end_ms
        FROM client GROUP BY date, hour, cluster, user, exempt""",
    "",
)

documents: Final = Table("documents", "SELECT * EXCEPT (batch) FROM documents", "")

TABLES: Final = (client, charged, counters, readings, muted, moments, shared, users, documents)
