"""Who was busy on a client's brokers while it was delayed there: what ``analysis.metrics.coincidence`` says of others,
of this one client alone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.client.asked import Asked
from analysis.client.findings import Busy
from analysis.metrics import caps, clients
from analysis.metrics.broker_moments import MOMENT_S, PLACE, BrokerMoments, by_broker
from analysis.metrics.coincidence import LEAST_BURSTS, LEAST_SCORE, LEVEL, Others, adjusted, bursts, weigh
from analysis.metrics.moments import moments
from analysis.metrics.neighbours import CHANCE, COINCIDES, TOO_FEW, candidates
from analysis.metrics.period import Period
from analysis.metrics.sharing import Held
from analysis.table.arrays import added, ints, with_columns
from analysis.table.reading import tables
from analysis.table.scan import UsageRows

MOST: Final = 12


def busy(usage: UsageRows, own: UsageRows, rows: int, muted: pa.Table, asked: Asked, period: Period) -> list[Busy]:
    """Return who moved most on the brokers of a client while it was delayed there, and whether that is by chance.

    ``own`` are its ``rows``, ``muted`` those in which it was delayed.
    """
    delays = _delays(muted)
    if not delays:
        return []
    there = usage.only(broker=sorted({broker for _, broker in delays}))
    made = tables(there, [clients.making(), caps.making(period.capped)], period.rows)
    charged, itself = made[clients.KEPT], clients.clients(own, rows)
    chosen = candidates(charged)
    names = {tuple(row[name] for name in (*PLACE, "number")): row for row in chosen.to_pylist()}
    # Usual is what is usual of the client itself: of others nothing is expected.
    held = Held.of(chosen, charged, made[caps.CAPPED].whole(), itself)
    sums = moments(there, chosen, itself, held, period.rows)
    found = []
    for broker in by_broker(sums, period, delays):
        for each, number in _on(broker, delays[broker.place], len(names)):
            row = names[*broker.place, number]
            if not all((row[column] or "") == name for column, name in asked.names.items()):
                found.append(replace(each, user=row["user"], client_id=row["client_id"]))
    return _judged(found)[:MOST]


def _delays(muted: pa.Table) -> dict[tuple[str, int], dict[int, int]]:
    """Return by place how long the client was delayed in each moment, by the number of the moment."""
    there = muted.filter(pc.greater_equal(muted["broker"], 0))
    moment = {"moment": ints(there, "begin_ms") // (1000 * MOMENT_S)}
    table = added(with_columns(there, moment), (*PLACE, "moment"), {"muted_ms": "sum"})
    found: dict[tuple[str, int], dict[int, int]] = {}
    for cluster, broker, at, delay in zip(
        *(table[name].to_pylist() for name in PLACE), ints(table, "moment"), ints(table, "muted_ms"), strict=True
    ):
        found.setdefault((cluster, broker), {})[int(at)] = int(delay)
    return found


def _on(broker: BrokerMoments, delays: Mapping[int, int], tests: int) -> Iterator[tuple[Busy, int]]:
    """Yield what is to be said of each candidate on a broker, without its names."""
    delay = np.zeros(broker.count)
    delay[np.array(list(delays)) - broker.first] = list(delays.values())
    then = delay > 0
    moved = max(float(broker.totals["bytes"][then].sum()), 1.0)
    for number in sorted(broker.own):
        bytes_, peak = broker.of(number, "bytes"), broker.peak(number)
        if not bytes_[then].any():
            continue
        own = Others(delay, broker.usual_mutes(number), broker.block())
        result = weigh(peak, own, tests) if len(bursts(peak)) >= LEAST_BURSTS else None
        yield (
            Busy(
                user="",
                client_id=None,
                broker=broker.place[1],
                bytes_per_s_then=float(bytes_[then].mean()) / MOMENT_S,
                bytes_per_s=float(bytes_.mean()) / MOMENT_S,
                share_then=float(bytes_[then].sum()) / moved,
                peaks=int(peak.sum()),
                score=None if result is None else result.score,
                p=None if result is None else result.p,
                verdict=TOO_FEW,
            ),
            number,
        )


def _judged(found: list[Busy]) -> list[Busy]:
    """Return them with verdicts, corrected for how many were looked at: those that coincide, then the busiest."""
    tested = [each for each in found if each.p is not None]
    judged = [each for each in found if each.p is None]
    for each, p in zip(tested, adjusted([each.p or 0.0 for each in tested]), strict=True):
        verdict = COINCIDES if p <= LEVEL and (each.score or 0) >= LEAST_SCORE else CHANCE
        judged.append(replace(each, p=p, verdict=verdict))
    return sorted(judged, key=_order)


def _order(each: Busy) -> tuple[bool, float, float, str, int]:
    coincides = each.verdict == COINCIDES
    return not coincides, -(each.score or 0.0) if coincides else 0.0, -each.share_then, each.user, each.broker
