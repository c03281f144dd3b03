"""What a period of usage records is about, before any of it is replayed: who was there, and how it was recorded."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from itertools import starmap
from typing import Any, Final

import numpy as np

from analysis.errors import AnalysisError
from analysis.kernel.demand import Indices
from analysis.kernel.histogram import Floats
from analysis.kernel.units import COLUMNS, Client
from analysis.replay.partials import Documents, Identities, cap_columns
from analysis.replay.rows import ENFORCE, IDENTITY, texts
from analysis.table.exchange import exchange
from analysis.table.parquet import encoded, joined
from analysis.table.scan import UsageRows
from quotas.kinds import METERED, QuotaKind
from quotas.rate import Window

REFUSING: Final = (QuotaKind.CONTROLLER_MUTATION_RATE, QuotaKind.CONNECTION_CREATION_RATE)
"""The kinds whose law refuses (``analysis.kernel.refusals``); all others hold up, by sampled rates."""
KINDS: Final = tuple(kind for kind in QuotaKind if kind.row.enforced)
"""What is enforced, and replayed."""
_BETWEEN: Final = "\0"


@dataclass(frozen=True, slots=True)
class Circumstances:
    """How a period was recorded."""

    begin_ms: int
    """Unix time, of the first interval."""
    end_ms: int
    origins_ms: Mapping[str, int]
    """By place: where its second 0 begins, with an interval of its own and within a second of the others'."""
    window: Window
    """Of enforcement, as at the end."""
    windows: int
    """How many different ones there were."""
    modes: tuple[str, ...]
    interval_ms: float
    """The mean."""
    documents: int
    missing_documents: int
    """Lost by the proxy, or not ingested: gaps in their numbers."""
    exempt_rows: int = 0
    """Of clients that no quota holds: they are left out of all else."""
    untold: int = 0
    """Attempts of addresses that records do not tell apart, which are left out too."""
    addresses: bool = False
    """Whether there is anything of connections by address."""
    controller_window: Window = field(default_factory=Window)
    """Of token buckets, as at the end."""
    capped: tuple[QuotaKind, ...] = ()
    """The kinds that anybody had caps of."""

    @property
    def seconds(self) -> int:
        """The seconds of the period, from any second 0."""
        return max(-(-(self.end_ms - min(self.origins_ms.values(), default=self.begin_ms)) // 1000), 1)

    @property
    def begin(self) -> datetime:
        return datetime.fromtimestamp(self.begin_ms / 1000, UTC)

    @property
    def end(self) -> datetime:
        return datetime.fromtimestamp(self.end_ms / 1000, UTC)

    def notes(self) -> list[str]:
        """Return what makes an answer less than it seems."""
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
        if self.untold:
            said.append(
                f"{self.untold:,} connections of addresses beyond usage.max_addresses are left out: nobody knows which "
                "were of the same"
            )
        if ENFORCE not in self.modes:
            said.append(f"recorded in mode {' and '.join(self.modes)}: nobody was held up, demand is known exactly")
        return said


@dataclass(frozen=True, slots=True)
class Used:
    """What clients used of one quota kind: [client]."""

    rows: Indices
    """With any use, or throttle."""
    sent_bytes: Floats
    requests: Floats
    throttled: Floats
    """Requests that were given a throttle time which was enforced."""
    muted_s: Floats
    peak_bytes_per_s: Floats
    """Of any row."""
    least_limit: Floats
    most_limit: Floats
    """In force, infinite without one. They differ where it changed."""
    rules: tuple[str | None, ...]
    """What set the limit; "" where that changed, None where there was none."""
    caps: tuple[str | None, ...]
    """The caps besides, likewise."""
    cap_held_s: Floats
    """Of ``muted_s``, how long a cap did."""
    cap_rules: tuple[str | None, ...]
    """The cap that did; "" where there were several, None where there was none."""


@dataclass(frozen=True, slots=True)
class Recording:
    """The rows of a period, and whom they are about."""

    usage: UsageRows
    circumstances: Circumstances
    identities: Any
    """An Arrow table of IDENTITY, [client]."""
    clients: tuple[Client, ...]
    """[client]: the instance is the place of it, which ``cluster_and_instance`` takes apart."""
    connections: Floats
    """[client]: the mean of how many it had."""
    used: Mapping[QuotaKind, Used]


def place(cluster: str, instance: str) -> str:
    """Return one name for an instance of a cluster."""
    return f"{cluster}{_BETWEEN}{instance}"


def cluster_and_instance(name: str) -> tuple[str, str]:
    """Return what ``place`` was made of."""
    cluster, _, instance = name.partition(_BETWEEN)
    return cluster, instance


def circumstances_of(usage: UsageRows) -> Circumstances:
    """Look at how all rows were recorded. Raises AnalysisError where there are none."""
    documents = Documents(_tasks(usage))
    runs = exchange(usage, documents.columns, documents.sent, documents.tasks).collect(documents.received).to_pylist()
    if not runs:
        raise AnalysisError(usage.nothing)
    return _circumstances(runs)


def _tasks(usage: UsageRows) -> int:
    return int(str(usage.spark.conf.get("spark.sql.shuffle.partitions")))


def read(usage: UsageRows, kinds: Iterable[QuotaKind] = KINDS, circumstances: Circumstances | None = None) -> Recording:
    """Look at all rows twice, cheaply. Raises AnalysisError where there are none, or nobody used anything.

    ``circumstances``: those that ``usage`` was recorded in, where it is not all that was recorded then.
    """
    circumstances = circumstances or circumstances_of(usage)
    tasks = _tasks(usage)
    wanted = tuple(kinds)
    identities = Identities(wanted, tasks, tuple(kind for kind in circumstances.capped if kind in wanted))
    found = exchange(usage, identities.columns, identities.sent, tasks).collect(identities.received)
    if not found.num_rows:
        raise AnalysisError(
            f"nobody produced or fetched anything from {circumstances.begin:%Y-%m-%d %H:%M} to "
            f"{circumstances.end:%Y-%m-%d %H:%M} UTC: take another period with --from and --to"
        )
    # A copy: of what came, each column keeps all others.
    whom = joined([encoded(found.select(list(IDENTITY)))])
    clients = _clients(whom)
    used = {kind: _used(found, kind, capped=kind in identities.capped) for kind in wanted}
    seen, connections = (np.asarray(found[name].to_numpy(), dtype=float) for name in ("seen", "connections"))
    circumstances = replace(circumstances, addresses=any(client.ip for client in clients))
    return Recording(usage, circumstances, whom, clients, connections / seen, used)


def _clients(identities: Any) -> tuple[Client, ...]:
    """Return who each is; of 100,000 clients most have the names of their places and users in common."""
    cluster, instance, *who = (texts(identities[name]) for name in ("cluster", "instance", "user", "client_id", "ip"))
    once = cache(place)
    places = [once(*names) for names in zip(cluster, instance, strict=True)]
    return tuple(starmap(Client, zip(places, identities["broker"].to_pylist(), *who, strict=True)))


def _circumstances(found: Sequence[Mapping[str, Any]]) -> Circumstances:
    begin_ms_all = min(each["begin_ms"] for each in found)
    first_ms: dict[str, int] = {}
    for each in found:
        name = place(each["cluster"], each["instance"])
        first_ms[name] = min(each["begin_ms"], first_ms.get(name, each["begin_ms"]))
    windows = {(each["samples"], each["sample_ms"]) for each in found}
    last = max(found, key=lambda each: each["end_ms"])
    return Circumstances(
        begin_ms=begin_ms_all,
        end_ms=max(each["end_ms"] for each in found),
        origins_ms={name: at - (at - begin_ms_all + 999) // 1000 * 1000 for name, at in first_ms.items()},
        window=_replayable(last["samples"], last["sample_ms"]),
        windows=len(windows),
        controller_window=Window(last["controller_samples"], last["controller_sample_ms"]),
        exempt_rows=sum(each["exempt_rows"] for each in found),
        untold=sum(each["untold"] for each in found),
        modes=tuple(sorted({each["mode"] for each in found})),
        interval_ms=sum(each["interval_ms"] for each in found) / sum(each["rows"] for each in found),
        documents=sum(each["documents"] for each in found),
        missing_documents=sum(each["missing"] for each in found),
        capped=tuple(kind for kind in METERED if any(each[f"{kind}_capped"] for each in found)),
    )


def _replayable(samples: int, sample_ms: int) -> Window:
    """Return a window of enforcement, of a second at least: rows are replayed by the second."""
    return Window(samples, max(sample_ms, -(-1000 // samples)))


def _used(found: Any, kind: QuotaKind, *, capped: bool) -> Used:
    nobody: tuple[str | None, ...] = (None,) * found.num_rows

    def numbers(name: str) -> Floats:
        return np.asarray(found[f"{kind}_{name}"].to_numpy(), dtype=float)

    def named(rule: str) -> tuple[str | None, ...]:
        first, last = (texts(found[f"{rule}_{end}"]) for end in ("min", "max"))
        if not any(last):
            return nobody
        return tuple(None if not b else b if a == b else "" for a, b in zip(first, last, strict=True))

    return Used(
        rows=_once(numbers("rows").astype(np.intp)),
        sent_bytes=_once(numbers("sent")),
        requests=_once(numbers("requests")),
        throttled=_once(numbers("throttled")),
        muted_s=_once(numbers("muted") / 1000),
        peak_bytes_per_s=_once(numbers("peak") * 1000),
        least_limit=_once(numbers("least")),
        most_limit=_once(numbers("most")),
        rules=named(str(COLUMNS[kind].rule)),
        caps=named(cap_columns(kind)[0]) if capped else nobody,
        cap_held_s=_once(numbers("cap_held") / 1000) if capped else _once(np.zeros(found.num_rows)),
        cap_rules=named(cap_columns(kind)[1]) if capped else nobody,
    )


def _once(values: Any) -> Any:
    """Return an array that takes no memory where all have one value: as of kinds that nobody uses, which most are."""
    return np.broadcast_to(values[0].copy(), len(values)) if (values == values[0]).all() else values
