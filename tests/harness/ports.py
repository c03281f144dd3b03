"""Free ports on loopback.

Taken below the range that the kernel gives to outgoing connections, so that no client can sit on a port between its
choice and its use, and remembered, so that one process does not choose a port twice. Where to look is random: test runs
beside each other seldom meet.
"""

import random
import socket
from pathlib import Path
from typing import Final

LOOPBACK: Final = "127.0.0.1"
LOWEST: Final = 10_000
ATTEMPTS: Final = 1_000

_given: set[int] = set()


def free_port(host: str = LOOPBACK) -> int:
    return free_ports(1, host)


def free_ports(count: int, host: str = LOOPBACK) -> int:
    """The first of `count` neighbouring ports that are all free."""
    highest = _first_ephemeral() - count
    for _ in range(ATTEMPTS):
        first = random.randint(LOWEST, highest)
        ports = range(first, first + count)
        if _given.isdisjoint(ports) and all(_is_free(host, port) for port in ports):
            _given.update(ports)
            return first
    raise RuntimeError(f"no {count} neighbouring free ports on {host} between {LOWEST} and {highest + count}")


def _first_ephemeral() -> int:
    return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
