"""How many connections fit into the limit of open files."""

from pathlib import Path

import pytest

from config.loader import load_settings
from config.settings import Settings
from proxy.edge.connection_slots import MOST_HELD, capacity

CONFIG = """\
cluster: {name: demo, bootstrap: ["b:9093"]}
listeners:
  - {name: A, bind: ":9092", advertise: a, brokers: {"0-9": "9100-9109"}, limits: LISTENER}
quotas: {store: {path: quotas.yaml}}
limits: LIMITS
"""


def settings(folder: Path, limits: str = "{}", of_listener: str = "{}") -> Settings:
    file = folder / "sluice.yaml"
    file.write_text(CONFIG.replace("LISTENER", of_listener).replace("LIMITS", limits))
    return load_settings(file)


def test_connection_limit_is_derived_from_open_file_limit(tmp_path: Path) -> None:
    """128 for what else there is, ten ports, a bootstrap port, one connection that waits, 64 that are held."""
    assert capacity(settings(tmp_path), 1024) == ((1024 - 128 - 10 - 2 - 64) // 2, 64, 16, 0)
    assert capacity(settings(tmp_path), 1_000_000).held == MOST_HELD


def test_workers_at_one_port_leave_room_for_connections_whose_worker_is_not_known(tmp_path: Path) -> None:
    two = {"workers": 2}
    at_port = settings(tmp_path)
    (listener,) = at_port.listeners
    hosts = {"listeners": (listener.model_copy(update={"brokers": None, "broker_host": "b{node_id}.test"}),)}
    assert capacity(at_port.model_copy(update=two), 1024).unsorted == 0
    assert capacity(at_port.model_copy(update=hosts), 1024).unsorted == 0
    assert capacity(at_port.model_copy(update=two | hosts), 1024) == ((1024 - 128 - 2 - 64 - 128) // 2, 64, 16, 128)
    few = {"limits": at_port.limits.model_copy(update={"connections": 20})}
    assert capacity(at_port.model_copy(update=two | hosts | few), 1024).unsorted == 20


def test_configured_connection_limit_is_used_if_it_fits(tmp_path: Path) -> None:
    assert capacity(settings(tmp_path, "{connections: 410}"), 1024).connections == 410
    assert capacity(settings(tmp_path, of_listener="{connections: 410}"), 1024).connections == 410


@pytest.mark.parametrize(
    ("limits", "of_listener", "name"),
    [
        ("{connections: 411}", "{}", "limits.connections"),
        ("{}", "{connections: 411}", "limits.connections of listener A"),
    ],
)
def test_connection_limit_beyond_open_files_is_refused_with_fix(
    tmp_path: Path, limits: str, of_listener: str, name: str
) -> None:
    with pytest.raises(OSError) as refused:  # noqa: PT011  the text is compared
        capacity(settings(tmp_path, limits, of_listener), 1024)
    assert str(refused.value) == (
        f"{name}: 411 connections need 1026 open files, two each, and the limit is 1024: raise it "
        "(ulimit -n, LimitNOFILE= of systemd), or set at most 410"
    )


def test_open_file_limit_below_needs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="a limit of 140 open files leaves no room for connections"):
        capacity(settings(tmp_path), 140)
