"""The limits of the control group (cgroup) of this process: those of its container, pod or systemd unit.

The groups around it have limits too, and the least of them counts. Where the path in /proc/self/cgroup is the host's,
as in containers without a namespace for it, that path is not there: what is mounted begins with the container's group.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

MOUNTED: Final = Path("/sys/fs/cgroup")
OWN: Final = Path("/proc/self/cgroup")

_NO_LIMIT_BYTES: Final = 2**62
"""Version 1 has the largest number of pages where there is no limit."""


def cpus() -> float:
    """Return how many processors the process may use: a fraction if its group's time is limited (``cpu.max``)."""
    limits = [quota / period for quota, period in _cpu_times() if quota > 0]
    return min([float(len(os.sched_getaffinity(0))), *limits])


def memory_bytes() -> int | None:
    """Return the limit of memory (``memory.max``); None if there is none."""
    limits = [limit for file in ("memory.max", "memory.limit_in_bytes") for limit, *_ in _read("memory", file)]
    return min((int(limit) for limit in limits if limit < _NO_LIMIT_BYTES), default=None)


def _cpu_times() -> Iterator[tuple[float, float]]:
    """Yield the time that each group may use, and in which: below 0, or "max", it may use any."""
    for quota, *period in _read("cpu", "cpu.max"):
        if period:
            yield quota, period[0]
    quotas, periods = _read("cpu", "cpu.cfs_quota_us"), _read("cpu", "cpu.cfs_period_us")
    yield from ((quota, period) for (quota,), (period,) in zip(quotas, periods, strict=True))


def _read(controller: str, file: str) -> list[list[float]]:
    """Return the numbers in the files of that name, of this group and those around it."""
    found = []
    for group in _groups(controller):
        with suppress(OSError, ValueError):
            found.append([float(word) for word in (group / file).read_text(encoding="ascii").split() if word != "max"])
    return [numbers for numbers in found if numbers]


def _groups(controller: str) -> Iterator[Path]:
    """Yield the folders of this group and those around it, in both versions; not all need be there."""
    with suppress(OSError, ValueError):
        for line in OWN.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            is_version_1 = controller in controllers.split(",")
            if is_version_1 or not controllers:
                mounted = MOUNTED / controller if is_version_1 else MOUNTED
                parts = [part for part in path.split("/") if part]
                yield from (mounted.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1))
