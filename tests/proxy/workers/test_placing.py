"""Brokers are placed at workers by load, and stay while loads do."""

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from config.loader import load_settings
from proxy.brokers.known_brokers import KnownBroker, KnownBrokers
from proxy.owners.assignment import DRIFT_S
from proxy.workers import workers as module
from proxy.workers.workers import Workers
from tests.harness.clock import Clock
from tests.proxy.test_supervisor import CONFIG


def never(host: str, port: int) -> list[socket.socket]:
    raise AssertionError((host, port))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "monotonic_s", clock)
    return clock


@pytest.fixture
def workers(tmp_path: Path, clock: Clock) -> Workers:
    del clock
    text = CONFIG.format(broker=1, bind=2, admin=3, mode="enforce", more="", port=4) + "workers: 2\n"
    (tmp_path / "sluice.yaml").write_text(text)
    (tmp_path / "quotas.yaml").write_text("quotas: []\n")
    settings = load_settings(tmp_path / "sluice.yaml")
    workers = Workers(settings, never)
    find(workers, 4)
    assert moves(workers)
    return workers


def find(workers: Workers, brokers: int) -> None:
    named = tuple(KnownBroker(node_id, "host", 9092) for node_id in range(brokers))
    workers.in_force = replace(workers.in_force, known=(KnownBrokers(("a:1",), "id", named),))


def moves(workers: Workers) -> bool:
    before = workers.in_force.placed
    workers._place()
    return workers.in_force.placed != before


def loads(workers: Workers) -> list[float]:
    return sorted(workers._load_of_workers().values())


def test_without_loads_each_worker_has_as_many(workers: Workers) -> None:
    assert sorted(workers.in_force.placed.values()) == [0, 0, 1, 1]
    assert not moves(workers)


def test_brokers_move_if_a_worker_has_too_much_for_minutes(workers: Workers, clock: Clock) -> None:
    heavy = [node_id for node_id, worker in workers.in_force.placed.items() if worker == 0]
    workers._load.update({node_id: 300.0 * (node_id in heavy) for node_id in workers.in_force.placed})
    before = dict(workers.in_force.placed)
    for _ in range(3):  # not while it lasts for less
        assert not moves(workers)
        clock.now_s += DRIFT_S / 3
        assert workers.in_force.placed == before
    assert moves(workers)
    assert loads(workers) == [300.0, 300.0]
    after = dict(workers.in_force.placed)
    clock.now_s += 10 * DRIFT_S
    assert not moves(workers)
    assert workers.in_force.placed == after


def test_a_burst_moves_nothing(workers: Workers, clock: Clock) -> None:
    for load in (300.0, 0.0) * 5:
        workers._load.update({0: load, 2: load})
        assert not moves(workers)
        clock.now_s += DRIFT_S - 1


def test_equal_load_change_of_all_workers_moves_no_broker(workers: Workers, clock: Clock) -> None:
    """It is looked at anew, and nothing moves."""
    workers._load.update(dict.fromkeys(range(4), 100.0))
    assert not moves(workers)
    clock.now_s += DRIFT_S
    assert not moves(workers)
    assert workers._placed_by == {"0": 200.0, "1": 200.0}


def test_a_new_broker_goes_to_the_worker_with_less_load(workers: Workers) -> None:
    idle = workers.in_force.placed[0]
    workers._load.update(
        {node_id: 1.0 if worker == idle else 100.0 for node_id, worker in workers.in_force.placed.items()}
    )
    find(workers, 5)
    assert moves(workers)
    assert workers.in_force.placed[4] == idle
