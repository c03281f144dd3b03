"""Sums of moments, as neighbours are found from them: what each candidate did, and all others together.

What is *usual* of mutes is, of each client that is active in a moment, what belongs to its own use (``own_use``); of
requests, its own mean in the period. A moment in which nobody is active that is ever delayed has nothing usual in it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Final

import numpy as np
import pyarrow as pa

from analysis.metrics import own_use
from analysis.metrics.broker_moments import BLOCK_MOMENTS, CLIENT, MOMENT_S, PLACE, SHARED, SUMS
from analysis.metrics.clients import ACTIVE
from analysis.metrics.counters import USED
from analysis.metrics.few import Few
from analysis.metrics.sharing import Held
from analysis.table import hashes
from analysis.table.arrays import MOST_SUM, Floats, Ints, added, folded, ints, summed, times_ms, together, with_columns
from analysis.table.exchange import exchange, packed, tasks_for
from analysis.table.parquet import plain
from analysis.table.parts import Parts
from analysis.table.reading import adding
from analysis.table.scan import UsageRows
from analysis.table.schema import FILE

_APART: Final = (*PLACE, "moment", "number")
_SCHEMA: Final = pa.schema(
    [
        *(FILE.field(name) for name in PLACE),
        *((name, pa.int64()) for name in ("moment", "number", *SUMS)),
    ]
)
_OF_ROWS: Final = ("bytes", "requests", "request_time_ms", "usual_time_us", ACTIVE)
_OF_CLIENT: Final = ("requests", "request_time_ms")
_MEANS: Final = pa.schema([*(FILE.field(name) for name in CLIENT), *((name, pa.int64()) for name in _OF_CLIENT)])
_HOW: Final = dict.fromkeys(SUMS, "sum")
_ROWS_OF_ONE: Final = 10
"""At least, in a period that is worth several tasks: rows that are summed to one before they travel."""


def moments(usage: UsageRows, chosen: pa.Table, clients: Parts, held: Held, rows: int) -> Parts:
    """Return PLACE, ``moment`` (a number), the ``number`` of one of ``chosen`` (null: all others), and SUMS.

    What a row of a longer interval says is spread evenly over the moments of it. ``usual_delay_us`` is for how long
    those that were active would have been muted by what they used themselves (``own_use.usual``), and
    ``usual_time_us`` what their requests would have taken, each by its mean in the period. SHARED are of the chosen
    alone. Of a moment there may be several rows, to be added up. ``clients`` is ``clients.making``'s; ``held`` are
    those of whom mutes are looked at, and ``rows`` is how many there are of usage, about.

    Moments of clients that were muted travel each by itself, to the task that has all of the client; of all others
    there are sums.
    """
    parallel = usage.spark.sparkContext.defaultParallelism
    tasks = tasks_for(rows // _ROWS_OF_ONE + min(held.active_ms // (1000 * MOMENT_S), rows), parallel)
    work = _Moments(Few.of(chosen, CLIENT, "number"), held, _Times.of(clients), tasks)
    return exchange(usage, work.columns(), work, tasks).parts(_Received(held), _SCHEMA)


@dataclass(frozen=True, slots=True)
class _Times:
    """What requests of clients usually take, [client]; it travels to the workers."""

    known: Ints
    """``hashes.of_columns`` of CLIENT, ascending."""
    request_us: Floats
    """For each request."""

    @classmethod
    def of(cls, clients: Parts) -> "_Times":
        named = (each.filter(each["user"].is_valid()) for each in clients.tables(_MEANS.names))
        sums = together(summed(named, CLIENT, dict.fromkeys(_OF_CLIENT, "sum")), _MEANS)
        known, requests = hashes.of_columns(sums, CLIENT), ints(sums, "requests")
        order = np.argsort(known)
        time_us = 1000 * ints(sums, "request_time_ms").astype(float)
        mean = np.divide(time_us, requests, out=np.zeros(len(sums)), where=requests > 0)
        return cls(known[order], mean[order])

    def of_clients(self, client: Ints) -> Floats:
        """Return ``request_us`` of each row's client, by its hash; 0 of one that is not known."""
        if not len(self.known):
            return np.zeros(len(client))
        place = np.minimum(np.searchsorted(self.known, client), len(self.known) - 1)
        return np.where(self.known[place] == client, self.request_us[place], 0)


@dataclass(frozen=True, slots=True)
class _Moments:
    candidates: Few
    held: Held
    times: _Times
    tasks: int

    def columns(self) -> tuple[str, ...]:
        """Return which are read."""
        of_kinds = (name for kind in self.held.kinds for name in (USED[kind], f"{kind}_muted_ms"))
        return ("time", "interval_ms", *CLIENT, "bytes_in", "bytes_out", "requests", "request_time_ms", *of_kinds)

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        keys, how = _keys(), _sums(self.held)
        for sums in map(spread, summed(map(self._columns, tables), (*keys, "span"), how)):
            client = ints(sums, "client")
            yield from packed(sums, np.where(client == 0, hashes.of_columns(sums, PLACE), client) % self.tasks)

    def _columns(self, table: pa.Table) -> pa.Table:
        number, client = self.candidates.of_rows(table), hashes.of_columns(table, CLIENT)
        held = self.held.places(client) >= 0
        columns = {
            **{name: table[name] for name in PLACE},
            "moment": times_ms(table) // (1000 * MOMENT_S),
            "number": pa.array(number, mask=number < 0),
            "client": np.where(held, client, 0),
            # How many moments an interval is long.
            "span": np.maximum((ints(table, "interval_ms") + 500 * MOMENT_S) // (1000 * MOMENT_S), 1),
            "bytes": ints(table, "bytes_in") + ints(table, "bytes_out"),
            **{name: table[name] for name in ("requests", "request_time_ms")},
            "usual_time_us": _whole(ints(table, "requests") * self.times.of_clients(client)),
            ACTIVE: np.where(held, ints(table, "interval_ms"), 0),
        }
        for kind in self.held.kinds:
            columns[f"{kind}_used"] = np.where(held, ints(table, USED[kind]), 0)
            columns[f"{kind}_muted_ms"] = table[f"{kind}_muted_ms"]
        return pa.table(columns)


def _keys() -> tuple[str, ...]:
    return (*_APART, "client")


def _sums(held: Held) -> Mapping[str, str]:
    of_kinds = (f"{kind}_{name}" for kind in held.kinds for name in ("used", "muted_ms"))
    return dict.fromkeys((*_OF_ROWS, *of_kinds), "sum")


@dataclass(frozen=True, slots=True)
class _Received:
    """From what reached a task to SUMS."""

    held: Held

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for each in folded(tables, adding(_keys(), dict(_sums(self.held)))):
            sums = plain(each)
            sums = sums.take(pa.array(np.lexsort((ints(sums, "moment"), ints(sums, "client")))))
            found = pa.concat_tables(self._said(sums))
            # In order, so that of other brokers little is read.
            yield added(found, _APART, _HOW).sort_by([(name, "ascending") for name in (*PLACE, "moment")])

    def _said(self, sums: pa.Table) -> Iterator[pa.Table]:
        client = ints(sums, "client")
        begins = np.flatnonzero(np.diff(client, prepend=client[0] - 1 if len(client) else 0))
        muted_ms = {kind: ints(sums, f"{kind}_muted_ms") for kind in self.held.kinds}
        usual_ms = np.zeros(len(sums))
        places = self.held.places(client)
        for number, kind in enumerate(self.held.kinds):
            by_use, by_mean = self._usual(sums, kind, begins)
            usual_ms += by_use
            if self.held.shares.size:
                mask = np.where(places >= 0, self.held.shares[places, number], 0)
                yield from _shared(sums, mask, by_use, by_mean)
        values = {
            **{name: sums[name] for name in SUMS if name in sums.column_names},
            "delay_ms": reduce(add, muted_ms.values(), np.zeros(len(sums), dtype=np.int64)),
            "usual_delay_us": _whole(1000 * usual_ms),
        }
        yield _as_sums(sums, values)

    def _usual(self, sums: pa.Table, kind: str, begins: Ints) -> tuple[Floats, Floats]:
        """Return how long each client would have been muted in a moment: by its own use, and by its mean."""
        client, moment = ints(sums, "client"), ints(sums, "moment")
        block = moment // BLOCK_MOMENTS
        used, muted, active = (ints(sums, name).astype(float) for name in (f"{kind}_used", f"{kind}_muted_ms", ACTIVE))
        by_use, by_mean = np.zeros(len(sums)), np.zeros(len(sums))
        for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(sums)], strict=True):
            one = slice(begin, end)
            if client[begin] and muted[one].any():
                by_use[one] = own_use.usual(moment[one], block[one], used[one], muted[one], active[one])
                by_mean[one] = own_use.mean(block[one], muted[one], active[one])
        return by_use, by_mean


def _shared(sums: pa.Table, mask: Ints, by_use: Floats, by_mean: Floats) -> Iterator[pa.Table]:
    """Yield SHARED of those whose bits are in ``mask``, [row]."""
    some = mask != 0
    values = dict(zip(SHARED, (_whole(1000 * by_use[some]), _whole(1000 * by_mean[some])), strict=True))
    rows = with_columns(sums.filter(pa.array(some)).select([*PLACE, "moment"]), {"mask": mask[some], **values})
    # Of many clients that share with the same few first one sum: each then has a row for each of the few.
    rows = added(rows, (*PLACE, "moment", "mask"), dict.fromkeys(SHARED, "sum"))
    bits = ints(rows, "mask")
    for number in range(int(bits.max(initial=0)).bit_length()):
        of_one = rows.filter(pa.array(bits >> number & 1 == 1))
        if len(of_one):
            number_of = of_one.append_column("number", pa.array(np.full(len(of_one), number)))
            yield _as_sums(number_of, {name: of_one[name] for name in SHARED})


def _as_sums(rows: pa.Table, values: Mapping[str, pa.ChunkedArray | Ints]) -> pa.Table:
    nothing = np.zeros(len(rows), dtype=np.int64)
    return together([with_columns(rows.select(_APART), {name: values.get(name, nothing) for name in SUMS})], _SCHEMA)


def spread(table: pa.Table) -> pa.Table:
    """Return sums of moments of those of intervals that are ``span`` moments long: of each as much, but for rests."""
    span = ints(table, "span")
    if not (span > 1).any():
        return table.drop_columns("span")
    row = np.repeat(np.arange(len(table)), span)
    place = np.arange(len(row)) - np.repeat(np.cumsum(span) - span, span)
    same = [name for name in (*PLACE, "number", "client") if name in table.column_names]
    found = table.select(same).take(pa.array(row))
    found = found.append_column("moment", pa.array(ints(table, "moment")[row] + place))
    for name in table.column_names:
        if name not in (*same, "moment", "span"):
            part, rest = np.divmod(ints(table, name), span)
            found = found.append_column(name, pa.array(part[row] + (place < rest[row])))
    return found


def _whole(values: Floats) -> Ints:
    """Whole numbers, so that a part of a sum can be taken from it again, and nothing is left of none."""
    return np.rint(np.minimum(values, MOST_SUM)).astype(np.int64)
