"""``sluice.yaml`` while the proxy runs: read again on SIGHUP and when it changes.

The mode of quotas and the addresses that listeners tell clients are put in force at once; of everything else it is
said what needs a restart.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import structlog

from config.changes import changed_settings
from config.loader import load_with_document
from config.problems import ConfigError, Problem
from config.settings import Listener, Mode, Settings
from proxy.checks import configuration
from proxy.runtime.clock import wall_s

log = structlog.get_logger("sluice")

_MAX_LOGGED: Final = 20
_OF_ADDRESSES: Final = ("advertise", "brokers", "broker_host")
"""Of a listener, what needs no restart. Names in TLS and ports cannot take each other's place while it runs."""

_CERTIFICATES: Final = re.compile(r"listeners\[\d+\]\.tls\b")

Configure = Callable[[Mode, str], Awaitable[None]]
Readdress = Callable[[Sequence[Listener]], Awaitable[None]]


class SettingsFile:
    """The file that the settings in force were read from, and what is done when it says something else.

    ``configure(mode, path)`` puts the mode of quotas in force, ``readdress`` listeners that tell clients other
    addresses.
    """

    def __init__(self, path: Path, running: Settings, configure: Configure, readdress: Readdress) -> None:
        self._path = path
        self._running = running
        self._configure = configure
        self._readdress = readdress
        self._told: Sequence[Problem] = ()
        """What was wrong when the file was read last."""

    async def compare(self) -> None:
        """Put in force what can be, and log which other settings need a restart, or what is wrong with the file."""
        settings, problems = await asyncio.to_thread(self._read)
        told, self._told = self._told, problems
        if settings is None:
            if problems != told:  # who writes a file and sends SIGHUP is told once
                self._log(problems)
            return
        await self._configure(settings.quotas.mode, str(self._path))
        await self._take_addresses(settings.listeners)
        quotas = self._running.quotas.model_copy(update={"mode": settings.quotas.mode})
        self._running = self._running.model_copy(update={"quotas": quotas})
        if changed := changed_settings(self._running, settings):
            log.warning(
                "settings changed in the file: they need a restart",
                path=str(self._path),
                settings=changed[:_MAX_LOGGED],
                further=max(len(changed) - _MAX_LOGGED, 0),
            )

    async def _take_addresses(self, listeners: Sequence[Listener]) -> None:
        """Have the listeners that run, which are known by their names, tell clients what the file says."""
        written = {listener.name: listener for listener in listeners}
        merged = tuple(_with_addresses(each, written.get(each.name)) for each in self._running.listeners)
        other = [new for old, new in zip(self._running.listeners, merged, strict=True) if new != old]
        if other:
            await self._readdress(other)
            log.info("addresses of listeners changed", listeners=[listener.name for listener in other])
            self._running = self._running.model_copy(update={"listeners": merged})

    def _log(self, problems: Sequence[Problem]) -> None:
        for problem in problems[:_MAX_LOGGED]:
            log.error("configuration not usable: the settings in force stay", problem=str(problem))
        if len(problems) > _MAX_LOGGED:
            log.error("configuration not usable", further_problems=len(problems) - _MAX_LOGGED)

    def _read(self) -> tuple[Settings | None, Sequence[Problem]]:
        """Return what the file says now; None and what is wrong with it, or with files that it names.

        What is wrong with the certificates that are in use is told where they are loaded again.
        """
        try:
            settings, document = load_with_document(self._path)
        except ConfigError as error:
            return None, error.problems
        problems = configuration.unusable(configuration.look(settings, document, wall_s()))
        changed = " ".join(changed_settings(self._running, settings))
        untold = [
            problem
            for problem in problems
            if (section := _CERTIFICATES.match(problem.path)) is None or section[0] in changed
        ]
        return (None if problems else settings), untold


def _with_addresses(running: Listener, written: Listener | None) -> Listener:
    """Return a listener that runs with the addresses that the file has for it, where it can take them."""
    if written is None or (written.brokers is None) is not (running.brokers is None):
        return running
    return running.model_copy(update={name: getattr(written, name) for name in _OF_ADDRESSES})
