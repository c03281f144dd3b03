"""``sluice.yaml`` while the proxy runs: read again on SIGHUP and when it changes.

The mode of quotas is put in force at once; of everything else it is said what waits for a restart.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import structlog

from config.changes import changed_settings
from config.loader import load_with_document
from config.problems import ConfigError
from config.settings import Mode, Settings
from proxy.checks import configuration
from proxy.runtime.clock import wall_s

log = structlog.get_logger("sluice")

_MAX_LOGGED: Final = 20
_AT_ONCE: Final = frozenset(("quotas.mode",))
"""What needs no restart."""


class SettingsFile:
    """The file that the settings in force were read from. What it says later is compared, and only the mode of quotas
    is put in force, by ``configure(mode, path)``.
    """

    def __init__(self, path: Path, running: Settings, configure: Callable[[Mode, str], Awaitable[None]]) -> None:
        self._path = path
        self._running = running
        self._configure = configure

    async def compare(self) -> None:
        """Take the mode, and log which other settings of the file are not those that run, or what is wrong with it."""
        try:
            settings = await asyncio.to_thread(self._read)
        except ConfigError as error:
            for problem in error.problems[:_MAX_LOGGED]:
                log.error("configuration not usable: the settings in force stay", problem=str(problem))
            if len(error.problems) > _MAX_LOGGED:
                log.error("configuration not usable", further_problems=len(error.problems) - _MAX_LOGGED)
            return
        await self._configure(settings.quotas.mode, str(self._path))
        if changed := [name for name in changed_settings(self._running, settings) if name not in _AT_ONCE]:
            log.warning(
                "settings changed in the file: they need a restart",
                path=str(self._path),
                settings=changed[:_MAX_LOGGED],
                further=max(len(changed) - _MAX_LOGGED, 0),
            )

    def _read(self) -> Settings:
        """Return what the file says now. Raises ConfigError also for files that it names and that cannot be used."""
        settings, document = load_with_document(self._path)
        if unusable := configuration.unusable(configuration.look(settings, document, wall_s())):
            raise ConfigError(unusable)
        return settings
