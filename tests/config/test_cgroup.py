"""Limits of a control group, in a tree of files as the kernel shows it."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from config import cgroup

Show = Callable[[str, Mapping[str, str]], None]

POD = "/kubepods/pod1/app"


@pytest.fixture
def show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Show:
    """Return a function that shows /proc/self/cgroup, and files below /sys/fs/cgroup; the machine has 80 cores."""

    def show(own: str, files: Mapping[str, str]) -> None:
        (tmp_path / "own").write_text(own)
        for name, text in files.items():
            (tmp_path / "mounted" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "mounted" / name).write_text(text)

    monkeypatch.setattr(cgroup, "OWN", tmp_path / "own")
    monkeypatch.setattr(cgroup, "MOUNTED", tmp_path / "mounted")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(80)))
    return show


@pytest.mark.parametrize(
    ("own", "files", "cpus", "memory_bytes"),
    [
        ("", {}, 80, None),
        ("0::/\n", {"cpu.max": "200000 100000\n", "memory.max": "1073741824\n"}, 2, 2**30),
        ("0::/\n", {"cpu.max": "max 100000\n", "memory.max": "max\n"}, 80, None),
        (f"0::{POD}\n", {f"{POD[1:]}/cpu.max": "50000 100000", f"{POD[1:]}/memory.max": "2000000"}, 0.5, 2_000_000),
        (f"0::{POD}\n", {"kubepods/cpu.max": "400000 100000", f"{POD[1:]}/cpu.max": "max 100000"}, 4, None),
        (f"0::{POD}\n", {"kubepods/memory.max": "5000", f"{POD[1:]}/memory.max": "9000"}, 80, 5000),
        ("0::/not/mounted/here\n", {"cpu.max": "150000 100000\n"}, 1.5, None),
        (
            f"4:memory:{POD}\n1:cpu,cpuacct:{POD}\n0::/\n",
            {
                f"memory{POD}/memory.limit_in_bytes": "1048576\n",
                "memory/memory.limit_in_bytes": "9223372036854771712\n",
                f"cpu{POD}/cpu.cfs_quota_us": "250000\n",
                f"cpu{POD}/cpu.cfs_period_us": "100000\n",
                "cpu/cpu.cfs_quota_us": "-1\n",
                "cpu/cpu.cfs_period_us": "100000\n",
            },
            2.5,
            2**20,
        ),
        (
            "4:memory:/docker/1\n1:cpu:/docker/1\n",
            {
                "memory/memory.limit_in_bytes": "9223372036854771712\n",
                "cpu/cpu.cfs_quota_us": "-1\n",
                "cpu/cpu.cfs_period_us": "100000\n",
            },
            80,
            None,
        ),
    ],
    ids=["none", "container", "max", "nested", "outer-cpu", "outer-memory", "path-of-host", "version-1", "no-limit-1"],
)
def test_the_least_limit_of_this_group_and_those_around_it_counts(
    show: Show, own: str, files: Mapping[str, str], cpus: float, memory_bytes: int | None
) -> None:
    show(own, files)
    assert (cgroup.cpus(), cgroup.memory_bytes()) == (cpus, memory_bytes)


def test_cores_that_the_process_may_not_run_on_do_not_count(show: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    show("0::/\n", {"cpu.max": "400000 100000\n"})
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert cgroup.cpus() == 2


def test_limits_of_this_machine_can_be_read() -> None:
    assert 0 < cgroup.cpus() <= len(os.sched_getaffinity(0))
