"""Generated records as files of documents, as proxies write them: cached by their parameters."""

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, Final
from uuid import UUID

import numpy as np
import orjson

from bench.analysis.population import INSTANCES, Population
from bench.analysis.traffic import WINDOW, Second, Traffic

FORMAT: Final = 2
"""The version of the cache: increase it with every change of the generator."""
BEGIN_MS: Final = 1_767_571_200_000  # 2026-01-05T00:00:00Z
MAX_ROWS: Final = 1000
"""The most rows of a document."""
FILE_BYTES: Final = 64 * 2**20
SUMS: Final = (
    "bytes_in",
    "bytes_out",
    "requests",
    "produce_bytes",
    "fetch_bytes",
    "produce_muted_ms",
    "fetch_muted_ms",
)


@dataclass(frozen=True, slots=True)
class World:
    """The parameters of generated records; worlds that differ only in ``rows`` begin with the same records."""

    name: str
    clients: int
    rows_per_s: int
    rows: int
    seed: int = 1

    @property
    def key(self) -> str:
        return f"v{FORMAT}-{self.clients}-clients-{self.rows_per_s}-rows-per-s-{self.rows}-rows-seed-{self.seed}"


@dataclass(frozen=True, slots=True)
class Generated:
    """A generated world: its documents and quota files, and the expected totals."""

    folder: Path
    rows: int
    documents: int
    seconds: int
    meters: int
    sums: dict[str, int]

    @property
    def documents_folder(self) -> Path:
        return self.folder / "documents"

    @property
    def quotas(self) -> Path:
        return self.folder / "proposed.yaml"

    @property
    def warehouse(self) -> Path:
        return self.folder / "warehouse"


def generate(world: World, cache: Path) -> Generated:
    """Return the world, from the cache if possible."""
    folder = cache / world.key
    said = folder / "generated.json"
    if not said.exists():
        unfinished = folder.with_suffix(".part")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        _write(world, unfinished)
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
    return Generated(folder, **json.loads(said.read_text(encoding="utf-8")))


def _write(world: World, folder: Path) -> None:
    random = np.random.default_rng(world.seed)
    population = Population.generate(world.clients, world.rows_per_s, random)
    traffic = Traffic(population, random)
    (folder / "in-force.yaml").write_text(population.policy.scaled(1), encoding="utf-8")
    (folder / "proposed.yaml").write_text(population.policy.scaled(0.7), encoding="utf-8")
    proxies = [_Proxy(folder / "documents", number, population) for number in range(INSTANCES)]
    rows = seconds = 0
    sums = dict.fromkeys(SUMS, 0)
    while rows < world.rows:
        second = traffic.next()
        for proxy in proxies:
            proxy.write(second, seconds)
        rows += len(second.meters)
        seconds += 1
        for name in sums:
            sums[name] += int(second.columns[name].sum())
        if seconds % 100 == 0:
            _progress(f"generating {world.name}: {rows / world.rows:.0%}")
    _progress("")
    for proxy in proxies:
        proxy.close()
    generated = Generated(folder, rows, sum(proxy.documents for proxy in proxies), seconds, len(population.unit), sums)
    said = asdict(generated)
    del said["folder"]
    (folder / "generated.json").write_text(json.dumps(said), encoding="utf-8")


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


class _Proxy:
    """A proxy instance and its current file."""

    def __init__(self, folder: Path, number: int, population: Population) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._number = number
        self._mine = population.instance == number
        self._name = f"edge-{number + 1}"
        self._boot = str(UUID(int=number + 1))
        self._phase_ms = 137 * number
        """The offset of its intervals from those of other proxies."""
        self._files = 0
        self._file = self._open()
        self.documents = 0

    def write(self, second: Second, number: int) -> None:
        for line in self._lines(second, BEGIN_MS + 1000 * number + self._phase_ms):
            self._file.write(line)
            if self._file.tell() >= FILE_BYTES:
                self._file.close()
                self._file = self._open()

    def close(self) -> None:
        self._file.close()

    def _lines(self, second: Second, time_ms: int) -> Iterator[bytes]:
        mine = np.flatnonzero(self._mine[second.meters])
        for begin in range(0, len(mine), MAX_ROWS):
            page = mine[begin : begin + MAX_ROWS]
            taken = {name: column[page] for name, column in second.columns.items()}
            document = {
                "v": 1,
                "cluster": "bench",
                "instance": self._name,
                "boot": self._boot,
                "seq": self.documents,
                "time_ms": time_ms,
                "interval_ms": 1000,
                "mode": "enforce",
                "samples": WINDOW.samples,
                "sample_ms": WINDOW.size_ms,
                "dropped_documents": 0,
                "dropped_rows": 0,
                "rows": {name: column.tolist() if column.dtype == object else column for name, column in taken.items()},
            }
            self.documents += 1
            yield orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)

    def _open(self) -> BinaryIO:
        self._files += 1
        return (self._folder / f"{self._name}-{self._boot}-{self._files - 1:06}.jsonl").open("wb")
