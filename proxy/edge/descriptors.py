"""How many connections the limit of open files leaves room for: each takes two, its client's and its broker's."""

import resource
from typing import Final, NamedTuple

from config.settings import Settings
from proxy.edge.connection_gate import MOST_HELD

_RESERVED: Final = 128
"""For what is neither a client nor its broker: the admin port (32 connections), files, Metadata."""
_HELD_SHARE: Final = 16
"""Connections that are held only to be closed may have one in so many descriptors."""


class Room(NamedTuple):
    """What there is room for."""

    connections: int
    held: int
    """Sockets that wait to be closed, for the rate of their address."""


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard one, and return that.

    uvloop accepts and closes past the limit without a word, so refusing has to be ours.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def room(settings: Settings, most_files: int) -> Room:
    """Return how many connections there may be, as configured, or else as many as fit.

    Raises OSError where fewer fit than are configured.
    """
    ports = sum(len(ports.bound) for each in settings.listeners if each.brokers for ports in each.brokers.ranges)
    held = min(MOST_HELD, most_files // _HELD_SHARE)
    taken = _RESERVED + ports + 2 * len(settings.listeners) + held  # each listens, and may have one that waits
    most = (most_files - taken) // 2
    configured = {"limits.connections": settings.limits.connections}
    configured |= {
        f"limits.connections of listener {each.name}": each.limits.connections for each in settings.listeners
    }
    for name, number in configured.items():
        if number is not None and number > most:
            raise OSError(
                f"{name}: {number} connections need {taken + 2 * number} open files, two each, and the limit is "
                f"{most_files}: raise it (ulimit -n, LimitNOFILE= of systemd), or set at most {max(most, 0)}"
            )
    if most < 1:
        raise OSError(f"a limit of {most_files} open files leaves no room for connections: raise it (ulimit -n)")
    return Room(settings.limits.connections or most, held)
