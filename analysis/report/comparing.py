"""The period against another: its rows are found, summed as those of the report are, and held against its tables."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import add
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.errors import AnalysisError
from analysis.metrics import addresses, caps, clients, comparison, headroom, keepings, talkers
from analysis.metrics.comparison import BEFORE, BOTH, GONE, NEW
from analysis.metrics.counters import KINDS
from analysis.metrics.headroom import COUNTED
from analysis.metrics.period import Period, look
from analysis.metrics.sums import total
from analysis.report.findings import ChangedClient, ChangedLimit, ChangedQuota, Comparison, Sums
from analysis.table.reading import read_once
from analysis.table.results import Results
from analysis.table.scan import UsageRows

NAMES: Final = ("compared_clients", "compared_limits", "compared_quotas")
_CLIENTS: Final = 20
_CAME: Final = 5
_LIMITS: Final = 15
_QUOTAS: Final = 50
_LEAST_CHANGE: Final = 0.01
"""Of a limit, in its p99: less is not shown."""

Span = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class Against:
    """Another period: ``span`` None is the one before, of the same length."""

    rows: Callable[[datetime, datetime], UsageRows]
    """Finds those of a span. Raises AnalysisError where there are none."""
    span: Span | None = None

    def of(self, now: Span) -> Span:
        return self.span or (now[0] - (now[1] - now[0]), now[0])


@dataclass(frozen=True, slots=True)
class Other:
    """The other period, found."""

    now: Span
    span: Span
    usage: UsageRows | None
    period: Period | None
    """None: nothing is stored of it."""


def find(against: Against, now: Span) -> Other:
    """Look at the other period. Raises AnalysisError where it was asked for, and nothing is stored of it."""
    span = against.of(now)
    usage, period = None, None
    try:
        usage = against.rows(*span)
        period, why = look(usage), usage.nothing
    except AnalysisError as error:
        why = str(error)
    if period is None and against.span is not None:
        raise AnalysisError(f"--against: {why}")
    return Other(now, span, usage, period)


def make(usage: UsageRows, made: dict[str, DataFrame], other: Other, results: Results) -> Comparison:
    """Keep the tables NAMES, and return what a page shows of them; ``made`` are those of the report."""
    if other.usage is None or other.period is None:
        return Comparison(*other.span, stored=False)
    period = other.period
    kept = keepings.of_other(other.usage, period)
    with read_once(other.usage, kept, period.rows, period.longest_window_ms) as theirs:
        before = _tables(theirs, period)
        compared = {
            "compared_clients": comparison.clients(made["talkers"], before["talkers"], _muted()),
            "compared_limits": comparison.limits(made["headroom"], before["headroom"]),
            "compared_quotas": comparison.quotas(made["headroom"], before["headroom"]),
        }
        tables = {name: results.keep(name, table) for name, table in compared.items()}
        scale = _length(other.now) / _length(other.span)
        return Comparison(
            *other.span,
            scale=scale,
            modes=period.modes,
            unrecorded_s=comparison.unrecorded_s(usage, *other.now),
            unrecorded_before_s=comparison.unrecorded_s(theirs, *other.span),
            now=_sums(made["talkers"]),
            before=_sums(before["talkers"]),
            **_came_and_went(tables["compared_clients"]),
            clients=_clients(tables["compared_clients"], scale),
            limits=_limits(tables["compared_limits"]),
            quotas=_quotas(tables["compared_quotas"]),
        )


def _tables(usage: UsageRows, period: Period) -> dict[str, DataFrame]:
    """Return what is compared, of the other period: ``talkers``, and the ``headroom`` of the whole of it."""
    sums = clients.clients(usage, period.rows).cache()
    named = headroom.counters(sums, caps.capped(usage, period.capped), addresses.addresses(usage))
    whole = headroom.headroom(usage, period).where("date is null").drop("date")
    return {"talkers": talkers.talkers(sums).cache(), "headroom": named.join(whole, [*COUNTED]).cache()}


def _length(span: Span) -> float:
    return max((span[1] - span[0]) / timedelta(seconds=1), 1.0)


def _muted() -> Column:
    return reduce(add, (F.col(f"{kind}_muted_ms") for kind in KINDS))


def _sums(talkers: DataFrame) -> Sums:
    named = F.col("user").isNotNull()
    sums = {
        "clients": F.count_if(named),
        "throttled": F.count_if(named & (_muted() > 0)),
        "muted_ms": total(_muted()),
        **{name: total(name) for name in ("bytes_in", "bytes_out", "requests")},
        "refused": total("connections_refused"),
    }
    [found] = talkers.agg(*(F.coalesce(column, F.lit(0)).alias(name) for name, column in sums.items())).collect()
    return Sums(**found.asDict())


def _came_and_went(compared: DataFrame) -> dict[str, Any]:
    counts = {row.seen: row["count"] for row in compared.groupBy("seen").count().collect()}
    most = F.greatest(_bytes(""), _bytes(BEFORE)).desc()
    found: dict[str, Any] = {}
    for name, seen in (("new", NEW), ("gone", GONE)):
        found[name] = counts.get(seen, 0)
        some = compared.where(F.col("seen") == seen).orderBy(most, *talkers.CLIENT).limit(_CAME)
        found[f"{name}_clients"] = [(row.user, row.client_id) for row in some.collect()]
    return found


def _bytes(end: str) -> Column:
    return F.col(f"bytes_in{end}") + F.col(f"bytes_out{end}")


def _clients(compared: DataFrame, scale: float) -> list[ChangedClient]:
    """Return whose bytes changed most."""
    change = F.abs(_bytes("") - scale * _bytes(BEFORE))
    most = compared.where(change > 0).orderBy(change.desc(), *talkers.CLIENT).limit(_CLIENTS)
    return [
        ChangedClient(
            *(row.user, row.client_id, row.seen),
            *(row.bytes_in + row.bytes_out, row[f"bytes_in{BEFORE}"] + row[f"bytes_out{BEFORE}"]),
            *(row.muted_ms, row[f"muted_ms{BEFORE}"]),
        )
        for row in most.collect()
    ]


def _limits(compared: DataFrame) -> list[ChangedLimit]:
    """Return the limits on which use came closer, or went away, most; who is new or gone stands elsewhere."""
    change = F.abs(F.col("p99") - F.col(f"p99{BEFORE}"))
    both = compared.where((F.col("seen") == BOTH) & (change >= _LEAST_CHANGE))
    most = both.orderBy(change.desc(), *comparison.LIMIT).limit(_LIMITS).collect()
    return [ChangedLimit(**{name: row[name] for name in ChangedLimit.__slots__}) for row in most]


def _quotas(compared: DataFrame) -> list[ChangedQuota]:
    ends = ("least_limit", "most_limit")
    same = reduce(lambda one, two: one & two, (F.col(end).eqNullSafe(F.col(end + BEFORE)) for end in ends))
    changed = compared.where(~same).orderBy(F.col("seen"), *comparison.QUOTA).limit(_QUOTAS).collect()
    return [ChangedQuota(**{name: row[name] for name in ChangedQuota.__slots__}) for row in changed]
