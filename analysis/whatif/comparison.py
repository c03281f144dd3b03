"""The result of what-if: totals of each scenario, a table for the terminal, and JSON."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from analysis.page import words
from analysis.whatif.figures import Verdict
from analysis.whatif.job import WhatIf
from quotas import texts
from quotas.kinds import BYTES, QuotaKind

Row = Mapping[str, Any]
"""A row of ``WhatIf.units``."""

_NAMED: Final = 10
"""The most clients that a line about clients left out names."""
_OF_BYTES: Final = pa.array([kind.value for kind in QuotaKind if kind.row.unit is BYTES])


@dataclass(frozen=True, slots=True)
class Totals:
    counters: int
    limited: int
    """Counters with a limit under the proposed quotas."""
    throttled_before: int
    throttled: int
    possibly_throttled: int
    """Throttled only if demand was at its upper bound while held up."""
    throttled_before_s: float
    throttled_s: float
    recorded_bytes: float
    """Sum over the kinds whose limits are bytes."""
    sent_bytes: float
    """The part of them sent within the period; the rest waits at its end."""


def totals(found: WhatIf, scenario: str) -> Totals:
    units = found.units.filter(pc.equal(found.units["scenario"], scenario))
    of_bytes = units.filter(pc.is_in(units["kind"], _OF_BYTES))

    def total(name: str, those: pa.Table = units) -> float:
        return float(pc.sum(those[name]).as_py() or 0)

    def count(chosen: Any) -> int:
        return int(pc.sum(chosen).as_py() or 0)

    return Totals(
        counters=units.num_rows,
        limited=count(pc.is_valid(units["limit"])),
        throttled_before=count(pc.greater(units["before_throttled_s"], 0)),
        throttled=count(pc.equal(units["verdict"], Verdict.YES.word)),
        possibly_throttled=count(pc.equal(units["verdict"], Verdict.POSSIBLY.word)),
        throttled_before_s=total("before_throttled_s"),
        throttled_s=total("throttled_s"),
        recorded_bytes=total("recorded_bytes", of_bytes),
        sent_bytes=total("sent_bytes", of_bytes),
    )


def touched(found: WhatIf, scenario: str, most: int | None = None) -> list[Row]:
    """Return the units that were or would be throttled, worst first."""
    units = found.units
    chosen = pc.or_(pc.greater(units["before_throttled_s"], 0), pc.not_equal(units["verdict"], Verdict.NO.word))
    units = units.filter(pc.and_(pc.equal(units["scenario"], scenario), chosen))
    order = [(name, "descending") for name in ("throttled_s", "throttled_most_s", "before_throttled_s")]
    rows: pa.Table = units.sort_by([*order, ("user", "ascending"), ("client_id", "ascending")])
    taken: list[Row] = rows.slice(0, most).to_pylist()
    return taken


def sentence(sums: Totals, scenario: str) -> str:
    possibly = f", and possibly {sums.possibly_throttled:,} more" if sums.possibly_throttled else ""
    return (
        f"{texts.shown(scenario)}: {sums.throttled:,} of {words.counted(sums.counters, 'counter')} would be "
        f"throttled{possibly}; {sums.throttled_before:,} {'was' if sums.throttled_before == 1 else 'were'}"
    )


def text(found: WhatIf, most: int) -> str:
    """Return all scenarios for the terminal, each with the ``most`` units throttled longest."""
    circumstances = found.circumstances
    window = circumstances.window
    lines = [
        (
            f"recorded {words.from_to(circumstances.begin, circumstances.end)} UTC, "
            f"{words.counted(circumstances.instances, 'proxy instance')}, window of {window.samples} samples of "
            f"{window.size_ms} ms"
        ),
        *(f"note: {note}" for note in circumstances.notes()),
    ]
    for scenario in found.scenarios:
        sums = totals(found, scenario.name)
        rows = touched(found, scenario.name, most)
        lines += ["", sentence(sums, scenario.name), *(f"note: {each}" for each in left_out(found, scenario.name))]
        lines.append(
            f"throttled in all: {texts.duration(sums.throttled_before_s)} before, {texts.duration(sums.throttled_s)} "
            f"after; served {texts.size(sums.sent_bytes)} of {texts.size(sums.recorded_bytes)} within the period"
        )
        if rows:
            lines += ["", *texts.aligned([_HEADS, *map(_cells, rows)])]
        left = sums.throttled + sums.possibly_throttled - sum(row["verdict"] != Verdict.NO.word for row in rows)
        if left > 0:
            lines.append(f"and {left:,} more that would be throttled (--top)")
    return "\n".join(lines)


def as_json(found: WhatIf) -> str:
    """Return one JSON object: circumstances, and for each scenario the totals and all units ever throttled."""
    circumstances = found.circumstances
    document = {
        "begin": circumstances.begin.isoformat(),
        "end": circumstances.end.isoformat(),
        "seconds": circumstances.seconds,
        "window": {"samples": circumstances.window.samples, "size_ms": circumstances.window.size_ms},
        "modes": circumstances.modes,
        "interval_ms": circumstances.interval_ms,
        "documents": circumstances.documents,
        "missing_documents": circumstances.missing_documents,
        "notes": circumstances.notes(),
        "scenarios": [
            {
                "quotas": scenario.name,
                "totals": asdict(totals(found, scenario.name)),
                "left_out": [asdict(each) for each in found.left_out if each.scenario == scenario.name],
                "units": touched(found, scenario.name),
            }
            for scenario in found.scenarios
        ],
    }
    return json.dumps(document, indent=1)


def left_out(found: WhatIf, scenario: str) -> list[str]:
    """Return lines about the clients that are left out of a scenario, with the reasons."""
    said = []
    for each in found.left_out:
        if each.scenario == scenario:
            names = ", ".join(texts.shown(name) for name in each.clients[:_NAMED])
            more = f" and {len(each.clients) - _NAMED:,} more" if len(each.clients) > _NAMED else ""
            said.append(f"left out: {texts.kind_word(each.kind)} of {names}{more}: {texts.shown(each.reason)}")
    return said


_HEADS: Final = ("client", "where", "limit", "throttled before", "after", "delay p50", "p95", "p99", "served", "known")


def _cells(row: Row) -> tuple[str, ...]:
    return (
        f"{texts.shortened(who(row), 40)} {words.doing(row['kind'])}",
        where(row),
        limit(row),
        throttled(row["before_throttled_s"], row["before_episodes"]),
        after(row),
        texts.duration(row["delay_p50_s"]),
        texts.duration(row["delay_p95_s"]),
        delay_p99(row),
        texts.share(served(row)),
        row["answer"],
    )


def who(row: Row) -> str:
    return texts.shown(words.counter(row["user"] or None, row["client_id"] or None))


def limit(row: Row) -> str:
    return "no limit" if row["limit"] is None else texts.amount(row["limit"], row["kind"])


def where(row: Row) -> str:
    """Return the broker, and the proxy if several had the broker at a time."""
    proxy = f"{texts.shown(row['instance'])}, " if row["instance"] else ""
    return f"{proxy}broker {row['broker']}"


def throttled(seconds: float, episodes: float) -> str:
    """``3 min 20 s in 4``: time and number of episodes."""
    return f"{texts.duration(seconds)} in {round(episodes):,}" if seconds else "never"


def after(row: Row) -> str:
    """Return the throttled time under the proposed quotas, or its bounds."""
    if row["throttled_least_s"] == row["throttled_most_s"]:
        return throttled(row["throttled_s"], row["episodes"])
    return f"{texts.duration(row['throttled_least_s'])} to {texts.duration(row['throttled_most_s'])}"


def delay_p99(row: Row) -> str:
    """Return the p99 of the delay of bytes, or its bounds."""
    least, most = row["delay_p99_s"], row["delay_p99_most_s"]
    return texts.duration(least) if least == most else f"{texts.duration(least)} to {texts.duration(most)}"


def served(row: Row) -> float:
    """Return the share of recorded bytes that is sent within the period."""
    return row["sent_bytes"] / row["recorded_bytes"] if row["recorded_bytes"] else 1.0
