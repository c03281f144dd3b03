"""Connections and nothing else, as many a second as one asks for, from many loopback addresses.

A program of its own (``python -m tests.harness.storm HOST PORT PER_S SECONDS SOURCES``): whoever looks at what becomes
of other clients meanwhile must not share an interpreter with it. It prints how many it has begun.
"""

import socket
import struct
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self

from tests.harness.wire import Address

MOST_OPEN: Final = 1500
_BIND_ADDRESS_NO_PORT: Final = 24
"""IP_BIND_ADDRESS_NO_PORT of linux/in.h: the port is chosen when it connects, so that there are enough."""
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: to close is to reset, and leaves nothing in TIME_WAIT."""


@dataclass(slots=True)
class Storm:
    """A storm, as a context manager: it goes on while the block runs, or until its time is over."""

    address: Address
    per_s: int
    duration_s: float
    sources: int
    """How many addresses it comes from."""
    begun: int = 0
    """Connections, once it is over."""
    _process: "subprocess.Popen[str] | None" = None

    def wait(self) -> None:
        """Until its time is over."""
        if self._process is not None:
            said, _ = self._process.communicate(timeout=self.duration_s + 60)
            self.begun = int(said)

    @property
    def goes_on(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> Self:
        numbers = [self.address.port, self.per_s, self.duration_s, self.sources]
        command = [sys.executable, "-m", "tests.harness.storm", self.address.host, *map(str, numbers)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()


def rage(address: Address, per_s: int, duration_s: float, sources: int) -> int:
    """Begin ``per_s`` connections a second; returns how many it were."""
    hosts = [f"127.1.{number >> 8}.{number & 255}" for number in range(1, sources + 1)]
    opened: deque[socket.socket] = deque()
    begun, begin_s = 0, time.monotonic()
    while (elapsed_s := time.monotonic() - begin_s) < duration_s:
        for _ in range(int(elapsed_s * per_s) - begun):
            opened.append(_connect(address, hosts[begun % sources]))
            begun += 1
            if len(opened) > MOST_OPEN:
                opened.popleft().close()
        time.sleep(0.001)
    for each in opened:
        each.close()
    return begun


def _connect(address: Address, source: str) -> socket.socket:
    connection = socket.socket()
    connection.setblocking(False)
    connection.setsockopt(socket.SOL_IP, _BIND_ADDRESS_NO_PORT, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    connection.bind((source, 0))
    with suppress(OSError):  # that it goes on is one of them
        connection.connect((address.host, address.port))
    return connection


if __name__ == "__main__":
    print(rage(Address(sys.argv[1], int(sys.argv[2])), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])))
