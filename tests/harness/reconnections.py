"""Reconnections: which clients opened a connection to an address again, after one to it had ended.

Clients open connections when they first need them, also late, and close all of them at their end: neither says that
one was lost. A connection that comes to an address where one of the same process ended before does. Taken from what
the kernel lists, again and again: a connection that lasts less than a sample may be missed, the lost one and the one
that stays in its place are not.
"""

import contextlib
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

import psutil

SAMPLE_S: Final = 0.3
Ends = tuple[int, int]
"""The ports of a connection: the client's own and the remote one."""


@dataclass(slots=True)
class _Client:
    held: frozenset[Ends] = frozenset()
    ended_at: set[int] = field(default_factory=set)
    """Remote ports at which a connection has ended."""
    again: list[int] = field(default_factory=list)

    def saw(self, connections: Iterable[Ends]) -> None:
        now = frozenset(connections)
        self.ended_at.update(remote for _, remote in self.held - now)
        self.again += [remote for _, remote in now - self.held if remote in self.ended_at]
        self.held = now


class Reconnections:
    """Watches processes, by name and process id, from its start to its end, as a context manager."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._processes = {name: psutil.Process(pid) for name, pid in pids.items()}
        self._clients = {name: _Client() for name in pids}
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="reconnections", daemon=True)

    def seen(self) -> dict[str, list[int]]:
        """The remote ports that a client connected to once more, by name; clients without any are left out."""
        return {name: list(client.again) for name, client in self._clients.items() if client.again}

    def held(self) -> dict[str, int]:
        """How many connections each client has now."""
        return {name: len(client.held) for name, client in self._clients.items()}

    def _watch(self) -> None:
        while not self._has_ended.wait(SAMPLE_S):
            self._sample()

    def _sample(self) -> None:
        for name, process in self._processes.items():
            with contextlib.suppress(psutil.NoSuchProcess):  # it is done
                self._clients[name].saw(
                    (each.laddr.port, each.raddr.port)
                    for each in process.net_connections("tcp")
                    if each.status == psutil.CONN_ESTABLISHED
                )

    def __enter__(self) -> Self:
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended.set()
        self._thread.join()
