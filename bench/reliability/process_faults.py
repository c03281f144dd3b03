"""Faults of processes, and of their machine: clients, brokers, and Sluice itself."""

import fcntl
import os
import random
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Generator
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import ClassVar, Final

import psutil

from bench.reliability.faults import Fault
from bench.reliability.stage import NODE_IDS, Stage
from bench.reliability.writer import PARTITIONS
from tests.harness.certificates import SERVER_HOSTS, Authority, common_name

PAUSE_S: Final = 4.0
LIBFAKETIME: Final = ("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1", "/usr/lib/faketime/libfaketime.so.1")
PIPE_BYTES: Final = 4096
DISK_BYTES: Final = 256 * 1024


class Stopped(Fault):
    """A process is stopped for a while (SIGSTOP), again and again."""

    stopped_s: ClassVar[float] = 20.0
    least_s = 22.0

    def choose(self, stage: Stage, rng: random.Random) -> Callable[[signal.Signals], object]:
        """Return what sends a signal to it."""
        raise NotImplementedError

    def strike(self, stage: Stage, rng: random.Random) -> Generator[float, None, None]:
        while True:
            send = self.choose(stage, rng)
            send(signal.SIGSTOP)
            self.struck += 1
            try:
                yield self.stopped_s
            finally:
                with suppress(psutil.NoSuchProcess):  # somebody has put another in its place
                    send(signal.SIGCONT)
            yield PAUSE_S


class StoppedClient(Stopped):
    """One client's process is stopped for 20 s (SIGSTOP)."""

    id = "F8"

    def choose(self, stage: Stage, rng: random.Random) -> Callable[[signal.Signals], object]:
        return rng.choice(stage.writers).signal


class StoppedBroker(Stopped):
    """One broker's process is stopped for 20 s (SIGSTOP)."""

    id = "F17"
    moves_leaders = True

    def choose(self, stage: Stage, rng: random.Random) -> Callable[[signal.Signals], object]:
        return stage.cluster.brokers[rng.choice(NODE_IDS)].signal


class StoppedWorker(Stopped):
    """One worker of Sluice is stopped for 15 s (SIGSTOP)."""

    id = "F24"
    stopped_s = 15.0

    def choose(self, stage: Stage, rng: random.Random) -> Callable[[signal.Signals], object]:
        return rng.choice(stage.workers()).send_signal


class KilledBroker(Fault):
    """One broker is killed (SIGKILL), and started again."""

    id = "F18"
    moves_leaders = True
    crash = True

    def strike(self, stage: Stage, rng: random.Random) -> Generator[float, None, None]:
        while True:
            node_id = rng.choice(NODE_IDS)
            stage.cluster.stop_broker(node_id, crash=self.crash)
            self.struck += 1
            try:
                yield rng.uniform(1.0, 5.0)
            finally:
                stage.cluster.start_broker(node_id)
            yield PAUSE_S


class MovedLeaders(KilledBroker):
    """Leaders move one by one; then a broker leaves in order, with its leaders and coordinators, and comes back."""

    id = "F19"
    least_s = 30.0
    crash = False

    def strike(self, stage: Stage, rng: random.Random) -> Generator[float, None, None]:
        with stage.cluster.admin() as admin:
            for topic in stage.replicated:
                for partition in range(PARTITIONS):
                    others = [each for each in NODE_IDS if each != admin.leader(topic, partition)]
                    admin.move_leader(topic, partition, rng.choice(others))
                    self.struck += 1
                    yield 0.1
        yield from super().strike(stage, rng)


class ChangedCertificate(Fault):
    """The brokers show a certificate of another authority for a while (TLS between Sluice and the brokers)."""

    id = "F20"

    def strike(self, stage: Stage, rng: random.Random) -> Generator[float, None, None]:
        known, unknown = (Authority(stage.folder / name, name) for name in ("known", "unknown"))
        good, bad = (each.issue("broker", common_name("broker"), SERVER_HOSTS) for each in (known, unknown))
        stage.broker_certificate(good)
        stage.sluice.settings["cluster"] |= {"tls": {"ca": str(known.certificate)}}
        try:
            stage.restart()
            while True:
                yield PAUSE_S
                stage.broker_certificate(bad)
                self.struck += 1
                yield rng.uniform(2.0, 6.0)
                stage.broker_certificate(good)
        finally:
            stage.broker_certificate(None)
            del stage.sluice.settings["cluster"]["tls"]
            stage.restart()


class Terminated(Fault):
    """Sluice is restarted gracefully (SIGTERM), again and again."""

    id = "F21"
    kill = False

    def strike(self, stage: Stage, rng: random.Random) -> Generator[float, None, None]:
        while self.struck < (self.times or inf):
            yield rng.uniform(1.0, 5.0)
            stage.restart(kill=self.kill)
            self.struck += 1
            while not stage.sluice.is_ready():
                yield 0.1


class Killed(Terminated):
    """Sluice and its workers are killed (SIGKILL) and started again, again and again."""

    id = "F22"
    kill = True


class FiftyRestarts(Terminated):
    """Sluice is restarted gracefully fifty times: no record is repeated, and no client pauses for more than 5 s."""

    id = "B3"
    without = frozenset({"kafka-python"})  # 3.0.12 drops an answer that it reads together with the connection's end
    times = 50
    longest_pause_s = 5.0
    allows_repetition = False


class TwoHundredKills(Killed):
    """Sluice and its workers are killed two hundred times."""

    id = "B4"
    times = 200


class Reloaded(Fault):
    """Sluice reads its configuration again ten times a second (SIGHUP)."""

    id = "F23"

    def strike(self, stage: Stage, rng: random.Random) -> Generator[float, None, None]:
        while True:
            if stage.sluice.is_ready():  # one that has just started does not know the signal yet
                os.kill(stage.sluice.pid, signal.SIGHUP)
                self.struck += 1
            yield 0.1


class WallClock(Fault):
    """Sluice's wall clock jumps an hour forward and back, every two seconds; the monotonic one goes on."""

    id = "F25"

    def missing(self) -> str:
        return "" if _libfaketime() else "libfaketime is not installed (Debian: faketime)"

    def strike(self, stage: Stage, rng: random.Random) -> Generator[float, None, None]:
        clock = stage.folder / "clock"
        clock.write_text("+0\n")
        environment = {
            "LD_PRELOAD": _libfaketime(),
            "FAKETIME_TIMESTAMP_FILE": str(clock),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        stage.restart(environment=environment)
        try:
            while True:
                for offset in ("+1h", "+0", "-1h", "+0"):
                    fresh = clock.with_suffix(".new")
                    fresh.write_text(offset + "\n")
                    fresh.replace(clock)
                    self.struck += 1
                    yield 2.0
        finally:
            stage.restart()


def _libfaketime() -> str:
    return next((each for each in LIBFAKETIME if Path(each).exists()), "")


class BlockedOutput(Reloaded):
    """The pipe that Sluice logs to is full, and never read."""

    id = "F26-pipe"

    def strike(self, stage: Stage, rng: random.Random) -> Generator[float, None, None]:
        pipe = stage.folder / "pipe"
        os.mkfifo(pipe)
        ours = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        try:
            fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            stage.restart(log=pipe)
            for wait_s in super().strike(stage, rng):
                self.struck = int(is_full(ours))
                yield wait_s
        finally:
            stage.restart()
            os.close(ours)
            pipe.unlink()


def is_full(pipe: int) -> bool:
    """Whether less than a line fits into it."""
    held = fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))
    return int.from_bytes(held, sys.byteorder) > PIPE_BYTES // 2


class FullDisk(Reloaded):
    """The disk that Sluice logs to and keeps its state on is full."""

    id = "F26-disk"

    def missing(self) -> str:
        return "" if os.geteuid() == 0 else "mounting a tmpfs needs root"

    def strike(self, stage: Stage, rng: random.Random) -> Generator[float, None, None]:
        disk = stage.folder / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)], check=True)
        try:
            stage.sluice.settings["cluster"] |= {"state": str(disk / "state.json")}
            stage.restart(log=disk / "log")
            with (disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):  # ENOSPC
                while filler.write(bytes(4096)):
                    pass
            for wait_s in super().strike(stage, rng):
                self.struck = int(os.statvfs(disk).f_bavail == 0)
                yield wait_s
        finally:
            del stage.sluice.settings["cluster"]["state"]
            stage.restart()
            subprocess.run(["umount", str(disk)], check=True)
