"""What is measured: the proxies between the generator's two sides, pinned to their core."""

import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import psutil

from bench.errors import BenchError
from bench.generator import Generator
from tests.harness.ports import LOOPBACK, free_port, free_ports
from tests.harness.process import Program

START_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.001
QUOTA_BYTES_PER_S: Final = 10**12
"""High enough that nobody is ever throttled; every byte is charged all the same."""

DIRECT, HAPROXY, RELAY, SLUICE = "direct", "haproxy", "relay", "sluice"
PROXIES: Final = (HAPROXY, RELAY, SLUICE)

_HAPROXY_CFG: Final = """\
global
    nbthread 1
    maxconn 3000
    tune.bufsize 65536
defaults
    mode tcp
    option splice-auto
    timeout connect 5s
    timeout client 1h
    timeout server 1h
listen kafka
    bind 127.0.0.1:{port}
    server broker 127.0.0.1:{broker_port}
"""
_SLUICE_YAML: Final = """\
cluster: {{name: bench, bootstrap: ["127.0.0.1:{broker_port}"]}}
listeners:
  - {{name: PLAIN, bind: "127.0.0.1:{bootstrap_port}", advertise: 127.0.0.1, brokers: {{"0": "{port}"}}}}
quotas: {{store: {{type: file, path: quotas.yaml}}}}
admin: {{bind: "127.0.0.1:{admin_port}"}}
drain: {{timeout: 1s}}
"""


@dataclass(frozen=True, slots=True)
class Cores:
    """The proxy has a core of its own; the load and the broker share another."""

    proxy: int
    load: int

    @classmethod
    def plan(cls, available: Sequence[int]) -> Self:
        if len(available) < 2:
            raise BenchError("the benchmark needs two cores: one for the proxy, one for the load")
        return cls(proxy=max(available), load=min(available))


@dataclass(slots=True)
class Target:
    """Where load can be sent: a proxy, or the broker itself (``direct``, which has no program of its own)."""

    name: str
    port: int
    program: Program | None = None
    started_s: float = 0.0
    """When it was started (time.perf_counter)."""
    listening_ms: float = 0.0
    """From then until a connection was accepted."""

    @property
    def pids(self) -> list[int]:
        """The process and all that it has started."""
        if self.program is None:
            return []
        return [self.program.pid, *(child.pid for child in psutil.Process(self.program.pid).children(recursive=True))]

    def rss_bytes(self) -> int:
        return sum(psutil.Process(pid).memory_info().rss for pid in self.pids)

    def log_tail(self) -> str:
        return self.program.tail() if self.program else ""

    def stop(self) -> None:
        if self.program:
            self.program.stop()

    def wait_listening(self) -> None:
        while not _accepts(self.port):
            self.require_running()
            if time.perf_counter() - self.started_s > START_TIMEOUT_S:
                raise BenchError(f"{self.name} does not listen after {START_TIMEOUT_S:g} s\n{self.log_tail()}")
            time.sleep(POLL_S)
        self.listening_ms = (time.perf_counter() - self.started_s) * 1000

    def require_running(self) -> None:
        if self.program and not self.program.is_running:
            raise BenchError(f"{self.name} has ended\n{self.log_tail()}")


@dataclass(slots=True)
class Fleet:
    """The generator and the proxies of one run, stopped on every way out."""

    folder: Path
    cores: Cores
    wrap: tuple[str, ...] = ()
    """What to put between python and Sluice's own arguments (a profiler)."""
    _running: list[Target] = field(default_factory=list)
    _generator: Generator | None = None

    @property
    def generator(self) -> Generator:
        if self._generator is None:
            self._generator = Generator(free_port(), self.cores.load, self.folder / "generator.log")
        return self._generator

    def start(self, name: str, entities: int = 1) -> Target:
        """Start a proxy of that name with so many quotas, and wait until it listens."""
        commands: dict[str, Callable[[int, Path], list[str]]] = {
            HAPROXY: self._haproxy,
            RELAY: self._relay,
            SLUICE: lambda port, folder: self._sluice(port, folder, entities),
        }
        if name == DIRECT:
            return Target(DIRECT, self.generator.port)
        first = free_ports(3)
        folder = self.folder / f"{name}-{first}"
        folder.mkdir()
        return self._start(name, first, commands[name](first, folder))

    def stop(self, target: Target) -> None:
        self._running.remove(target)
        target.stop()

    def _start(self, name: str, port: int, command: list[str]) -> Target:
        started_s = time.perf_counter()
        program = Program(name, ["taskset", "-c", str(self.cores.proxy), *command], self.folder / f"{name}-{port}.log")
        target = Target(name, port, program, started_s)
        self._running.append(target)
        target.wait_listening()
        return target

    def _haproxy(self, port: int, folder: Path) -> list[str]:
        config = folder / "haproxy.cfg"
        config.write_text(_HAPROXY_CFG.format(port=port, broker_port=self.generator.port), encoding="ascii")
        return [find_program("haproxy"), "-db", "-f", str(config)]

    def _relay(self, port: int, folder: Path) -> list[str]:
        del folder
        return [sys.executable, "-m", "bench.relay", str(port), str(self.generator.port)]

    def _sluice(self, port: int, folder: Path, entities: int) -> list[str]:
        config = folder / "sluice.yaml"
        config.write_text(
            _SLUICE_YAML.format(
                port=port, bootstrap_port=port + 1, admin_port=port + 2, broker_port=self.generator.port
            ),
            encoding="ascii",
        )
        with (folder / "quotas.yaml").open("w", encoding="ascii") as quotas:
            quotas.write("quotas:\n")
            for number in range(entities):
                quotas.write(
                    f"  - {{entity: {{client-id: bench-{number:06}}}, "
                    f"producer_byte_rate: {QUOTA_BYTES_PER_S}, consumer_byte_rate: {QUOTA_BYTES_PER_S}}}\n"
                )
        return [sys.executable, *self.wrap, "-m", "proxy", "run", "-c", str(config)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for target in reversed(self._running):
            target.stop()
        if self._generator:
            self._generator.close()


def find_program(name: str) -> str:
    """The path of an installed program; Debian keeps servers where a user's PATH may not look."""
    found = shutil.which(name) or shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        raise BenchError(f"{name} is not installed; on Debian: sudo apt-get install -y {name}")
    return found


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0
