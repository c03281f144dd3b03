"""The ceiling of memory: what happens at how much, and whom it meets."""

import socket
from pathlib import Path
from typing import cast

import psutil
import pytest
from structlog.testing import capture_logs

from config import cgroup
from config.loader import load_settings
from config.problems import ConfigError
from protocol.errors import Cause
from proxy.edge import memory
from proxy.edge.memory import MemoryCeiling, Verdict, buffered_bytes, judge, resident_bytes
from proxy.runtime import faults
from proxy.session.session import Session
from tests.harness.fake_broker import fake_broker
from tests.harness.polling import until
from tests.proxy.front import client, front
from tests.proxy.playbook import list_offsets
from tests.proxy.test_supervisor import CONFIG

KEEP, REFUSE = Verdict(refuses=False, excess_bytes=0), Verdict(refuses=True, excess_bytes=0)


@pytest.mark.parametrize(
    ("used", "refuses", "then"),
    [
        (0, False, KEEP),
        (849, False, KEEP),
        (850, False, REFUSE),
        (849, True, REFUSE),
        (800, True, REFUSE),
        (799, True, KEEP),
        (949, True, REFUSE),
        (950, False, Verdict(refuses=True, excess_bytes=50)),
        (1200, True, Verdict(refuses=True, excess_bytes=300)),
    ],
)
def test_newcomers_are_refused_from_85_percent_and_sessions_closed_from_95(
    used: int, refuses: bool, then: Verdict
) -> None:
    assert judge(used, 1000, refuses=refuses) == then
    assert judge(used << 20, 1000 << 20, refuses=refuses) == then._replace(excess_bytes=then.excess_bytes << 20)


@pytest.mark.parametrize(
    ("configured", "of_group", "workers", "ceiling"),
    [
        ("1GiB", None, 1, 2**30),
        ("900MB", 2**30, 2, 300_000_000),
        (None, 1_000_000_000, 1, 800_000_000),
        (None, 1_000_000_000, 4, 160_000_000),
        (None, None, 4, None),
        (None, 120 * 2**20, 1, 96 * 2**20),
        (None, 256 * 2**20, 2, None),
    ],
)
def test_each_process_has_its_part_of_what_is_configured_or_else_of_the_cgroups_limit(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    configured: str | None,
    of_group: int | None,
    workers: int,
    ceiling: int | None,
) -> None:
    monkeypatch.setattr(cgroup, "memory_bytes", lambda: of_group)
    text = CONFIG.format(broker=1, bind=2, port=3, admin=4, mode="enforce", more="")
    limits = "" if configured is None else f"limits: {{memory: {configured}}}\n"
    (tmp_path / "sluice.yaml").write_text(f"{text}{limits}workers: {workers}\n")
    assert load_settings(tmp_path / "sluice.yaml").memory_ceiling_bytes == ceiling


@pytest.mark.parametrize(("workers", "least"), [(1, "96MiB"), (2, "288MiB")])
def test_ceiling_below_what_processes_take_is_refused(tmp_path: Path, workers: int, least: str) -> None:
    text = CONFIG.format(broker=1, bind=2, port=3, admin=4, mode="enforce", more="")
    (tmp_path / "sluice.yaml").write_text(f"{text}workers: {workers}\nlimits: {{memory: 90MiB}}\n")
    with pytest.raises(ConfigError, match=f"limits.memory: .*write at least {least}"):
        load_settings(tmp_path / "sluice.yaml")


@pytest.mark.asyncio
async def test_the_session_with_the_largest_buffers_is_closed_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fake_broker() as one, front(one) as proxy:
        one.padding, proxy.play.worker.response_limit = 16 * 2**20, 10**9
        with socket.socket() as greedy:
            greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            greedy.connect(("127.0.0.1", proxy.port_1))
            greedy.send(list_offsets(1))
            await until(lambda: any(buffered_bytes(each) > 60_000 for each in proxy.listener.sessions))
            one.padding = 0
            ceiling = MemoryCeiling(100_000_000, lambda: proxy.listener.sessions)
            async with client(proxy.port_1) as modest:
                await modest.ask(list_offsets(1))
                monkeypatch.setattr(memory, "resident_bytes", lambda: 96_000_000)
                with capture_logs() as logs:
                    ceiling.look()
                assert (logs[0]["event"], ceiling.refuses) == ("memory is short: new connections are refused", True)
                assert proxy.rejected() == {Cause.MEMORY.value: 1}
                await until(lambda: len(proxy.listener.sessions) == 1)
                await modest.ask(list_offsets(2))
            monkeypatch.setattr(memory, "resident_bytes", lambda: 79_000_000)
            ceiling.look()
            assert (ceiling.refuses, ceiling.why_not_ready, ceiling.used_bytes) == (False, None, 79_000_000)


@pytest.mark.asyncio
async def test_while_memory_is_short_new_connections_are_refused() -> None:
    async with fake_broker() as one, front(one) as proxy, client(proxy.port_1) as known:
        await known.ask(list_offsets(1))
        proxy.memory.refuses = True
        async with client(proxy.port_1) as newcomer:
            assert await newcomer.closed()
        assert proxy.stats.connections["PLAIN", "refused_memory"] == 1
        await known.ask(list_offsets(2))
        proxy.memory.refuses = False
        async with client(proxy.port_1) as newcomer:
            await newcomer.ask(list_offsets(1))


class Unheard:
    """A session that fails to reject its client."""

    closed = False

    def __init__(self) -> None:
        self.is_cut_off = False

    def reject(self, *_: object) -> None:
        raise ConnectionError

    def abort(self) -> None:
        self.is_cut_off = True


def test_session_that_cannot_be_told_is_cut_off_as_the_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = [Unheard() for _ in range(3)]
    of_worker = cast("list[Session]", sessions)
    monkeypatch.setattr(memory, "buffered_bytes", lambda _: 4_000_000)
    monkeypatch.setattr(memory, "resident_bytes", lambda: 96_000_000)
    MemoryCeiling(100_000_000, lambda: of_worker).look()
    assert [each.is_cut_off for each in sessions] == [True, True, False]
    assert faults.counts["close a large session"] == 2


def test_the_resident_set_of_this_process_is_read() -> None:
    assert resident_bytes() == pytest.approx(psutil.Process().memory_info().rss, rel=0.1)
