"""What stands behind a finding of ``neighbours``: how bursts and delays go together in time, and whom they delayed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.metrics.broker_moments import CLIENT, MOMENT_S, PLACE, BrokerMoments, by_broker
from analysis.metrics.coincidence import Flags, bursts, later
from analysis.metrics.neighbours import COINCIDES
from analysis.metrics.period import Period
from analysis.metrics.sharing import charged
from analysis.table import hashes
from analysis.table.arrays import Floats, Ints, added, ints, summed, together, with_columns
from analysis.table.parts import Parts
from analysis.table.schema import COUNT, FILE, LIMIT, TEXT

BEFORE_S: Final = 300
AFTER_S: Final = 600
_OFFSETS: Final = np.arange(-BEFORE_S // MOMENT_S, AFTER_S // MOMENT_S)
_EVIDENCE: Final = pa.schema(
    [
        *(FILE.field(name) for name in CLIENT),
        *(("measure", TEXT), ("offset_s", COUNT), ("bursts", COUNT)),
        *(("bytes_per_s", LIMIT), ("others_ms", LIMIT), ("expected_ms", LIMIT)),
    ]
)
_PEAKS: Final = pa.schema([*(FILE.field(name) for name in CLIENT), ("moment", COUNT)])
_VICTIM: Final = ("victim_user", "victim_client_id")
_PAIR: Final = (*CLIENT, *_VICTIM)
_DELAYED: Final = pa.schema(
    [*(FILE.field(name) for name in PLACE), ("moment", COUNT), *((name, TEXT) for name in _VICTIM), ("delay_ms", COUNT)]
)
_COUNTED: Final = pa.schema([*(FILE.field(name) for name in CLIENT), ("counter", COUNT)])
_VICTIMS: Final = pa.schema(
    [
        *(FILE.field(name) for name in CLIENT),
        *((name, TEXT) for name in _VICTIM),
        *(("delay_ms", COUNT), ("shared", pa.bool_())),
    ]
)


def evidence(sums: Parts, found: pa.Table, period: Period) -> pa.Table:
    """Return what happened around the begin of a burst, on average, of all that coincide (``neighbours.neighbours``).

    CLIENT, ``measure``, ``offset_s`` from the begin, of how many ``bursts``; the client's ``bytes_per_s``; and, for
    each second, ``others_ms``, how long others were delayed, and ``expected_ms``, what was usual then of those active,
    made to agree with the hour. Bursts cut off by an end of the period count where they are in it.
    """
    rows: list[dict[str, object]] = []
    for one in _coinciding(sums, found, period):
        peak, others = one.broker.peak(one.number), one.broker.others(one.number, one.measure)
        at = bursts(peak)[:, None] + _OFFSETS
        inside = (at >= 0) & (at < one.broker.count)
        series = {
            "bursts": np.ones(one.broker.count),
            "bytes_per_s": one.broker.of(one.number, "bytes") / MOMENT_S,
            "others_ms": others.delay / MOMENT_S,
            "expected_ms": others.expected * others.scale() / MOMENT_S,
        }
        sums_of = {name: _sum(values, at, inside) for name, values in series.items()}
        count = sums_of.pop("bursts")
        for place, offset in enumerate((_OFFSETS * MOMENT_S).tolist()):
            means = {name: float(values[place] / max(count[place], 1)) for name, values in sums_of.items()}
            rows.append(
                {**one.client, "measure": one.measure, "offset_s": offset, "bursts": int(count[place]), **means}
            )
    return pa.Table.from_pylist(rows, _EVIDENCE)


def victims(muted: Parts, sums: Parts, found: pa.Table, clients: Parts, capped: pa.Table, period: Period) -> pa.Table:
    """Return CLIENT that coincides with others' mutes, ``victim_user`` and ``victim_client_id`` of those muted then.

    ``delay_ms`` is what it was muted in peaks, as late after them as ``found`` says. ``shared`` is whether the two were
    charged to a counter together, of quotas (``clients.clients``) or of caps (``capped``): then what one uses, the
    other cannot.
    """
    loud = _loud(found.filter(pc.equal(found["measure"], "muted_ms")))
    peaks = _peaks(sums, loud, period)
    delayed = together(summed(_delayed(muted, peaks), _DELAYED.names[:-1], {"delay_ms": "sum"}), _DELAYED)
    met = peaks.join(delayed, [*PLACE, "moment"], join_type="inner").combine_chunks()
    itself = hashes.of_columns(met, CLIENT[2:]) == hashes.of_columns(met, _VICTIM)
    pairs = added(met.filter(pa.array(~itself)), _PAIR, {"delay_ms": "sum"})
    shared = hashes.places(pairs, _sharing(loud, clients, capped), _PAIR) >= 0
    return together([with_columns(pairs, {"shared": shared})], _VICTIMS)


def _delayed(muted: Parts, peaks: pa.Table) -> Iterator[pa.Table]:
    """Yield who was muted in a moment in which somebody peaked."""
    for table in muted.tables([*CLIENT, "begin_ms", "muted_ms"]) if len(peaks) else ():
        victim = dict(zip(_VICTIM, (table["user"], table["client_id"]), strict=True))
        moments = {"moment": ints(table, "begin_ms") // (1000 * MOMENT_S), "delay_ms": table["muted_ms"]}
        rows = with_columns(table.select(PLACE), {**moments, **victim})
        yield rows.filter(pa.array(hashes.places(rows, peaks, (*PLACE, "moment")) >= 0)).select(_DELAYED.names)


def _sharing(loud: pa.Table, clients: Parts, capped: pa.Table) -> pa.Table:
    """Return _PAIR of the ``loud`` and all who were charged to a counter of theirs."""
    if not len(loud):
        return pa.schema([_VICTIMS.field(name) for name in _PAIR]).empty_table()
    theirs = _charged(clients, capped, lambda rows: hashes.places(rows, loud, CLIENT) >= 0)
    all_of_them = _charged(clients, capped, lambda rows: hashes.places(rows, theirs, (*PLACE, "counter")) >= 0)
    victims_ = all_of_them.rename_columns([*PLACE, *_VICTIM, "counter"])
    return theirs.join(victims_, [*PLACE, "counter"], join_type="inner").combine_chunks()


def _charged(clients: Parts, capped: pa.Table, is_meant: Callable[[pa.Table], Flags]) -> pa.Table:
    """Return CLIENT and each ``counter`` that those who are meant were charged to."""
    rows = (each.filter(pa.array(is_meant(each))) for each in charged(clients, capped))
    return together(summed(rows, _COUNTED.names, {}), _COUNTED)


def _loud(found: pa.Table) -> pa.Table:
    """Return those that coincide, in order."""
    order = [(name, "ascending") for name in (*CLIENT, "measure")]
    return found.filter(pc.equal(found["verdict"], COINCIDES)).sort_by(order)


@dataclass(frozen=True, slots=True)
class _Coinciding:
    broker: BrokerMoments
    number: int
    measure: str
    lag: int
    client: dict[str, object]
    """CLIENT"""


def _coinciding(sums: Parts, found: pa.Table, period: Period) -> Iterator[_Coinciding]:
    loud: list[dict[str, Any]] = _loud(found).to_pylist()
    for broker in by_broker(sums, period, {(each["cluster"], each["broker"]) for each in loud}):
        for each in loud:
            if (each["cluster"], each["broker"]) == broker.place:
                client = {name: each[name] for name in CLIENT}
                yield _Coinciding(broker, each["number"], each["measure"], each["lag_s"] // MOMENT_S, client)


def _peaks(sums: Parts, loud: pa.Table, period: Period) -> pa.Table:
    """Return CLIENT and ``moment``: when others' delay is laid to its peaks."""
    found = [_PEAKS.empty_table()]
    for one in _coinciding(sums, loud, period):
        moment = np.flatnonzero(later(one.broker.peak(one.number), one.lag)) + one.broker.first
        found.append(pa.table([*([each] * len(moment) for each in one.client.values()), moment], schema=_PEAKS))
    return pa.concat_tables(found)


def _sum(values: Floats, at: Ints, inside: Flags) -> Floats:
    found: Floats = np.where(inside, values[np.clip(at, 0, len(values) - 1)], 0).sum(axis=0)
    return found
