"""The period against another: its rows are found, summed as those of the report are, and held against its tables."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.errors import AnalysisError
from analysis.metrics import addresses, caps, clients, comparison, headroom, talkers
from analysis.metrics.comparison import BEFORE, BOTH, GONE, NEW
from analysis.metrics.period import Period, look
from analysis.report.findings import ChangedClient, ChangedLimit, ChangedQuota, Comparison, Sums
from analysis.table import reading
from analysis.table.arrays import Ints, ints, ranked, with_columns
from analysis.table.parts import Parts
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


def make(read: Mapping[str, Parts], made: Mapping[str, Parts], other: Other, results: Results) -> Comparison:
    """Keep the tables NAMES, and return what a page shows of them.

    ``made`` are those of the report, and ``read`` is what was read for them, and for ``comparison.unrecorded_s``.
    """
    if other.usage is None or other.period is None:
        return Comparison(*other.span, stored=False)
    now, before = {name: made[name].whole() for name in ("talkers", "headroom")}, tables_of(other.usage, other.period)
    tables = {
        "compared_clients": comparison.clients(now["talkers"], before["talkers"]),
        "compared_limits": comparison.limits(now["headroom"], before["headroom"]),
        "compared_quotas": comparison.quotas(now["headroom"], before["headroom"]),
    }
    for name, table in tables.items():
        results.keep(name, Parts.of(table))
    scale = _length(other.now) / _length(other.span)
    return Comparison(
        *other.span,
        scale=scale,
        modes=other.period.modes,
        unrecorded_s=comparison.unrecorded_s(read[comparison.KEPT].whole(), *other.now),
        unrecorded_before_s=comparison.unrecorded_s(before[comparison.KEPT], *other.span),
        now=_sums(now["talkers"]),
        before=_sums(before["talkers"]),
        **_came_and_went(tables["compared_clients"]),
        clients=_clients(tables["compared_clients"], scale),
        limits=_limits(tables["compared_limits"]),
        quotas=_quotas(tables["compared_quotas"]),
    )


def tables_of(usage: UsageRows, period: Period) -> dict[str, pa.Table]:
    """Return what is compared, of the other period: ``talkers``, the ``headroom`` of the whole of it, and minutes."""
    makings = [clients.making(), caps.making(period.capped), addresses.making(), headroom.making(usage, period)]
    found = reading.tables(usage, [*makings, comparison.making()], period.rows, period.longest_window_ms)
    sums = found[clients.KEPT]
    names = headroom.counters(sums, found[caps.CAPPED].whole(), found[addresses.KEPT].whole())
    whole = headroom.of_period(found[headroom.DAYS], names)
    return {"talkers": talkers.talkers(sums), "headroom": whole, comparison.KEPT: found[comparison.KEPT].whole()}


def _length(span: Span) -> float:
    return max((span[1] - span[0]) / timedelta(seconds=1), 1.0)


def _sums(talkers_: pa.Table) -> Sums:
    named, muted = np.asarray(talkers_["user"].is_valid()), talkers.muted_ms(talkers_)
    return Sums(
        clients=int(named.sum()),
        throttled=int((named & (muted > 0)).sum()),
        muted_ms=int(muted.sum()),
        **{name: int(ints(talkers_, name).sum()) for name in ("bytes_in", "bytes_out", "requests")},
        refused=int(ints(talkers_, "connections_refused").sum()),
    )


def _came_and_went(compared: pa.Table) -> dict[str, Any]:
    most = np.maximum(_bytes(compared, ""), _bytes(compared, BEFORE))
    found: dict[str, Any] = {}
    for name, seen in (("new", NEW), ("gone", GONE)):
        some = with_columns(compared, {"most": most}).filter(pc.equal(compared["seen"], seen))
        found[name] = len(some)
        first = ranked(some, ["most"], talkers.CLIENT, _CAME).to_pylist()
        found[f"{name}_clients"] = [(row["user"], row["client_id"]) for row in first]
    return found


def _bytes(compared: pa.Table, end: str) -> Ints:
    return ints(compared, f"bytes_in{end}") + ints(compared, f"bytes_out{end}")


def _clients(compared: pa.Table, scale: float) -> list[ChangedClient]:
    """Return whose bytes changed most."""
    now, before = _bytes(compared, ""), _bytes(compared, BEFORE)
    changed = with_columns(compared, {"now": now, "before": before, "change": np.abs(now - scale * before)})
    most = ranked(changed.filter(pc.greater(changed["change"], 0)), ["change"], talkers.CLIENT, _CLIENTS)
    names = ("user", "client_id", "seen", "now", "before", "muted_ms", f"muted_ms{BEFORE}")
    return [ChangedClient(*(row[name] for name in names)) for row in most.to_pylist()]


def _limits(compared: pa.Table) -> list[ChangedLimit]:
    """Return the limits on which use came closer, or went away, most; who is new or gone stands elsewhere."""
    changed = with_columns(compared, {"change": pc.abs(pc.subtract(compared["p99"], compared[f"p99{BEFORE}"]))})
    both = changed.filter(pc.and_(pc.equal(changed["seen"], BOTH), pc.greater_equal(changed["change"], _LEAST_CHANGE)))
    most = ranked(both, ["change"], comparison.LIMIT, _LIMITS).to_pylist()
    return [ChangedLimit(**{name: row[name] for name in ChangedLimit.__slots__}) for row in most]


def _quotas(compared: pa.Table) -> list[ChangedQuota]:
    rows = ranked(compared, (), ("seen", *comparison.QUOTA)).to_pylist()
    changed = [row for row in rows if any(row[end] != row[end + BEFORE] for end in comparison.ENDS)]
    return [ChangedQuota(**{name: row[name] for name in ChangedQuota.__slots__}) for row in changed[:_QUOTAS]]
