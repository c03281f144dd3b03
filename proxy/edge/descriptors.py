"""How many connections the limit of open files allows: each takes two descriptors, the client's and the broker's."""

import resource
from typing import Final, NamedTuple

from config.settings import Settings
from proxy.edge.connection_gate import MOST_HELD

_RESERVED: Final = 128
"""Descriptors for other uses: the admin port (32 connections), files, Metadata."""
_HELD_SHARE: Final = 16
"""One descriptor in so many may hold a connection that is refused for its rate."""
_UNSORTED_SHARE: Final = 8
"""One in so many may have a connection whose worker is not known yet."""

_TURNED_AWAY_SHARE: Final = 4
"""Connections for brokers of other instances are held for less than a tenth of that time."""


class Capacity(NamedTuple):
    """Numbers of sockets that fit within the limit of open files."""

    connections: int
    held: int
    """Sockets that are held unread until they are closed, for the rate of their address."""
    unsorted: int
    """With several workers at one port: connections whose worker is not known yet."""


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard one, and return it.

    Past the limit, uvloop accepts and closes silently, so the proxy has to refuse connections itself.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def turned_away_at_most(held: int) -> int:
    """Return how many connections for brokers of other instances may be held at once; ``held``: see ``Capacity``."""
    return max(held // _TURNED_AWAY_SHARE, 1)


def capacity(settings: Settings, most_files: int) -> Capacity:
    """Return the configured number of connections, or else as many as fit.

    Raises OSError if fewer fit than are configured.
    """
    ports = sum(len(ports.bound) for each in settings.listeners if each.brokers for ports in each.brokers.ranges)
    held = min(MOST_HELD, most_files // _HELD_SHARE)
    turned_away = 0 if settings.owners is None else turned_away_at_most(held)
    shares_ports = settings.workers > 1 and any(each.broker_host is not None for each in settings.listeners)
    unsorted = most_files // _UNSORTED_SHARE if shares_ports else 0
    taken = (
        _RESERVED + turned_away + ports + 2 * len(settings.listeners) + held + unsorted
    )  # a socket each, and a delayed connection
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
    connections = settings.limits.connections or most
    return Capacity(connections, held, min(unsorted, connections))
