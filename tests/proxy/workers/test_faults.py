"""A fault in the supervisor's part of a worker is noted, and the worker is looked after all the same."""

import asyncio
import pickle
import signal
from pathlib import Path
from typing import Any

import pytest

from proxy.runtime.faults import counts
from proxy.state.paging import Query
from proxy.workers.child import Child
from tests.harness.fake_broker import fake_broker
from tests.harness.polling import until
from tests.proxy.front import client
from tests.proxy.playbook import list_offsets
from tests.proxy.workers.test_ports import HOST, Asked, serving
from tests.proxy.workers.test_workers import two_workers

pytestmark = [pytest.mark.asyncio, pytest.mark.long]


def fail(*_: object) -> Any:
    raise ArithmeticError


async def no_process(*_: object) -> None:
    raise ArithmeticError


async def test_faults_are_noted_and_workers_are_looked_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with fake_broker() as one, fake_broker() as two, two_workers(tmp_path, one, two) as pair:
        with monkeypatch.context() as broken:
            broken.setattr(Child, "look", fail)
            await until(lambda: counts["look after the workers"])
        with monkeypatch.context() as broken:
            broken.setattr(pair.child_of(1), "_on_end", fail)
            pair.signal(1, signal.SIGKILL)
            await until(lambda: counts["start a worker again"])
        await pair.until_up(1, restarts=1)
        async with client(pair.ports[1]) as asking:
            await asking.ask(list_offsets(1))
    assert counts.pop("look after the workers") >= 1
    assert counts.pop("start a worker again") == 1


async def test_a_worker_whose_calls_cannot_be_served_is_started_again(tmp_path: Path) -> None:
    async with fake_broker() as one, fake_broker() as two, two_workers(tmp_path, one, two) as pair:
        child = pair.child_of(1)
        child._channel._reader.set_exception(ArithmeticError())
        await pair.until_up(1, restarts=1)
        async with client(pair.ports[1]) as asking:
            await asking.ask(list_offsets(1))
    assert counts.pop("serve a worker's calls") == 1


async def test_a_port_that_cannot_be_handed_over_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked()
    async with serving(asked, 1) as (_, (worker,)):
        worker._end.settimeout(0.2)
        with monkeypatch.context() as broken:
            broken.setattr(pickle, "loads", fail)
            with pytest.raises(TimeoutError):
                await asyncio.to_thread(worker.bind, HOST, 0)
        for each in await asyncio.to_thread(worker.bind, HOST, 0):
            each.close()
    assert counts.pop("hand a port to a worker") == 1


async def test_page_is_asked_for_after_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with fake_broker() as one, fake_broker() as two, two_workers(tmp_path, one, two) as pair:
        with monkeypatch.context() as broken:
            broken.setattr(pair.workers, "_all", no_process)
            with pytest.raises(ArithmeticError):
                await pair.workers.page("clients", Query("-ratio"))
        assert (await pair.workers.page("clients", Query("-ratio"))).total == 0
    assert counts.pop("ask the workers for a page") == 1


async def test_pages_nobody_waits_for_are_not_asked_of_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    go_on = asyncio.Event()

    async def ask(*_: object) -> dict[int, Any]:
        asked.append(_)
        await go_on.wait()
        return {}

    async with fake_broker() as one, fake_broker() as two, two_workers(tmp_path, one, two) as pair:
        monkeypatch.setattr(pair.workers, "_all", ask)
        leaving = [asyncio.create_task(pair.workers.page("clients", Query("-ratio"))) for _ in range(100)]
        await until(lambda: asked)
        for each in leaving:
            each.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
        go_on.set()
        await pair.workers.page("clients", Query("-ratio"))
        assert len(asked) == 2
        monkeypatch.undo()
