"""The rows of the report: one load each, with its aim."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatch
from typing import Final

from bench.errors import BenchError
from bench.programs import HAPROXY, NO_QUOTAS

KIB: Final = 1024
MIB: Final = 1024 * KIB


class Measure(StrEnum):
    """The kind of measurement of a row."""

    CPU_PER_REQUEST = "cpu per request"
    CPU_PER_GB = "cpu per GB"
    CPU_PER_CONNECTION = "cpu per connection"
    LATENCY = "latency"
    MEMORY = "memory"
    START = "start"
    VERSION = "version"


class Client(StrEnum):
    """The client of a load, and the broker that answers it."""

    GENERATOR = "generator"
    """native/, which also plays the broker."""
    REPLAY = "replay"
    """native/ replaying requests of a real producer, recorded in the same run, to a real broker."""
    JAVA = "java"
    """The performance tools of the distribution, with a real broker."""


@dataclass(frozen=True, slots=True)
class Load:
    """A load. ``bytes``: the size of a produce frame (approximate for real clients), or of the records in a fetch
    response.

    ``reconnect``: a new connection per request; ``resume``: its handshake resumes an earlier session.
    """

    connections: int
    depth: int = 1
    bytes: int = 512
    api: str = "produce"
    rate_per_s: int | None = None
    client_ids: int = 1
    rotate: bool = False
    tls: bool = False
    reconnect: bool = False
    resume: bool = False
    client: Client = Client.GENERATOR

    @property
    def is_real(self) -> bool:
        """Whether a real broker answers."""
        return self.client is not Client.GENERATOR

    def words(self) -> str:
        """Return the load in the generator's language (see native/load.h)."""
        return (
            f"connections={self.connections} depth={self.depth} bytes={self.bytes} api={self.api} "
            f"rate={self.rate_per_s or 0} client_ids={self.client_ids} rotate={int(self.rotate)} "
            f"tls={int(self.tls)} reconnect={int(self.reconnect)} resume={int(self.resume)}"
        )


@dataclass(frozen=True, slots=True)
class Aim:
    """The upper limit for Sluice: a figure, or a multiple of the row's baseline in the same run."""

    limit: float
    is_ratio: bool = True


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the report. ``entities``: the number of client-ids with a quota; ``kinds``: the kinds of those quotas
    (``bench.programs.KINDS``). ``against``: the baseline of ratios, HAProxy or the compiled build without quotas, which
    is then measured in each round too.
    """

    name: str
    about: str
    measure: Measure
    load: Load
    entities: int = 1
    aim: Aim | None = None
    kinds: str = "bytes"
    against: str = HAPROXY


IDLE_CONNECTIONS: Final = 1000
_NONE: Final = Load(connections=1)
_SMALL: Final = Load(connections=64)
_RECONNECT: Final = Load(16, reconnect=True)
_MANY: Final = (1_000, 100_000)
_TLS_SMALL: Final = Aim(1.45)
_TLS_PIPELINED: Final = Aim(1.5)
_TLS_LARGE: Final = Aim(1.2)
_IDLE: Final = Aim(4.5, is_ratio=False)


def _tls(connections: int, depth: int = 1, size: int = 512, api: str = "produce") -> Load:
    return Load(connections, depth, size, api, tls=True)


def _java(size: int, api: str = "produce") -> Load:
    return Load(1, 5 if api == "produce" else 1, size, api, client=Client.JAVA)


ROWS: Final = (
    Row("small-1", "512 B produce, 1 connection", Measure.CPU_PER_REQUEST, Load(1), aim=Aim(1.1)),
    Row("small-64", "512 B produce, 64 connections", Measure.CPU_PER_REQUEST, _SMALL, aim=Aim(1.15)),
    Row("small-1000", "512 B produce, 1,000 connections", Measure.CPU_PER_REQUEST, Load(1000), aim=Aim(1.3)),
    Row("pipelined", "256 B produce, 16 connections x 4", Measure.CPU_PER_REQUEST, Load(16, 4, 256), aim=Aim(1.25)),
    Row("produce-16k", "16 KiB produce, 16 x 2", Measure.CPU_PER_GB, Load(16, 2, 16 * KIB), aim=Aim(0.8)),
    Row("produce-64k", "64 KiB produce, 8 x 2", Measure.CPU_PER_GB, Load(8, 2, 64 * KIB), aim=Aim(1.0)),
    Row("produce-64k-wide", "64 KiB produce, 16 x 2", Measure.CPU_PER_GB, Load(16, 2, 64 * KIB)),
    Row("produce-256k", "256 KiB produce, 8 x 2", Measure.CPU_PER_GB, Load(8, 2, 256 * KIB), aim=Aim(0.85)),
    Row("produce-1m", "1 MiB produce, 8 x 2", Measure.CPU_PER_GB, Load(8, 2, MIB), aim=Aim(0.85)),
    Row("fetch-128k", "128 KiB fetch, 8 x 2", Measure.CPU_PER_GB, Load(8, 2, 128 * KIB, "fetch")),
    Row("fetch-1m", "1 MiB fetch, 8 x 2", Measure.CPU_PER_GB, Load(8, 2, MIB, "fetch"), aim=Aim(0.85)),
    Row("latency", "512 B produce, 2,000/s on 16 connections", Measure.LATENCY, Load(16, rate_per_s=2000)),
    Row("memory-idle", f"{IDLE_CONNECTIONS:,} idle connections", Measure.MEMORY, Load(IDLE_CONNECTIONS), aim=_IDLE),
    Row("tls-small-1", "small-1 over TLS", Measure.CPU_PER_REQUEST, _tls(1), aim=_TLS_SMALL),
    Row("tls-small-64", "small-64 over TLS", Measure.CPU_PER_REQUEST, _tls(64), aim=_TLS_SMALL),
    Row("tls-pipelined", "pipelined over TLS", Measure.CPU_PER_REQUEST, _tls(16, 4, 256), aim=_TLS_PIPELINED),
    Row("tls-produce-16k", "produce-16k over TLS", Measure.CPU_PER_GB, _tls(16, 2, 16 * KIB)),
    Row("tls-produce-1m", "produce-1m over TLS", Measure.CPU_PER_GB, _tls(8, 2, MIB), aim=_TLS_LARGE),
    Row("tls-fetch-1m", "fetch-1m over TLS", Measure.CPU_PER_GB, _tls(8, 2, MIB, "fetch"), aim=_TLS_LARGE),
    Row(
        "connections",
        "connect, one request, close; 16 at a time",
        Measure.CPU_PER_CONNECTION,
        _RECONNECT,
        aim=Aim(1.4),
    ),
    Row(
        "tls-handshakes",
        "connections with a full handshake",
        Measure.CPU_PER_CONNECTION,
        replace(_RECONNECT, tls=True),
    ),
    Row(
        "tls-resumed",
        "connections that resume a session",
        Measure.CPU_PER_CONNECTION,
        replace(_RECONNECT, tls=True, resume=True),
    ),
    Row("memory-idle-tls", "memory-idle over TLS", Measure.MEMORY, _tls(IDLE_CONNECTIONS)),
    Row("memory-tls-256k", "the same, used for 256 KiB", Measure.MEMORY, _tls(IDLE_CONNECTIONS, 1, 256 * KIB)),
    *(
        Row(f"entities-{count}", f"small-64, {count:,} quotas", Measure.CPU_PER_REQUEST, _SMALL, count)
        for count in _MANY
    ),
    *(
        Row(
            f"clients-{count}",
            f"small-64, {count:,} quotas, each request the next client-id",
            Measure.CPU_PER_REQUEST,
            Load(64, client_ids=count, rotate=True),
            count,
        )
        for count in _MANY
    ),
    *(
        Row(
            f"kinds-{kinds}",
            f"small-64, quotas: {kinds}; x against none",
            Measure.CPU_PER_REQUEST,
            _SMALL,
            aim=Aim(limit),
            kinds=kinds,
            against=NO_QUOTAS,
        )
        for kinds, limit in (("bytes", 1.03), ("stacked", 1.06), ("time", 1.08), ("mutations", 1.03), ("all", 1.11))
    ),
    *(
        Row(
            f"connect-{kinds}",
            f"connections, quotas: {kinds}; x against none",
            Measure.CPU_PER_CONNECTION,
            _RECONNECT,
            kinds=kinds,
            against=NO_QUOTAS,
        )
        for kinds in ("connections", "all")
    ),
    Row("start", "from start to listening", Measure.START, _NONE, aim=Aim(2000, is_ratio=False)),
    Row("start-1000", "the same with 1,000 quotas", Measure.START, _NONE, 1_000),
    Row("start-100000", "with 100,000 quotas", Measure.START, _NONE, 100_000, aim=Aim(1200, is_ratio=False)),
    Row("version", "sluice --version", Measure.VERSION, _NONE, aim=Aim(200, is_ratio=False)),
    # Rows with a real broker come last: it uses the load's core as long as it runs.
    Row(
        "real-small-32",
        "512 B produce, acks=1, 32 connections, a real broker",
        Measure.CPU_PER_REQUEST,
        Load(32, client=Client.REPLAY),
        aim=Aim(1.08),
    ),
    Row(
        "real-pipelined",
        "the same, 16 connections x 4",
        Measure.CPU_PER_REQUEST,
        Load(16, 4, client=Client.REPLAY),
        aim=Aim(1.1),
    ),
    Row("real-produce-16k", "a Java producer, 16 KiB batches", Measure.CPU_PER_GB, _java(16 * KIB), aim=Aim(1.05)),
    Row("real-produce-64k", "a Java producer, 64 KiB batches", Measure.CPU_PER_GB, _java(64 * KIB), aim=Aim(0.95)),
    Row("real-consume", "a Java consumer", Measure.CPU_PER_GB, _java(MIB, "fetch"), aim=Aim(0.85)),
)


def choose(patterns: Sequence[str]) -> list[Row]:
    """Return the rows whose names match one of the shell patterns, in the order of the report; without
    patterns, all.
    """
    for pattern in patterns:
        if not any(fnmatch(row.name, pattern) for row in ROWS):
            raise BenchError(f"no row {pattern!r}; there are: {', '.join(row.name for row in ROWS)}")
    return [row for row in ROWS if not patterns or any(fnmatch(row.name, pattern) for pattern in patterns)]
