"""Gold's sums of a period by DuckDB: the use of each client, and the circumstances of the recording."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from itertools import starmap
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from analysis.errors import AnalysisError
from analysis.kernel.arrays import Bools, Floats, Indices
from analysis.kernel.units import REPLAYED, ClientOnBroker
from analysis.warehouse import Period, opened
from quotas.kinds import QuotaKind
from quotas.rate import Window

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_TABLES: Final = ("client", "charged", "counters", "readings", "documents")
ENFORCE: Final = "enforce"
NAMES: Final = ("cluster", "instance", "broker", "user", "client_id")
"""The key of sums: a client on one broker, through one proxy."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    begin_ms: int
    """Unix time of the first interval."""
    end_ms: int
    origin_ms: int
    """Unix time of the earliest second 0 of any proxy."""
    instances: int
    window: Window
    """The last window of enforcement, at least a second long: the kernel goes by seconds."""
    windows: int
    """The number of different windows."""
    modes: tuple[str, ...]
    interval_ms: float
    """The mean interval."""
    documents: int
    missing_documents: int
    """Gaps in the documents' numbers."""
    exempt_rows: int
    """Rows of exempt clients, which are left out of everything else."""

    @property
    def seconds(self) -> int:
        return max(-(-(self.end_ms - self.origin_ms) // 1000), 1)

    @property
    def begin(self) -> datetime:
        return datetime.fromtimestamp(self.begin_ms / 1000, UTC)

    @property
    def end(self) -> datetime:
        return datetime.fromtimestamp(self.end_ms / 1000, UTC)

    def notes(self) -> list[str]:
        """Return notes about what limits the accuracy of results."""
        said = []
        if self.missing_documents:
            said.append(
                f"{self.missing_documents} of {self.documents + self.missing_documents} documents are missing (lost by "
                "the proxy, or not ingested): demand was at least what is shown"
            )
        if self.interval_ms > 1.5 * self.window.size_ms:
            said.append(
                f"intervals are {self.interval_ms / 1000:.3g} s long: use is taken as even within them, and throttles "
                "by shorter bursts are missed"
            )
        if self.windows > 1:
            said.append(
                f"the window of enforcement changed meanwhile: {self.window.samples} samples of "
                f"{self.window.size_ms} ms, the last one, is taken"
            )
        if self.exempt_rows:
            said.append("exempt clients (quotas.exempt) are left out: no quota holds them")
        if ENFORCE not in self.modes:
            said.append(f"recorded in mode {' and '.join(self.modes)}: nobody was held up, demand is known exactly")
        return said


@dataclass(frozen=True, slots=True)
class Used:
    """The use of one quota kind; arrays are [client], except ``links``."""

    used: Floats
    """In the unit of the limit times seconds."""
    requests: Floats
    throttled: Floats
    """Requests with an enforced throttle time."""
    muted_s: Floats
    least_limit: Floats
    most_limit: Floats
    """The lowest and the highest limit in force, inf for none."""
    rules: tuple[str | None, ...]
    """The rule of the limit; "" if it changed, None for none."""
    cap_muted_s: Floats
    """The part of ``muted_s`` that is due to caps."""
    capped: Bools
    """Whether the client was charged to any cap."""
    links: Indices
    """[2, link] clients, and counters of ``Sums`` that measured them."""

    @property
    def active(self) -> Bools:
        """Whether the client used anything or was held up."""
        return np.asarray((self.used > 0) | (self.muted_s > 0))


@dataclass(frozen=True, slots=True)
class Sums:
    circumstances: Circumstances
    identities: pa.Table
    """[client] the columns NAMES."""
    clients: tuple[ClientOnBroker, ...]
    """[client]; the instance is "" if one proxy at a time had the broker."""
    origins_ms: Indices
    """[client] Unix time of its proxy's second 0."""
    used: Mapping[QuotaKind, Used]
    surges: Floats
    """[counter] the most use within any window, in the unit of the limit times seconds."""
    active_s: Floats
    """[counter] the time with use."""
    present: tuple[tuple[QuotaKind, str], ...] = ()
    """The kinds and roles of rows (``analysis.charges``) that are replayed."""

    def names(self, clients: Indices) -> dict[str, Any]:
        """Return the columns NAMES of some clients."""
        return dict(zip(NAMES, self.identities.take(pa.array(clients)).columns, strict=True))


def read(warehouse: str, period: Period) -> Sums:
    """Return the sums of a period. Raises AnalysisError if there is no gold, or no use that can be replayed."""
    import duckdb

    try:
        return _read(opened(warehouse, period, _TABLES))
    except duckdb.Error as error:
        raise AnalysisError(f"{warehouse}: gold cannot be read: {error}") from None


def _read(gold: "DuckDBPyConnection") -> Sums:
    words = [kind.row.word for kind in REPLAYED]
    gold.execute("CREATE OR REPLACE TEMP TABLE replayed AS SELECT unnest(?) AS kind", [words])
    gold.execute(_queries("clients"))
    circumstances = _circumstances(gold)
    found: Any = gold.sql("FROM clients ORDER BY client").to_arrow_table()
    if not found.num_rows:
        raise AnalysisError(
            f"nobody produced or fetched anything from {circumstances.begin:%Y-%m-%d %H:%M} to "
            f"{circumstances.end:%Y-%m-%d %H:%M} UTC: take another period with --from and --to"
        )
    names = (found[name].to_pylist() for name in ("cluster", "owner", "broker", "user", "client_id"))
    counters = gold.execute(_queries("counters"), {"window_ms": circumstances.window.keep_ms}).fetchnumpy()
    roles = set(gold.execute("SELECT DISTINCT kind, role FROM charged_here").fetchall())
    present = tuple((kind, role) for kind in REPLAYED for role in ("quota", "cap") if (kind.row.word, role) in roles)
    return Sums(
        circumstances,
        found.select(NAMES),
        tuple(starmap(ClientOnBroker, zip(*names, strict=True))),
        found["origin_ms"].to_numpy().astype(np.intp),
        {kind: _used(gold, kind, found.num_rows) for kind in dict.fromkeys(kind for kind, _ in present)},
        counters["surge"].astype(float),
        counters["active_s"].astype(float),
        present,
    )


def _queries(name: str) -> str:
    return files("analysis.demand").joinpath(f"{name}.sql").read_text(encoding="utf-8")


def _circumstances(gold: "DuckDBPyConnection") -> Circumstances:
    [[found]] = gold.execute(_queries("circumstances")).fetchall()
    said = dict(found)
    samples, size_ms = said.pop("samples"), said.pop("sample_ms")
    modes = tuple(said.pop("modes"))
    return Circumstances(**said, window=Window(samples, max(size_ms, -(-1000 // samples))), modes=modes)


def _used(gold: "DuckDBPyConnection", kind: QuotaKind, clients: int) -> Used:
    sums: Any = gold.sql("FROM used WHERE kind = ?", params=[kind.row.word]).to_arrow_table()
    links = gold.execute("SELECT client, number FROM links WHERE kind = ?", [kind.row.word]).fetchnumpy()
    client = sums["client"].to_numpy()

    def each(name: str, without: float = 0.0) -> Floats:
        values = np.full(clients, without)
        values[client] = sums[name].to_numpy()
        return values

    rules: list[str | None] = [None] * clients
    for at, first, last in zip(
        client.tolist(), sums["first_rule"].to_pylist(), sums["last_rule"].to_pylist(), strict=True
    ):
        rules[at] = None if not last else last if first == last else ""
    return Used(
        used=each("used"),
        requests=each("requests"),
        throttled=each("throttled"),
        muted_s=each("muted_ms") / 1000,
        least_limit=each("least_limit", np.inf),
        most_limit=each("most_limit", np.inf),
        rules=tuple(rules),
        cap_muted_s=each("cap_muted_ms") / 1000,
        capped=each("capped") > 0,
        links=np.stack((links["client"], links["number"])).astype(np.intp),
    )
