"""What a period of usage records is about, before any of it is replayed: who was there, and how it was recorded."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from operator import or_
from typing import Any, Final

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.demand import Indices
from analysis.errors import AnalysisError
from analysis.histogram import Floats
from analysis.units import COLUMNS, Client, Columns
from quotas.kinds import QuotaKind
from quotas.rate import Window

KINDS: Final = (QuotaKind.PRODUCER_BYTE_RATE, QuotaKind.CONSUMER_BYTE_RATE)
"""What is enforced, and so is replayed."""
IDENTITY: Final = ("cluster", "instance", "listener", "broker", "user", "client_id")
"""Whom a row is about. Listeners are told apart: two rows of one client may be of the same second."""
_ENFORCE: Final = "enforce"
_BETWEEN: Final = "\0"
_LONGEST_INTERVAL_MS: Final = 3_600_000
"""A proxy that was suspended for longer says so in one interval; nobody knows when in it what was used."""


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
        if _ENFORCE not in self.modes:
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


@dataclass(frozen=True, slots=True)
class Recording:
    """The rows of a period, and whom they are about."""

    rows: DataFrame
    circumstances: Circumstances
    identities: Any
    """An Arrow table of IDENTITY, [client]."""
    clients: tuple[Client, ...]
    """[client]: the instance is the place of it, which ``cluster_and_instance`` takes apart."""
    used: Mapping[QuotaKind, Used]


def place(cluster: str, instance: str) -> str:
    """Return one name for an instance of a cluster."""
    return f"{cluster}{_BETWEEN}{instance}"


def cluster_and_instance(name: str) -> tuple[str, str]:
    """Return what ``place`` was made of."""
    cluster, _, instance = name.partition(_BETWEEN)
    return cluster, instance


def read(rows: DataFrame, kinds: Iterable[QuotaKind] = KINDS) -> Recording:
    """Look at all rows twice, cheaply. Raises AnalysisError where nobody used anything."""
    circumstances = _circumstances(rows)
    wanted = tuple(kinds)
    found = _clients(rows, wanted).toArrow()
    if not found.num_rows:
        raise AnalysisError(
            f"nobody produced or fetched anything from {circumstances.begin:%Y-%m-%d %H:%M} to "
            f"{circumstances.end:%Y-%m-%d %H:%M} UTC: take another period with --from and --to"
        )
    names = ("cluster", "instance", "broker", "user", "client_id")
    clients = tuple(
        Client(place(cluster, instance), broker, user, client_id)
        for cluster, instance, broker, user, client_id in zip(*(found[name].to_pylist() for name in names), strict=True)
    )
    used = {kind: _used(found, kind) for kind in wanted}
    return Recording(rows, circumstances, found.select(list(IDENTITY)), clients, used)


def interval_ms() -> Column:
    """Return the length of a row's interval: between 1 ms and an hour."""
    return F.greatest(F.least(F.col("interval_ms"), F.lit(_LONGEST_INTERVAL_MS)), F.lit(1))


def enforced(name: str) -> Column:
    """Return a column of throttling, 0 where it was not enforced."""
    return F.when(F.col("mode") == _ENFORCE, F.col(name)).otherwise(0)


def active(columns: Columns) -> Column:
    """Whether a row says anything of a kind."""
    return (F.col(columns.used) > 0) | (F.col(str(columns.muted_ms)) > 0)


def _circumstances(rows: DataFrame) -> Circumstances:
    begin_ms = F.unix_millis("time")
    found = (
        rows.groupBy("cluster", "instance", "boot", "mode", "samples", "sample_ms")
        .agg(
            F.min(begin_ms).alias("begin_ms"),
            F.max(begin_ms + interval_ms()).alias("end_ms"),
            F.min("seq").alias("first"),
            F.max("seq").alias("last"),
            F.count_distinct("seq").alias("documents"),
            F.sum(interval_ms()).alias("interval_ms"),
            F.count(F.lit(1)).alias("rows"),
        )
        .toArrow()
        .to_pylist()
    )
    begin_ms_all = min(each["begin_ms"] for each in found)
    first_ms: dict[str, int] = {}
    runs: dict[tuple[str, str, str], list[Mapping[str, int]]] = {}
    for each in found:
        name = place(each["cluster"], each["instance"])
        first_ms[name] = min(each["begin_ms"], first_ms.get(name, each["begin_ms"]))
        runs.setdefault((each["cluster"], each["instance"], each["boot"]), []).append(each)
    windows = {(each["samples"], each["sample_ms"]) for each in found}
    last = max(found, key=lambda each: each["end_ms"])
    numbers = sum(max(p["last"] for p in run) - min(p["first"] for p in run) + 1 for run in runs.values())
    documents = sum(each["documents"] for each in found)
    return Circumstances(
        begin_ms=begin_ms_all,
        end_ms=max(each["end_ms"] for each in found),
        origins_ms={name: at - (at - begin_ms_all + 999) // 1000 * 1000 for name, at in first_ms.items()},
        window=Window(last["samples"], last["sample_ms"]),
        windows=len(windows),
        modes=tuple(sorted({each["mode"] for each in found})),
        interval_ms=sum(each["interval_ms"] for each in found) / sum(each["rows"] for each in found),
        documents=documents,
        missing_documents=numbers - documents,
    )


def _clients(rows: DataFrame, kinds: tuple[QuotaKind, ...]) -> DataFrame:
    """Return a row for each identity, with sums for each kind."""
    any_use = reduce(or_, (active(COLUMNS[kind]) for kind in kinds))
    rules = [str(COLUMNS[kind].rule) for kind in kinds]
    by_rule = (
        rows.where(F.col("user").isNotNull() & any_use)
        .groupBy(*IDENTITY, *rules)
        .agg(*(column for kind in kinds for column in _sums(kind)))
    )
    merged = [column for kind in kinds for column in _merged(kind)]
    return by_rule.groupBy(*IDENTITY).agg(*merged)


def _sums(kind: QuotaKind) -> list[Column]:
    columns = COLUMNS[kind]
    used = F.col(columns.used)
    limit = F.coalesce(F.col(str(columns.limit)), F.lit(float("inf")))
    return [
        F.sum(active(columns).cast("int")).alias(f"{kind}_rows"),
        F.sum(used).alias(f"{kind}_sent"),
        F.sum(columns.requests).alias(f"{kind}_requests"),
        F.sum(enforced(str(columns.throttled))).alias(f"{kind}_throttled"),
        F.sum(enforced(str(columns.muted_ms))).alias(f"{kind}_muted"),
        F.max(used / interval_ms()).alias(f"{kind}_peak"),
        F.min(limit).alias(f"{kind}_least"),
        F.max(limit).alias(f"{kind}_most"),
    ]


def _merged(kind: QuotaKind) -> list[Column]:
    rule = F.coalesce(F.col(str(COLUMNS[kind].rule)), F.lit(""))
    sums = [F.sum(f"{kind}_{name}").alias(f"{kind}_{name}") for name in ("rows", "sent", "requests")]
    return [
        *sums,
        *(F.sum(f"{kind}_{name}").alias(f"{kind}_{name}") for name in ("throttled", "muted")),
        *(F.max(f"{kind}_{name}").alias(f"{kind}_{name}") for name in ("peak", "most")),
        F.min(f"{kind}_least").alias(f"{kind}_least"),
        F.min(rule).alias(f"{kind}_first_rule"),
        F.max(rule).alias(f"{kind}_last_rule"),
    ]


def _used(found: Any, kind: QuotaKind) -> Used:
    def numbers(name: str) -> Floats:
        return np.asarray(found[f"{kind}_{name}"].to_numpy(), dtype=float)

    rules = zip(found[f"{kind}_first_rule"].to_pylist(), found[f"{kind}_last_rule"].to_pylist(), strict=True)
    return Used(
        rows=numbers("rows").astype(np.intp),
        sent_bytes=numbers("sent"),
        requests=numbers("requests"),
        throttled=numbers("throttled"),
        muted_s=numbers("muted") / 1000,
        peak_bytes_per_s=numbers("peak") * 1000,
        least_limit=numbers("least"),
        most_limit=numbers("most"),
        rules=tuple(None if not last else last if first == last else "" for first, last in rules),
    )
