"""``cluster.state``: the known brokers, kept in a file for the next start.

The file is only an aid: an unusable one is ignored, logged and counted, and Metadata from the brokers overrides it.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from config.settings import Settings
from proxy.brokers.known_brokers import KnownBrokers, NotUsableError, read, write
from proxy.runtime.tasks import every

log = structlog.get_logger("sluice.cluster")

_OUTCOMES: Final = ("loaded", "not_usable", "other_cluster", "written", "not_written")
_LOOK_S: Final = 1.0
_AGAIN_S: Final = 10.0
"""Pause after a failed write."""


class StateFile:
    """The file at ``path`` for the cluster in ``settings``. ``take`` returns the currently known brokers."""

    def __init__(self, path: Path, settings: Settings, take: Callable[[], Awaitable[Sequence[KnownBrokers]]]) -> None:
        self._path = path
        self._routes = [settings.cluster, *(each.cluster for each in settings.listeners if each.cluster is not None)]
        self._take = take
        self._kept: dict[tuple[str, ...], KnownBrokers] = {}
        """The file's content, by the bootstrap addresses of each route."""
        self._other: set[str] = set()
        """Ids of clusters that answered but are not the one in the file."""
        self._error = ""
        self.counts = dict.fromkeys(_OUTCOMES, 0)
        """By outcome."""

    async def load(self) -> list[KnownBrokers]:
        """Return the known brokers of the configured routes; none if the file is unusable."""
        try:
            found = await asyncio.to_thread(read, self._path)
        except FileNotFoundError:
            log.info("no state file yet", path=str(self._path))
            return []
        except (OSError, NotUsableError) as error:
            self._not_usable(str(error.strerror or error) if isinstance(error, OSError) else str(error))
            return []
        for route in self._routes:
            bootstrap = tuple(map(str, route.bootstrap))
            for each in found:
                if set(bootstrap) & set(each.bootstrap):
                    self._kept[bootstrap] = replace(each, bootstrap=bootstrap)
        if not self._kept:
            self._not_usable("its brokers have other bootstrap addresses")
            return []
        self.counts["loaded"] += 1
        return list(self._kept.values())

    def watch(self) -> None:
        every(lambda: _AGAIN_S if self._error else _LOOK_S, self.keep, "keep the state file")

    async def keep(self) -> None:
        """Write the file if it is out of date."""
        known = {each.bootstrap: self._compared(each) for each in await self._take()}
        wanted = self._kept | known
        if wanted == self._kept:
            return
        try:
            await asyncio.to_thread(write, self._path, list(wanted.values()))
        except OSError as error:
            self.counts["not_written"] += 1
            why = str(error.strerror or error).lower()
            if why != self._error:
                fix = f"let the user with id {os.geteuid()} write to {self._path.parent}"
                log.error("state file not written", path=str(self._path), error=why, fix=fix)
            self._error = why
            return
        self._error = ""
        self._kept = wanted
        self.counts["written"] += 1

    def _compared(self, known: KnownBrokers) -> KnownBrokers:
        """Keep the file's cluster id until Metadata has one; log once for each cluster that it is another one."""
        kept = self._kept.get(known.bootstrap)
        if kept is None or kept.cluster_id in ("", known.cluster_id):
            return known
        if not known.cluster_id:
            return replace(known, cluster_id=kept.cluster_id)
        if known.cluster_id not in self._other:
            self._other.add(known.cluster_id)
            self.counts["other_cluster"] += 1
            log.error(
                "the cluster is not that of the state file: the file's brokers are dropped",
                path=str(self._path),
                cluster_id=known.cluster_id,
                in_file=kept.cluster_id,
                bootstrap=list(known.bootstrap),
            )
        return known

    def _not_usable(self, why: str) -> None:
        self.counts["not_usable"] += 1
        log.error("state file not usable: it is ignored, and rewritten", path=str(self._path), error=why)
