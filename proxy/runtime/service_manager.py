"""The service manager that started the process, systemd: sockets bound by it, and messages to it.

Both are plain protocols over environment variables, which child processes do not inherit: sd_listen_fds(3) and
sd_notify(3).
"""

import os
import socket
from collections.abc import MutableMapping
from typing import Final

import structlog

from proxy.runtime.clock import monotonic_s
from proxy.runtime.tasks import every

log = structlog.get_logger("sluice.systemd")

_FIRST_DESCRIPTOR: Final = 3


def inherited_sockets(environment: MutableMapping[str, str]) -> list[socket.socket]:
    """Return the sockets that systemd has bound for this process, without taking them from it."""
    pid, count = environment.pop("LISTEN_PID", ""), environment.pop("LISTEN_FDS", "")
    environment.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()):
        return []
    descriptors = range(_FIRST_DESCRIPTOR, _FIRST_DESCRIPTOR + int(count))
    for each in descriptors:
        os.set_inheritable(each, False)
    return [socket.socket(fileno=each) for each in descriptors]


class ServiceManager:
    """Tells systemd the state of the service (``Type=notify``, ``notify-reload``), and that its event loop runs.

    Without systemd, nothing is told.
    """

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        address = environment.pop("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        pid, period_us = environment.pop("WATCHDOG_PID", ""), environment.pop("WATCHDOG_USEC", "")
        self._watchdog_s = int(period_us) / 1e6 if period_us and pid in ("", str(os.getpid())) else None
        """systemd ends a process that has been silent for so long."""

    def started(self) -> None:
        """Tell that the service serves, and from now on that the event loop runs."""
        self._tell("READY=1")
        if self._watchdog_s is not None:
            every(self._watchdog_s / 3, lambda: self._tell("WATCHDOG=1"), "tell systemd that the event loop runs")

    def reloading(self) -> None:
        self._tell("RELOADING=1", f"MONOTONIC_USEC={int(monotonic_s() * 1e6)}")

    def reloaded(self) -> None:
        self._tell("READY=1")

    def stopping(self) -> None:
        self._tell("STOPPING=1")

    def _tell(self, *lines: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
            sending.setblocking(False)
            try:
                sending.sendto("\n".join(lines).encode(), self._address)
            except OSError as error:
                log.warning("systemd cannot be told", what=lines[0], error=error.strerror)
