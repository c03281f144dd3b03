"""``sluice.yaml`` at run time: read again on SIGHUP and when it changes.

A changed quota mode, advertised addresses and fixed owners of brokers take effect at once; of all other settings, those
that need a restart are logged.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import structlog

from config.changes import changed_settings
from config.loader import load_with_document
from config.owners import Owners
from config.problems import ConfigError, Problem
from config.settings import Listener, Mode, Settings
from proxy.checks import configuration
from proxy.runtime.clock import wall_s
from proxy.runtime.logs import log_problems

log = structlog.get_logger("sluice")

_MAX_LOGGED: Final = 20
_OF_ADDRESSES: Final = ("advertise", "brokers", "broker_host")
"""Settings of a listener that need no restart. A switch between ports and TLS host names does."""


class SettingsFile:
    """The configuration file, and the reaction to its changes.

    ``configure(mode, path)`` puts the quota mode in force, ``put`` settings with other addresses of listeners, or other
    owners of brokers.
    """

    def __init__(
        self,
        path: Path,
        running: Settings,
        configure: Callable[[Mode, str], Awaitable[None]],
        put: Callable[[Settings], Awaitable[None]],
    ) -> None:
        self._put = put
        self._path = path
        self._running = running
        self._configure = configure
        self._told: Sequence[Problem] = ()
        """Problems of the file at the last reading."""

    async def compare(self) -> None:
        """Apply the changes that can be applied, and log settings that need a restart, or the file's problems."""
        settings, problems = await asyncio.to_thread(self._read)
        told, self._told = self._told, problems
        if settings is None:
            if problems != told:  # log once for a write followed by SIGHUP
                log_problems(log.error, "configuration not usable: the settings in force stay", problems)
            return
        await self._configure(settings.quotas.mode, str(self._path))
        await self._take(settings)
        quotas = self._running.quotas.model_copy(update={"mode": settings.quotas.mode})
        self._running = self._running.model_copy(update={"quotas": quotas})
        if changed := changed_settings(self._running, settings):
            log.warning(
                "settings changed in the file: they need a restart",
                path=str(self._path),
                settings=changed[:_MAX_LOGGED],
                further=max(len(changed) - _MAX_LOGGED, 0),
            )

    async def _take(self, written: Settings) -> None:
        """Put addresses of listeners, matched by name, and fixed owners of brokers in force as they are in the file."""
        running, by_name = self._running, {listener.name: listener for listener in written.listeners}
        listeners = tuple(_with_addresses(each, by_name.get(each.name)) for each in running.listeners)
        owners = _with_fixed(running.owners, written.owners)
        if (listeners, owners) == (running.listeners, running.owners):
            return
        self._running = running.model_copy(update={"listeners": listeners, "owners": owners})
        await self._put(self._running)
        moved = [new.name for old, new in zip(running.listeners, listeners, strict=True) if new != old]
        if moved:
            log.info("addresses of listeners changed", listeners=moved)
        if owners is not None and owners.fixed is not None and owners != running.owners:
            log.info("owners of brokers changed", instances=sorted(owners.fixed.instances))

    def _read(self) -> tuple[Settings | None, Sequence[Problem]]:
        """Return the current settings, or None and the problems of the file and of files that it names."""
        try:
            settings, document = load_with_document(self._path)
        except ConfigError as error:
            return None, error.problems
        problems = configuration.unusable(configuration.look(settings, document, wall_s()))
        return (None if problems else settings), problems


def _with_addresses(running: Listener, written: Listener | None) -> Listener:
    """Return a running listener with the addresses of the file, if it can take them."""
    if written is None or (written.brokers is None) is not (running.brokers is None):
        return running
    return running.model_copy(update={name: getattr(written, name) for name in _OF_ADDRESSES})


def _with_fixed(running: Owners | None, written: Owners | None) -> Owners | None:
    """Return running owners with the brokers of each instance as in the file, if both have them."""
    if running is None or written is None or running.fixed is None or written.fixed is None:
        return running
    return running.model_copy(update={"fixed": written.fixed})
