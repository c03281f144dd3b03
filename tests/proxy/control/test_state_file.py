"""``cluster.state``: what is kept of brokers, and that no file can do harm."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from config.loader import load_settings
from proxy.brokers.known_brokers import KnownBroker, KnownBrokers
from proxy.control.state_file import StateFile

pytestmark = pytest.mark.asyncio

CONFIG = """\
cluster: {name: demo, bootstrap: ["one:9092", "two:9092"]}
listeners:
  - {name: A, bind: "127.0.0.1:1000", advertise: a, brokers: {"1": "1001"}}
  - {name: B, bind: "127.0.0.1:1100", advertise: b, brokers: {"1": "1101"}, cluster: {bootstrap: ["one:9093"]}}
quotas: {store: {path: quotas.yaml}}
"""
ONE = KnownBrokers(("one:9092", "two:9092"), "id-1", (KnownBroker(1, "one", 9092), KnownBroker(2, "two", 9092)))
OTHER_ROUTE = KnownBrokers(("one:9093",), "id-1", (KnownBroker(1, "one", 9093),))
BROKER = {"node_id": 1, "host": "one", "port": 9092}
ROUTE = {"bootstrap": ["one:9092"], "cluster_id": "id-1", "brokers": [BROKER]}


class Kept:
    """A state file, and what the worker knows."""

    def __init__(self, folder: Path) -> None:
        (folder / "sluice.yaml").write_text(CONFIG)
        self.path = folder / "state" / "brokers.json"
        self.known: list[KnownBrokers] = []
        self.settings = load_settings(folder / "sluice.yaml")
        self.file = self.anew()

    def anew(self) -> StateFile:
        """After a restart."""
        self.file = StateFile(self.path, self.settings, self.take)
        return self.file

    async def take(self) -> list[KnownBrokers]:
        return self.known

    def holds(self, content: object) -> None:
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(content if isinstance(content, str) else json.dumps(content))


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


async def test_known_brokers_are_loaded_from_state_file_after_restart(kept: Kept) -> None:
    assert await kept.file.load() == []
    await kept.file.keep()
    assert not kept.path.exists()  # nothing is known yet
    kept.known = [ONE, OTHER_ROUTE]
    for _ in range(3):
        await kept.file.keep()
    assert kept.file.counts == {"loaded": 0, "not_usable": 0, "other_cluster": 0, "written": 1, "not_written": 0}
    assert [entry.name for entry in kept.path.parent.iterdir()] == ["brokers.json"]
    assert kept.path.stat().st_mode & 0o777 == 0o600
    assert await kept.anew().load() == [ONE, OTHER_ROUTE]
    assert kept.file.counts["loaded"] == 1


async def test_a_route_of_which_nothing_has_been_heard_keeps_its_brokers(kept: Kept) -> None:
    kept.known = [ONE, OTHER_ROUTE]
    await kept.file.keep()
    await kept.anew().load()
    moved = KnownBrokers(ONE.bootstrap, "id-1", (KnownBroker(1, "three", 9092),))
    kept.known = [moved]
    await kept.file.keep()
    assert await kept.anew().load() == [moved, OTHER_ROUTE]


async def test_another_bootstrap_broker_in_the_configuration_changes_nothing(kept: Kept) -> None:
    kept.holds({"version": 1, "routes": [ROUTE | {"bootstrap": ["two:9092", "gone:9092"]}]})
    assert [each.bootstrap for each in await kept.file.load()] == [ONE.bootstrap]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[" * 100_000,
        "null",
        "[]",
        "\0\xff",
        {"version": 2, "routes": []},
        {"version": 1},
        {"version": 1, "routes": 7},
        {"version": 1, "routes": [None]},
        {"version": 1, "routes": [ROUTE | {"bootstrap": "one:9092"}]},
        {"version": 1, "routes": [ROUTE | {"bootstrap": [1]}]},
        {"version": 1, "routes": [ROUTE | {"cluster_id": 7}]},
        {"version": 1, "routes": [ROUTE | {"brokers": {"1": "one:9092"}}]},
        *(
            {"version": 1, "routes": [ROUTE | {"brokers": [BROKER | wrong]}]}
            for wrong in (
                {"node_id": -1},
                {"node_id": 2**31},
                {"node_id": True},
                {"node_id": "1"},
                {"host": ""},
                {"host": "a" * 300},
                {"host": "a\nb"},
                {"host": None},
                {"port": 0},
                {"port": 65536},
                {"port": 9092.0},
            )
        ),
        {"version": 1, "routes": []},
        {"version": 1, "routes": [ROUTE | {"bootstrap": ["elsewhere:9092"]}]},
    ],
    ids=lambda content: str(content)[:40],
)
async def test_a_file_that_cannot_be_used_is_told_counted_and_written_anew(kept: Kept, content: object) -> None:
    kept.holds(content)
    with capture_logs() as logs:
        assert await kept.file.load() == []
    (line,) = logs
    assert (line["log_level"], line["path"]) == ("error", str(kept.path))
    assert kept.file.counts["not_usable"] == 1
    kept.known = [ONE]
    await kept.file.keep()
    assert await kept.anew().load() == [ONE]


async def test_directory_or_fifo_as_state_file_is_skipped_without_waiting(kept: Kept) -> None:
    kept.path.mkdir(parents=True)
    assert await kept.file.load() == []
    kept.path.rmdir()
    os.mkfifo(kept.path)
    assert await kept.file.load() == []
    assert kept.file.counts["not_usable"] == 2


async def test_a_file_that_cannot_be_written_is_told_once_and_tried_again(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    kept.known = [ONE]
    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr(os, "fsync", refuse)
        for _ in range(3):
            await kept.file.keep()
    (line,) = [line for line in logs if line["log_level"] == "error"]
    assert (line["event"], line["error"]) == ("state file not written", "permission denied")
    assert kept.file.counts["not_written"] == 3
    assert list(kept.path.parent.iterdir()) == []
    await kept.file.keep()
    assert kept.file.counts["written"] == 1
    assert await kept.anew().load() == [ONE]


async def test_a_file_of_another_cluster_is_noticed_once_and_written_anew(kept: Kept) -> None:
    kept.known = [ONE]
    await kept.file.keep()
    await kept.anew().load()
    other = KnownBrokers(ONE.bootstrap, "id-2", (KnownBroker(7, "one", 9092),))
    lines: list[Any] = []
    for known in (KnownBrokers(ONE.bootstrap, "", ONE.brokers), other, other):
        kept.known = [known]
        with capture_logs() as logs:
            await kept.file.keep()
        lines += logs
    (line,) = lines
    assert (line["log_level"], line["cluster_id"], line["in_file"]) == ("error", "id-2", "id-1")
    assert kept.file.counts["other_cluster"] == 1
    assert await kept.anew().load() == [other]
