"""The quota mode while the proxy runs, which has one switch for all sources.

It is switched by the configuration when its mode changes, by the admin port, and by signals. A reload of an unchanged
configuration switches nothing, so an operator's switch persists.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from config.settings import Mode

log = structlog.get_logger("sluice")


class ModeSwitch:
    """The mode in force. ``change`` puts another in force; if it raises, the mode stays as it was."""

    def __init__(self, configured: Mode, change: Callable[[Mode], Awaitable[None]]) -> None:
        self._change = change
        self._turning = asyncio.Lock()
        self.configured = configured
        """The mode in the configuration, as last read."""
        self.mode = configured
        """The mode in force."""
        self.source = "configuration"
        """Who has switched it last."""
        self.changes = 0

    async def turn(self, mode: Mode, *, who: str, source: str) -> Mode:
        """Switch to ``mode`` and return the previous one; ``who`` and ``source`` are logged."""
        async with self._turning:
            before = self.mode
            if mode != before:
                await self._change(mode)
                self.mode = mode
                self.source = f"{who} ({source})"
                self.changes += 1
                log.warning("mode changed", old=before, new=mode, who=who, source=source)
            return before

    async def configure(self, mode: Mode, source: str) -> None:
        """Switch to the configuration's mode, if that has changed."""
        if mode != self.configured:
            self.configured = mode
            await self.turn(mode, who="configuration", source=source)
