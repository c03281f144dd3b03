"""Rows of usage records on their way to the task of their unit: as numbers, and only those that are wanted."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa

from analysis.kernel.demand import Indices
from analysis.kernel.units import COLUMNS
from analysis.replay.recording import Recording
from analysis.replay.rows import IDENTITY, active, enforced, identified, interval_ms
from analysis.table.arrays import Ints, ints, times_ms
from analysis.table.exchange import packed
from analysis.table.hashes import of_columns
from quotas.kinds import QuotaKind

SENT: Final = pa.schema(
    [
        ("series", pa.int32()),
        ("begin_ms", pa.int64()),
        ("interval_ms", pa.int32()),
        *((name, pa.int64()) for name in ("sent", "muted_ms", "throttled", "throttle_ms")),
    ]
)
"""What a task gets of a row: ``begin_ms`` is since second 0 of the row's place."""
SENT_OF_REFUSING: Final = SENT.append(pa.field("requests", pa.int64()))
"""Likewise, of kinds whose law refuses."""


@dataclass(frozen=True, slots=True)
class Known:
    """Clients by the number of their identity (``hashes``): a fraction of their names, and no join for each table."""

    number: Ints
    """Each once."""
    client: Indices
    """Of each number."""

    @classmethod
    def of(cls, identities: pa.Table, clients: Indices) -> "Known":
        """Take some of the clients, of whom ``identities`` says IDENTITY: [client]."""
        number, first = np.unique(of_columns(identities, IDENTITY)[clients], return_index=True)
        return cls(number, clients[first])

    def finder(self) -> Callable[[pa.Table], Indices]:
        """Return what finds [row] the client that it is about, -1 for nobody who is known."""
        index = pd.Index(self.number)  # a third of the time of bisection
        client = np.append(self.client, -1)
        return lambda table: client[index.get_indexer(of_columns(table, IDENTITY))]


@dataclass(frozen=True, slots=True)
class Sender:
    """What a worker needs to know of whom rows are about, and does. It travels to the workers."""

    known: Known
    series: Mapping[QuotaKind, Indices]
    """[client], -1 for none; and -1 once more, for whoever is no client."""
    origin_ms: Indices
    """[client]: where the second 0 of its place begins."""
    task: Indices
    """[series]."""
    sent_columns: pa.Schema = SENT

    @classmethod
    def of(
        cls, recording: Recording, series: Mapping[QuotaKind, Indices], task: Indices, columns: pa.Schema = SENT
    ) -> "Sender":
        """Take the series of each client, -1 for none, and the task of each series."""
        there = {kind: of_kind for kind, of_kind in series.items() if (of_kind >= 0).any()}
        wanted = np.flatnonzero(np.logical_or.reduce([of_kind >= 0 for of_kind in there.values()]))
        origins_ms = recording.circumstances.origins_ms
        return cls(
            Known.of(recording.identities, wanted),
            {kind: np.append(of_kind, -1) for kind, of_kind in there.items()},
            np.array([origins_ms[client.instance] for client in recording.clients]),
            task,
            columns,
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """Those of rows that are needed."""
        of_kinds = [
            str(name)
            for each in (COLUMNS[kind] for kind in self.series)
            for name in dict.fromkeys((each.used, each.requests, each.muted_ms, each.throttled, each.throttle_ms))
        ]
        return (*IDENTITY, "exempt", "time", "interval_ms", "mode", *of_kinds)

    def sent(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield rows of SENT, packed for the tasks of their units."""
        find = self.known.finder()
        for table in map(identified, tables):
            client = find(table)
            for kind, series_of_client in self.series.items():
                columns = COLUMNS[kind]
                series = series_of_client[client]
                row = np.flatnonzero((series >= 0) & active(table, columns))
                values = {
                    "series": series,
                    "begin_ms": times_ms(table) - self.origin_ms[client],
                    "interval_ms": interval_ms(table),
                    "sent": ints(table, columns.used),
                    "requests": ints(table, columns.requests),
                    "muted_ms": enforced(table, str(columns.muted_ms)),
                    "throttled": enforced(table, str(columns.throttled)),
                    "throttle_ms": enforced(table, str(columns.throttle_ms)),
                }
                chosen = [pa.array(values[field.name][row], field.type) for field in self.sent_columns]
                yield from packed(pa.table(chosen, schema=self.sent_columns), self.task[series[row]])
