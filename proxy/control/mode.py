"""The mode that quotas are in while the proxy runs: one switch, whoever turns it.

It is turned by the configuration when that says another mode than before, by the admin port, and by signals. A reload
that finds the same word as last time turns nothing: what somebody did in the meantime stays.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from config.settings import Mode

log = structlog.get_logger("sluice")


class ModeSwitch:
    """``change`` puts a mode in force; it may raise, and then the mode is what it was."""

    def __init__(self, configured: Mode, change: Callable[[Mode], Awaitable[None]]) -> None:
        self._change = change
        self._turning = asyncio.Lock()
        self.configured = configured
        """What the configuration said last."""
        self.mode = configured
        """In force."""
        self.changes = 0

    async def turn(self, mode: Mode, *, who: str, source: str) -> Mode:
        """Put ``mode`` in force and return the one before; who wants it, and from where, is for the log."""
        async with self._turning:
            before = self.mode
            if mode != before:
                await self._change(mode)
                self.mode = mode
                self.changes += 1
                log.warning("mode changed", old=before, new=mode, who=who, source=source)
            return before

    async def configure(self, mode: Mode, source: str) -> None:
        """Take what the configuration says now."""
        if mode != self.configured:
            self.configured = mode
            await self.turn(mode, who="configuration", source=source)
