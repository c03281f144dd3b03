"""Which counters clients were charged to, of quotas and of caps: who shares one with whom."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.metrics.broker_moments import CLIENT, PLACE
from analysis.metrics.clients import ACTIVE
from analysis.metrics.counters import KINDS
from analysis.table import hashes
from analysis.table.arrays import Bools, Ints, ints, summed, together, with_columns
from analysis.table.parts import Parts
from analysis.table.schema import FILE, TEXT

_COUNTER: Final = (*PLACE, "counter")
_MUTED: Final = {kind: f"{kind}_muted_ms" for kind in KINDS}
_CHOSEN: Final = (*CLIENT, "number", "counter")
_THEIRS: Final = pa.schema([*(FILE.field(name) for name in CLIENT), ("number", pa.int64()), ("counter", pa.int64())])
_SUMS: Final = pa.schema(
    [*(FILE.field(name) for name in CLIENT), *((name, pa.int64()) for name in (ACTIVE, *_MUTED.values()))]
)


def charged(clients: Parts, capped: pa.Table) -> Iterator[pa.Table]:
    """Yield CLIENT, ``kind`` and each ``counter`` that it was charged to (``clients.making``, ``caps.making``)."""
    for table in clients.tables([*CLIENT, *(f"{kind}_{name}" for kind in KINDS for name in ("rule", "counter"))]):
        for kind in KINDS:
            rows = table.filter(table[f"{kind}_rule"].is_valid())
            values = {"kind": pa.array([kind] * len(rows), TEXT), "counter": rows[f"{kind}_counter"]}
            yield with_columns(rows.select(CLIENT), values)
    yield capped.select([*CLIENT, "kind", "counter"])


@dataclass(frozen=True, slots=True)
class Held:
    """Clients that were muted at all, [client]; it travels to the workers."""

    known: Ints
    """``hashes.of_columns`` of CLIENT, ascending."""
    kinds: tuple[str, ...]
    """Of quotas that muted anybody."""
    shares: Ints
    """[client, kind] with whom of the chosen it shares a counter: the bits of their numbers, without its own."""
    active_ms: int
    """Of all of them."""

    @classmethod
    def of(cls, chosen: pa.Table, clients: Parts, capped: pa.Table, only: Parts | None = None) -> "Held":
        """``chosen`` are CLIENTs, each with its ``number`` on its broker, from 1.

        ``clients`` is ``clients.making``'s, and ``capped`` ``caps.making``'s. ``only`` is the former of those who are
        asked about; None: all are.
        """
        of_rows = summed(
            (clients if only is None else only).tables(_SUMS.names),
            CLIENT,
            dict.fromkeys(_SUMS.names[len(CLIENT) :], "sum"),
        )
        sums = together(of_rows, _SUMS)
        kinds = tuple(kind for kind, name in _MUTED.items() if ints(sums, name).any())
        muted: Bools = reduce(
            np.logical_or, (ints(sums, _MUTED[each]) > 0 for each in kinds), np.zeros(len(sums), bool)
        )
        held = sums.filter(pa.array(muted & np.asarray(sums["user"].is_valid())))
        known = hashes.of_columns(held, CLIENT)
        shares = _shares(np.sort(known), kinds, chosen, clients, capped)
        return cls(np.sort(known), kinds, shares, int(ints(held, ACTIVE).sum()))

    def places(self, client: Ints) -> Ints:
        """Return which one each client is, by its hash; -1 for one that was never muted."""
        return _places(self.known, client)


def _places(known: Ints, wanted: Ints) -> Ints:
    if not len(known):
        return np.full(len(wanted), -1)
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[place] == wanted, place, -1)


def _shares(known: Ints, kinds: tuple[str, ...], chosen: pa.Table, clients: Parts, capped: pa.Table) -> Ints:
    found = np.zeros((len(known), len(kinds)), dtype=np.int64)
    if not found.size or not len(chosen):
        return found
    counters, bits = _counters_of(chosen, clients, capped)
    for table in charged(clients, capped):
        client = _places(known, hashes.of_columns(table, CLIENT))
        place = _places(counters, hashes.of_columns(table, _COUNTER))
        kind = pc.fill_null(pc.index_in(table["kind"].cast(TEXT), pa.array(kinds)), -1).to_numpy()
        met = (client >= 0) & (place >= 0) & (kind >= 0)
        np.bitwise_or.at(found, (client[met], kind[met]), bits[place[met]])
    own = np.zeros(len(known), dtype=np.int64)
    place = _places(known, hashes.of_columns(chosen, CLIENT))
    own[place[place >= 0]] = (1 << ints(chosen, "number"))[place >= 0]
    return found & ~own[:, None]


def _counters_of(chosen: pa.Table, clients: Parts, capped: pa.Table) -> tuple[Ints, Ints]:
    """Return the counters of the chosen, ascending, by their hash with PLACE; and the bits of who was charged to it."""
    theirs = [_THEIRS.empty_table()]
    for table in charged(clients, capped):
        at = hashes.places(table, chosen, CLIENT)
        mine = table.filter(pa.array(at >= 0))
        theirs.append(with_columns(mine, {"number": ints(chosen, "number")[at[at >= 0]]}).select(_CHOSEN).cast(_THEIRS))
    of_them = pa.concat_tables(theirs)
    counters, code = np.unique(hashes.of_columns(of_them, _COUNTER), return_inverse=True)
    bits = np.zeros(len(counters), dtype=np.int64)
    np.bitwise_or.at(bits, code, 1 << ints(of_them, "number"))
    return counters, bits
