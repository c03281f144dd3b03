"""Free ports on loopback.

Taken below the range that the kernel gives to outgoing connections, so that no client can sit on a port between its
choice and its use, and kept by a lock until the process ends, so that neither it nor another test run chooses them too.
"""

import fcntl
import os
import random
import socket
from functools import cache
from pathlib import Path
from typing import Final

from tests.harness.jars import cache_dir

LOOPBACK: Final = "127.0.0.1"
LOWEST: Final = 10_000
ATTEMPTS: Final = 1_000

_taken: set[int] = set()


def free_port(host: str = LOOPBACK) -> int:
    return free_ports(1, host)[0]


def free_ports(count: int, host: str = LOOPBACK) -> range:
    """Neighbouring ports, all of them free."""
    highest = _first_ephemeral() - count
    for _ in range(ATTEMPTS):
        first = random.randint(LOWEST, highest)
        ports = range(first, first + count)
        if all(_take(port) and _is_free(host, port) for port in ports):
            return ports
    raise RuntimeError(f"no {count} neighbouring free ports on {host} between {LOWEST} and {highest + count}")


def _first_ephemeral() -> int:
    return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])


def _take(port: int) -> bool:
    """Take the port from every other test run; False when somebody has it."""
    if port in _taken:
        return False  # the kernel knows the locks of other processes, not of this one
    try:
        fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _taken.add(port)
    return True


@cache
def _locks() -> int:
    """A file with a byte for each port, which is open as long as the process."""
    folder = cache_dir()
    folder.mkdir(parents=True, exist_ok=True)
    return os.open(folder / "ports", os.O_RDWR | os.O_CREAT, 0o600)


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
