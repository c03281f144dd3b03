"""The number of workers."""

from pathlib import Path

import pytest

from config import cgroup
from config.loader import load_settings
from tests.config.loading import problems
from tests.config.test_owners import HOSTS, PORTS

AT_PORTS = PORTS.replace("ADVERTISE", "a.test")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sluice.yaml"


def written(workers: str, *listeners: str) -> str:
    rows = "".join(f"- {each}\n" for each in listeners)
    return (
        f'cluster: {{name: c, bootstrap: ["b:9092"]}}\nlisteners:\n{rows}{workers}\n'
        "quotas: {store: {type: file, path: q.yaml}}\n"
    )


@pytest.mark.parametrize(("cores", "text", "number"), [(8, "", 1), (8, "workers: 4", 4), (1, "workers: auto", 1)])
def test_worker_count_is_the_one_configured(
    file: Path, monkeypatch: pytest.MonkeyPatch, cores: int, text: str, number: int
) -> None:
    monkeypatch.setattr(cgroup, "cpus", lambda: float(cores))
    file.write_text(written(text, AT_PORTS))
    assert load_settings(file).workers == number


def test_auto_leaves_a_core_and_has_a_bound(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(written("workers: auto", AT_PORTS))
    for cores, number in ((4.0, 3), (200.0, 64), (0.5, 1), (2.0, 1), (2.5, 2)):
        monkeypatch.setattr(cgroup, "cpus", lambda cores=cores: cores)
        assert load_settings(file).workers == number


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("workers: 0", "workers: 0 is too small; it must be more than 0"),
        ("workers: all", "workers: 'all' is not a number of workers; write a whole number, or auto"),
        ("workers: 65", "workers: 65 is too large; at most 64 workers can run"),
        ("workers: [2]", "workers: must be a number of workers; write it like 4"),
    ],
)
def test_invalid_workers_setting_is_refused_with_its_fix(file: Path, text: str, said: str) -> None:
    (problem,) = problems(file, written(text, AT_PORTS))
    assert said in problem


def test_workers_accept_listeners_with_ports_or_host_names(file: Path) -> None:
    file.write_text(written("workers: 2", AT_PORTS, HOSTS.replace("INSTANCE", "a")))
    assert load_settings(file).workers == 2


def test_one_of_several_workers_has_its_part_of_the_limits(file: Path) -> None:
    limits = "limits: {connections: 101, connection_rate: 7, memory: 900MB}"
    file.write_text(written(f"workers: 2\n{limits}", AT_PORTS))
    settings = load_settings(file)
    own = settings.of_one_worker()
    assert (own.limits.connections, own.limits.connection_rate) == (51, 4)
    assert own.listeners[0].limits.connections is None
    assert own.memory_ceiling_bytes == settings.memory_ceiling_bytes == 300_000_000
