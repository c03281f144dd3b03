"""Makes the tables of a report in DuckDB: schema ``gold`` has the period's gold, ``main`` the tables of ``sql/``."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from analysis.client_filter import ClientFilter, no_rows
from analysis.errors import AnalysisError
from analysis.warehouse import HOUR, TABLES, Gold, Period, nothing

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from analysis.report.rates import Rates

OF_PERIOD: Final = (
    *("talkers", "rules", "addresses", "limits", "headroom", "headroom_days", "trend"),
    *("episodes", "muted_steps", "caused", "over_time", "loss", "chargeback", "totals"),
)
"""In the order of their creation: later ones read earlier ones."""
OF_CLIENT: Final = ("client_use", "company")
COMPARISON: Final = ("compared_clients", "compared_limits", "compared_quotas")
OF_USERS: Final = timedelta(minutes=15)
"""The steps by which gold has the use of users; that of clients is by hours."""
_DAY: Final = timedelta(days=1)
_STEPS_S: Final = (10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
_MOST_STEPS: Final = 180
_HOUR_MS: Final = 3_600_000
_CHARGED: Final = {
    "bytes_in": ("Bytes sent to brokers", "Bytes"),
    "bytes_out": ("Bytes received from brokers", "Bytes"),
    "requests": ("Requests to brokers", "Requests"),
}
"""Items of chargeback: ChargeDescription and ConsumedUnit of FOCUS."""
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Span:
    """The time from the first row of a period to its last."""

    begin: datetime
    end: datetime
    gap_ms: int
    """The longest gap within an episode: the window of enforcement."""
    step_s: int
    """The step of plots."""

    @property
    def length(self) -> timedelta:
        return self.end - self.begin


def rows(connection: "DuckDBPyConnection", query: str) -> list[Row]:
    """Return the rows of a query as dictionaries."""
    found = connection.execute(query)
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def show(connection: "DuckDBPyConnection", found: Gold, period: Period, client: ClientFilter | None) -> None:
    """Create the views of gold, of one client or of all. Raises AnalysisError if the period has no records."""
    connection.execute("CREATE SCHEMA gold; SET schema = 'gold'")
    if not found.show(connection, period, [name for name in TABLES if name != "documents"], hourly=client is not None):
        raise nothing(found)
    # A gap is between two documents: also at the edges of the period.
    around = Period(period.begin and period.begin - HOUR, period.end and period.end + HOUR)
    found.show(connection, around, ["documents"])
    connection.execute("SET search_path = 'main,gold'")
    victim, either = "false", "true"
    if client is not None:
        _only(connection, client)
        victim, cause = ("false" if client.is_address else client.condition(prefix) for prefix in ("victim_", ""))
        either = f"{victim} OR {cause}"
    connection.execute(
        f"CREATE VIEW main.shared AS SELECT *, coalesce({victim}, false) AS victim_is_own FROM (SELECT *, "
        "sum(caused_ms) OVER (PARTITION BY counter, victim_user, victim_client_id) AS muted_ms FROM gold.shared) "
        f"WHERE {either}"
    )


def _only(connection: "DuckDBPyConnection", client: ClientFilter) -> None:
    """Create views of one client's rows; of counters and readings, those that the client is charged to."""
    is_own = client.condition()
    if not rows(connection, f"SELECT 1 FROM gold.client WHERE {is_own} LIMIT 1"):
        raise no_rows(client, {column: _known(connection, column) for column in client.names}, " in the period")
    own = "counter IN (SELECT counter FROM own_counters)"
    connection.execute(f"CREATE TABLE own_counters AS SELECT DISTINCT counter FROM gold.charged WHERE {is_own}")
    connection.execute(
        f"CREATE VIEW everybody AS SELECT *, coalesce({is_own}, false) AS is_own FROM gold.charged WHERE {own}"
    )
    for name in ("client", "charged", "muted"):
        connection.execute(f"CREATE VIEW main.{name} AS SELECT * FROM gold.{name} WHERE {is_own}")
    for name in ("counters", "readings"):
        connection.execute(f"CREATE VIEW main.{name} AS SELECT * FROM gold.{name} WHERE {own}")
    by_hours = """SELECT cluster, "user", client_id, exempt, date, hour, 0 AS minute, sum(bytes_in) AS bytes_in,
        sum(bytes_out) AS bytes_out, sum(requests) AS requests FROM main.client GROUP BY ALL"""
    connection.execute(f"CREATE VIEW main.users AS {by_hours}")
    moments = f"SELECT * FROM gold.moments WHERE {is_own}" if not client.is_address else "FROM gold.moments LIMIT 0"
    connection.execute(f"CREATE VIEW main.moments AS {moments}")


def _known(connection: "DuckDBPyConnection", column: str) -> list[str]:
    return [
        row["name"]
        for row in rows(
            connection, f'SELECT DISTINCT "{column}" AS name FROM gold.client WHERE "{column}" IS NOT NULL ORDER BY 1'
        )
    ]


def measure(connection: "DuckDBPyConnection", period: Period) -> Span:
    """Return the span of the period's rows, and set the variables that ``sql/`` reads."""
    (seen,) = rows(
        connection,
        "SELECT min(begin_ms) AS begin_ms, max(end_ms) AS end_ms, max(window_ms) AS window_ms FROM gold.client",
    )
    begin_ms, end_ms = seen["begin_ms"], seen["end_ms"]
    length_s = (end_ms - begin_ms) / 1000
    step_s = next((step for step in _STEPS_S if length_s / _MOST_STEPS <= step), _STEPS_S[-1])
    since_ms, until_ms = (
        None if each is None else round(each.timestamp() * 1000) for each in (period.begin, period.end)
    )
    values = {
        "begin_ms": begin_ms,
        "end_ms": end_ms,
        "since_ms": begin_ms // _HOUR_MS * _HOUR_MS if since_ms is None else since_ms,
        "until_ms": end_ms + _HOUR_MS if until_ms is None else until_ms,
        "days": length_s / 86_400,
        "gap_ms": seen["window_ms"],
        "step_s": step_s,
    }
    for name, value in values.items():
        connection.execute(f"SET VARIABLE {name} = {value}")
    begin, end = (datetime.fromtimestamp(each / 1000, UTC) for each in (begin_ms, end_ms))
    return Span(begin, end, seen["window_ms"], step_s)


def find_earlier_boots(connection: "DuckDBPyConnection", found: Gold) -> None:
    """Create ``earlier_boots``: the last ``seq`` and ``dropped`` before the period of boots whose first in it is not 0.

    Earlier documents are read only if there is such a boot.
    """
    connection.execute(
        "CREATE TABLE earlier_boots AS SELECT cluster, instance, boot, max(seq) AS seq FROM gold.documents "
        "GROUP BY cluster, instance, boot HAVING min(seq) > 0 AND arg_min(begin_ms, seq) >= getvariable('since_ms')"
    )
    first = rows(connection, "SELECT count(*) AS boots, min(date) AS date FROM earlier_boots, gold.documents")[0]
    earlier = "SELECT *, 0 AS dropped FROM earlier_boots LIMIT 0"
    if first["boots"]:
        since = datetime.fromisoformat(f"{first['date']}").replace(tzinfo=UTC)
        connection.execute("CREATE SCHEMA earlier; SET schema = 'earlier'")
        before = found.show(connection, Period(None, since + 24 * HOUR), ["documents"])
        connection.execute("SET search_path = 'main,gold'")
        if before:
            earlier = """SELECT d.cluster, d.instance, d.boot, max(d.seq) AS seq, max(d.dropped) AS dropped
                FROM earlier.documents d JOIN earlier_boots e USING (cluster, instance, boot)
                WHERE d.begin_ms < getvariable('since_ms') GROUP BY ALL"""
    connection.execute(f"CREATE OR REPLACE TABLE earlier_boots AS {earlier}")


def price(connection: "DuckDBPyConnection", rates: "Rates | None", days: "LocalDays") -> None:
    """Create ``rates``, and ``local_days`` with the begins of each local day and of its month. Raises AnalysisError."""
    connection.execute(
        "CREATE TABLE rates (sku VARCHAR, description VARCHAR, consumed_unit VARCHAR, per DOUBLE, "
        "pricing_unit VARCHAR, price DOUBLE, currency VARCHAR)"
    )
    for sku, (description, unit) in _CHARGED.items():
        rate = None if rates is None else rates.of.get(sku)
        priced = (None, None, None) if rate is None else (float(rate.per), rate.unit, float(rate.price))
        values = [sku, description, unit, *priced, rates and rates.currency]
        connection.execute("INSERT INTO rates VALUES (?, ?, ?, ?, ?, ?, ?)", values)
    connection.execute(
        "CREATE TABLE local_days (day DATE, day_ms BIGINT, next_day_ms BIGINT, month_ms BIGINT, next_month_ms BIGINT)"
    )
    (seen,) = rows(connection, "SELECT min(date) AS first, max(date) AS last FROM users")
    if lines := [] if seen["first"] is None else days.lines(seen["first"] - _DAY, seen["last"] + _DAY):
        connection.executemany("INSERT INTO local_days VALUES (?, ?, ?, ?, ?)", lines)


@dataclass(frozen=True, slots=True)
class LocalDays:
    """The days of a zone that a bill is of.

    Days before that of ``begin``, or after the last before ``end``, are not: periods are of full hours, and days of
    some zones begin between them.
    """

    zone: ZoneInfo
    step: timedelta
    """Use is known by steps of that length, at full multiples of it in UTC."""
    begin: datetime | None = None
    end: datetime | None = None

    def lines(self, first: date, last: date) -> list[list[Any]]:
        """Return lines of ``local_days``. Raises AnalysisError if a day begins within a step."""
        if self.begin is not None:
            first = max(first, self.begin.astimezone(self.zone).date())
        if self.end is not None:
            last = min(last, (self.end - timedelta(microseconds=1)).astimezone(self.zone).date())
        return [self._line(first + timedelta(days=number)) for number in range((last - first).days + 1)]

    def _line(self, day: date) -> list[Any]:
        month = day.replace(day=1)
        bounds = (day, day + _DAY, month, (month + timedelta(days=32)).replace(day=1))
        begins_s = [datetime(each.year, each.month, each.day, tzinfo=self.zone).timestamp() for each in bounds]
        if begins_s[0] % self.step.total_seconds():
            raise AnalysisError(
                f"--zone {self.zone.key}: {day} begins at {datetime.fromtimestamp(begins_s[0], UTC):%H:%M:%S} UTC, and "
                f"use is known by {self.step.seconds // 60} minutes: take another --zone"
            )
        return [day, *(round(each * 1000) for each in begins_s)]


def make(connection: "DuckDBPyConnection", names: Iterable[str], what: str = "TABLE main") -> None:
    """Create tables, or views, by their queries in ``sql/``."""
    for name in names:
        connection.execute(f"CREATE {what}.{name} AS {_sql(name)}")


def _sql(name: str) -> str:
    return files("analysis.report").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")


def reject(connection: "DuckDBPyConnection", found: Gold) -> list[str]:
    """Create the table of rejected documents if there are any; return its name."""
    connection.execute("SET schema = 'gold'")
    names = ["rejected"] if found.show_rejected(connection) else []
    connection.execute("SET search_path = 'main,gold'")
    make(connection, names)
    return names


def compare(connection: "DuckDBPyConnection", found: Gold, period: Period) -> Sequence[str]:
    """Create the tables that compare with the period before; return their names, none if nothing is stored of it."""
    connection.execute("CREATE SCHEMA gold_before; CREATE SCHEMA before; SET schema = 'gold_before'")
    is_there = found.show(connection, period, ("client", "charged", "counters", "readings"))
    if is_there:
        connection.execute("SET search_path = 'before,gold_before'")
        (span,) = rows(connection, "SELECT min(begin_ms) AS begin_ms, max(end_ms) AS end_ms FROM client")
        for name in ("begin_ms", "end_ms"):
            connection.execute(f"SET VARIABLE {name} = {span[name]}")
        make(connection, ["limits"], "TABLE before")
        connection.execute(f"CREATE TABLE before.readings AS {_sql('close_before')}")
        make(connection, ["talkers", "headroom"], "VIEW before")  # the comparison needs few of their columns
        make(connection, COMPARISON)
    connection.execute("SET search_path = 'main,gold'")
    return COMPARISON if is_there else ()
