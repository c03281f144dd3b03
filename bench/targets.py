"""The measured proxies, pinned to their core."""

import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import psutil

from bench.errors import BenchError
from bench.generator import Generator
from bench.programs import COMMANDS, DIRECT, PORTS, PROXIES, Launch, Variant
from bench.real.stage import Stage
from tests.harness.certificates import SERVER_HOSTS, Authority, Identity, common_name
from tests.harness.ports import LOOPBACK, free_port, free_ports
from tests.harness.process import Program

START_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.001
DEFAULT: Final = Variant()


@dataclass(frozen=True, slots=True)
class Cores:
    """One core for the proxy, another for the load and the broker."""

    proxy: int
    load: int

    @classmethod
    def plan(cls, available: Sequence[int]) -> Self:
        if len(available) < 2:
            raise BenchError("the benchmark needs two cores: one for the proxy, one for the load")
        return cls(proxy=max(available), load=min(available))


@dataclass(slots=True)
class Target:
    """A destination of load: a proxy, or the broker itself (``direct``, which has no program of its own)."""

    name: str
    port: int
    program: Program | None = None
    started_s: float = 0.0
    """The start time (time.perf_counter)."""
    listening_ms: float = 0.0
    """From the start until a connection was accepted."""

    @property
    def pids(self) -> list[int]:
        """The process and its descendants."""
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
    """The generator and the proxies of one run; always stopped at the end."""

    folder: Path
    cores: Cores
    wrap: tuple[str, ...] = ()
    """Arguments between python and Sluice's own (a profiler)."""
    _running: list[Target] = field(default_factory=list)
    _generator: Generator | None = None
    _identity: Identity | None = None
    _stage: Stage | None = None

    @property
    def stage(self) -> Stage:
        """The real broker and its clients, started on demand."""
        if self._stage is None:
            self._stage = Stage(self.folder / "real", self.cores.load, (DIRECT, *PROXIES))
        return self._stage

    @property
    def generator(self) -> Generator:
        if self._generator is None:
            self._generator = Generator(free_port(), self.cores.load, self.folder / "generator.log")
        return self._generator

    @property
    def identity(self) -> Identity:
        """The certificate of all proxies, ECDSA P-256."""
        if self._identity is None:
            self._identity = Authority(self.folder).issue("server", common_name("localhost"), SERVER_HOSTS)
        return self._identity

    def start(self, name: str, variant: Variant = DEFAULT) -> Target:
        """Start the proxy ``name``, and wait until it listens."""
        if name == DIRECT:
            return Target(DIRECT, self.stage.port(DIRECT) if variant.real else self.generator.port)
        if variant.real:
            port, broker_port = self.stage.port(name), self.stage.listener_port(name)
        else:
            port, broker_port = free_ports(PORTS)[0], self.generator.port
        folder = self.folder / f"{name}-{port}"
        folder.mkdir()
        identity = self.identity if variant.tls else None
        place = Launch(folder, port, broker_port, variant.entities, identity, self.wrap, variant.kinds)
        return self._start(name, port, COMMANDS[name](place))

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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for target in reversed(self._running):
            target.stop()
        if self._stage:
            self._stage.close()
        if self._generator:
            self._generator.close()


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0
