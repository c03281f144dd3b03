"""From the tables of noisy neighbours to what the page shows of them."""

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from analysis.metrics.broker_moments import CLIENT
from analysis.metrics.neighbours import COINCIDES, TOGETHER, TOO_FEW
from analysis.report.findings import AroundBurst, Neighbour, Victim
from analysis.table.arrays import added, ranked

_MOST: Final = 9
_VICTIMS: Final = 3

Tables = Mapping[str, pa.Table]
Row = Mapping[str, Any]


def compared(neighbours: pa.Table) -> int:
    """Return how many candidates were held against others' delays."""
    return len(added(neighbours.filter(pc.not_equal(neighbours["verdict"], TOO_FEW)), CLIENT, {}))


def found(tables: Tables) -> list[Neighbour]:
    """Return those that coincide, the strongest first, with what stands behind it."""
    loud = _with_verdict(tables["neighbours"], COINCIDES)
    rows = ranked(loud, ["score"], [*CLIENT, "measure"], _MOST).to_pylist()
    if not rows:
        return []
    victims, around, together = _victims(tables["victims"]), _around(tables["evidence"]), _together(tables)
    names = [name for name in Neighbour.__slots__ if name not in {"victims", "around", "together"}]
    return [
        Neighbour(
            **{name: row[name] for name in names},
            victims=victims.get(_client(row), [])[:_VICTIMS] if row["measure"] == "muted_ms" else (),
            around=around[*_client(row), row["measure"]],
            together=together.get((*_client(row), row["measure"]), ()),
        )
        for row in rows
    ]


def _with_verdict(neighbours: pa.Table, verdict: str) -> pa.Table:
    return neighbours.filter(pc.equal(neighbours["verdict"], verdict))


def _victims(victims: pa.Table) -> dict[tuple[Any, ...], list[Victim]]:
    """Return those that were delayed, the longest first, by CLIENT."""
    of: dict[tuple[Any, ...], list[Victim]] = {}
    for each in ranked(victims, ["delay_ms"], ["victim_user", "victim_client_id"]).to_pylist():
        victim = Victim(each["victim_user"], each["victim_client_id"], each["delay_ms"], each["shared"])
        of.setdefault(_client(each), []).append(victim)
    return of


def _around(evidence: pa.Table) -> dict[tuple[Any, ...], list[AroundBurst]]:
    of: dict[tuple[Any, ...], list[AroundBurst]] = {}
    for each in evidence.sort_by("offset_s").to_pylist():
        point = AroundBurst(*(each[name] for name in ("offset_s", "bytes_per_s", "others_ms", "expected_ms")))
        of.setdefault((*_client(each), each["measure"]), []).append(point)
    return of


def _together(tables: Tables) -> dict[tuple[Any, ...], list[tuple[str | None, str | None]]]:
    of: dict[tuple[Any, ...], list[tuple[str | None, str | None]]] = {}
    for each in ranked(_with_verdict(tables["neighbours"], TOGETHER), ["score"], CLIENT).to_pylist():
        behind = ("cluster", "broker", "behind_user", "behind_client_id", "measure")
        of.setdefault(tuple(each[name] for name in behind), []).append((each["user"], each["client_id"]))
    return of


def _client(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in CLIENT)
