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
_MOST_NAMED: Final = 20

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
    """Return sums that stop at MOST_SUM: forged numbers must not overflow. No row has a null in these columns."""
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
_OF_COUNTER: Final = ", ".join(f"any_value({name}) AS {name}" for name in _COUNTER.split(", "))
counters: Final = Table(
    "counters",
    f"""SELECT *, first_client <> last_client AS is_shared FROM (
        SELECT /*+ BROADCAST(clocks) */ date, hour, counter, {_OF_COUNTER}, max(window_ms) AS window_ms,
            max(interval_ms) AS interval_ms, min(struct(user, client_id)) AS first_client,
            max(struct(user, client_id)) AS last_client
        FROM charged JOIN clocks USING (cluster, instance) WHERE role <> 'shadow' GROUP BY date, hour, counter)""",
    f"""SELECT counter, {_OF_COUNTER}, max(window_ms) AS window_ms, max(interval_ms) AS interval_ms,
        min(first_client) AS first_client, max(last_client) AS last_client,
        min(first_client) <> max(last_client) AS is_shared FROM hours GROUP BY counter""",
)

# Use enters the sum of its proxy's window with its interval (slot), and leaves it a window later. Several proxies, with
# intervals of different lengths, may use one counter: times are in seconds, and use per second of each window is added
# up. The last change of a second holds until the next one (the others last 0 seconds). A change by nothing ends a run
# at the hour.
_TO_NEXT_HOUR: Final = "IF(at_s % 3600 + window_s > 3600, 3600 - at_s % 3600, NULL)"
_MOST: Final = "limit * window_s"
"""What the limit allows in a window."""
# A sum of use is exact, and one of quotients is not: it is taken only where windows differ.
_SHARE: Final = f"IF(abs(used - rate * window_s) < {_MOST} * 1e-9, used, rate * window_s) / ({_MOST})"
_LEVEL: Final = "pow(2, least(8 - floor(log2(share)), 10))"
_ROUNDED: Final = f"IF(share IS NULL, NULL, CAST(greatest(round(share * {_LEVEL}), 1) / {_LEVEL} AS FLOAT))"
_ADDED_UP: Final = """sum(over_s) AS over_s, sum(busy_s) AS busy_s, sum(used_s) AS used_s, max(max) AS max,
    max(most_window) AS most_window, max_by(limit, last_ms) AS limit, max(last_ms) AS last_ms"""
_SPREAD: Final = """coalesce(transform(pairs, x -> x.value), CAST(array() AS ARRAY<FLOAT>)) AS values,
    coalesce(transform(pairs, x -> CAST(x.seconds AS INT)), CAST(array() AS ARRAY<INT>)) AS seconds"""
_SCALARS: Final = "over_s, busy_s, used_s, max, most_window, limit, last_ms"
readings: Final = Table(
    "readings",
    f"""
    WITH used AS (
        SELECT *, unix_millis(time) DIV 1000 DIV interval_s * interval_s AS at_s,
            CAST(greatest(round(window_ms / (interval_s * 1000)), 1) AS BIGINT) * interval_s AS window_s
        FROM (
            SELECT /*+ REPARTITION(counter), BROADCAST(clocks) */ counter, time, per_used, window_ms, limit,
                CAST(used AS DOUBLE) AS used, clocks.interval_ms DIV 1000 AS interval_s
            FROM charges JOIN clocks USING (cluster, instance) WHERE used > 0 AND role <> 'shadow')),
    changes AS (
        SELECT counter, per_used, window_s, at_s + later AS at_s, change,
            IF(later = 0, at_s + interval_s, NULL) AS used_until_s, IF(later = 0, limit, NULL) AS limit
        FROM used LATERAL VIEW stack(3, 0L, used, window_s, -used, {_TO_NEXT_HOUR}, 0D) AS later, change
        WHERE later IS NOT NULL),
    runs AS (
        SELECT counter, at_s, window_s, lead(at_s) OVER (in_order) - at_s AS seconds,
            sum(change) OVER (past) * per_used AS used, sum(change / window_s) OVER (past) * per_used AS rate,
            max(used_until_s) OVER (past) AS used_until_s, last(limit, true) OVER (past) AS limit
        FROM changes WINDOW in_order AS (PARTITION BY counter ORDER BY at_s, limit),
            past AS (PARTITION BY counter ORDER BY at_s, limit ROWS UNBOUNDED PRECEDING)),
    shares AS (
        SELECT *, CAST(timestamp_seconds(at_s) AS DATE) AS date, hour(timestamp_seconds(at_s)) AS hour,
            IF(limit > 0, {_SHARE}, NULL) AS share
        FROM runs WHERE used > 0 AND seconds > 0),
    steps AS (
        SELECT date, hour, counter, {_ROUNDED} AS value, sum(seconds) AS seconds,
            sum(IF(share > 1, seconds, 0)) AS over_s, sum(greatest(least(used_until_s - at_s, seconds), 0)) AS used_s,
            max(share) AS max, max(used) AS most_window, max_by(limit, at_s) AS limit, max(at_s) * 1000 AS last_ms
        FROM shares WHERE {{due}} GROUP BY ALL)
    SELECT date, hour, counter, {_SPREAD}, {_SCALARS} FROM (
        SELECT date, hour, counter, {_ADDED_UP},
            sort_array(collect_list(IF(value IS NULL, NULL, struct(value, seconds)))) AS pairs
            FROM (SELECT *, seconds AS busy_s FROM steps) GROUP BY date, hour, counter)""",
    f"""
    WITH steps AS (
        SELECT counter, pair.values AS value, sum(pair.seconds) AS seconds
        FROM hours LATERAL VIEW explode(arrays_zip(values, seconds)) AS pair GROUP BY counter, pair.values)
    SELECT counter, {_SPREAD}, {_SCALARS} FROM (SELECT counter, {_ADDED_UP} FROM hours GROUP BY counter)
        LEFT JOIN (
            SELECT counter, sort_array(collect_list(struct(value, seconds))) AS pairs FROM steps GROUP BY counter)
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

# A mute is laid to the clients that used the counter in the same moment, or in the last one before with any use: muted
# clients use nothing. A client is named if its share matters in any of these; all others are one row, so that the work
# is no square of the clients. A victim's own part is always a row: the parts of its muted time add up to the whole.
_OF_HOUR: Final = "date, hour, counter"
_SHARED: Final = "counter, kind, user, client_id, is_rest, victim_user, victim_client_id"
shared: Final = Table(
    "shared",
    f"""
    WITH used AS (
        SELECT {_OF_HOUR}, kind, struct(user, client_id) AS who, unix_seconds(time) DIV {_MOMENT_S} AS moment,
            sum(CAST(used AS DOUBLE)) AS used, sum(muted_ms) AS muted_ms
        FROM (SELECT * FROM charges WHERE {{due}} AND role <> 'shadow' AND kind <> 'connection')
        LEFT SEMI JOIN (SELECT DISTINCT {_OF_HOUR} FROM muted) USING ({_OF_HOUR})
        GROUP BY {_OF_HOUR}, kind, user, client_id, moment),
    laid AS (
        SELECT {_OF_HOUR}, kind, who, used_at, sum(used) AS used, sum(muted_ms) AS muted_ms
        FROM (
            SELECT *, max(IF(used > 0, moment, NULL)) OVER (PARTITION BY {_OF_HOUR} ORDER BY moment) AS used_at
            FROM used)
        GROUP BY {_OF_HOUR}, kind, who, used_at),
    shares AS (
        SELECT *, coalesce(try_divide(used, sum(used) OVER at_once), 0) AS share,
            sum(muted_ms) OVER at_once AS muted_by_all_ms
        FROM laid WINDOW at_once AS (PARTITION BY {_OF_HOUR}, used_at)),
    sums AS (
        SELECT *, max(IF(muted_by_all_ms > 0, share, 0)) OVER by_who >= {_LEAST_SHARE} AS matters,
            sum(share * muted_by_all_ms) OVER by_who AS caused_ms
        FROM shares WINDOW by_who AS (PARTITION BY {_OF_HOUR}, who)),
    told AS (
        SELECT *, matters AND dense_rank() OVER (
            PARTITION BY {_OF_HOUR} ORDER BY matters DESC, caused_ms DESC, who) <= {_MOST_NAMED} AS is_named
        FROM sums),
    victims AS (
        SELECT *, IF(is_named, 0, share) AS own,
            collect_list(IF(is_named AND share > 0, struct(who, 1L AS clients, share), NULL)) OVER at_once AS named,
            coalesce(sum(IF(is_named, 0, share)) OVER at_once, 0) AS rest,
            count_if(NOT is_named AND share > 0) OVER at_once AS clients
        FROM told WINDOW at_once AS (PARTITION BY {_OF_HOUR}, used_at))
    SELECT {_OF_HOUR}, kind, part.who.user, part.who.client_id, part.who IS NULL AS is_rest,
        max(part.clients) AS clients, who.user AS victim_user, who.client_id AS victim_client_id,
        sum(muted_ms * part.share) AS caused_ms
    FROM victims LATERAL VIEW explode(concat(named, array(
        struct(IF(own > 0, who, NULL) AS who, 1L AS clients, own AS share),
        struct(NULL AS who, clients - IF(own > 0, 1, 0) AS clients,
            IF(used_at IS NULL, 1, rest - own) AS share)))) AS part
    WHERE muted_ms > 0 AND part.share > 0
    GROUP BY {_OF_HOUR}, kind, part.who, who""",
    f"""SELECT {_SHARED}, max(clients) AS clients, sum(caused_ms) AS caused_ms FROM hours GROUP BY {_SHARED}""",
)

users: Final = Table(
    "users",
    f"""SELECT date, hour, cluster, user, exempt, {_sums(_MOVED)}, min(begin_ms) AS begin_ms, max(end_ms) AS end_ms
        FROM client GROUP BY date, hour, cluster, user, exempt""",
    "",
)

documents: Final = Table("documents", "SELECT * EXCEPT (batch) FROM documents", "")

TABLES: Final = (client, charged, counters, readings, muted, moments, shared, users, documents)
