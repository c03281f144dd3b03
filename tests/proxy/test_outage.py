"""The whole program while the store of its quotas is away: at the start, later, and when it comes back."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from protocol.client_quotas import Described
from tests.harness.quota_broker import QuotaBroker, quota_broker
from tests.proxy.front import TIMEOUT_S, client
from tests.proxy.playbook import list_offsets
from tests.proxy.test_supervisor import Running, running

pytestmark = pytest.mark.asyncio

CONFIG = """\
cluster: {{name: test, bootstrap: ["127.0.0.1:{broker}"], refresh: 50ms}}
listeners:
  - {{name: PLAIN, bind: "127.0.0.1:{bind}", advertise: 127.0.0.1, brokers: {{"1": "{port}"}}{more}}}
quotas: {{store: {{type: cluster, poll: 100ms}}, mode: {mode}OUTAGE}}
admin: {{bind: "127.0.0.1:{admin}"}}
drain: {{delay: 0s, timeout: 1s}}
"""
OF_ALICE = Described((("user", "alice"),), (("producer_byte_rate", 5.0),))
REFUSED = 31


@asynccontextmanager
async def program(
    folder: Path, outage: str = "", *, error: int = REFUSED
) -> AsyncIterator[tuple[QuotaBroker, Running]]:
    async with quota_broker() as broker:
        broker.quotas = [OF_ALICE]
        broker.error = error
        async with running(folder, broker, text=CONFIG.replace("OUTAGE", outage)) as started:
            yield broker, started


def takes_clients(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


async def test_refuse_accepts_nobody_until_the_quotas_are_known(tmp_path: Path) -> None:
    with capture_logs() as logs:
        async with program(tmp_path) as (broker, started):
            said = await started.until("/readyz", "may not be read")
            assert "quotas: kafka://127.0.0.1:" in said
            metrics = await started.until("/metrics", "sluice_ready 0.0")
            assert "sluice_quota_reload_error_info{" in metrics
            assert await started.until("/livez", "ok")
            assert not takes_clients(started.bind)
            broker.error = 0
            await started.until("/readyz", "ready")
            assert takes_clients(started.bind)
            assert "sluice_quotas_configured 1.0" in await started.until("/metrics", "sluice_ready 1.0")
    [line] = [line for line in logs if line["event"].startswith("quotas not loaded")]
    assert line["event"] == "quotas not loaded, no client is accepted without them"


async def test_proxy_waiting_for_quotas_can_be_stopped(tmp_path: Path) -> None:
    async with program(tmp_path) as (_, started):
        await started.until("/readyz", "may not be read")
        started.stop()
        async with asyncio.timeout(TIMEOUT_S):
            assert await started.task == 0


@pytest.mark.parametrize(
    ("outage", "stand_in", "configured"),
    [
        (", when_unavailable: unlimited", "unlimited", 0),
        (", when_unavailable: static, static: static.yaml", "static", 2),
    ],
)
async def test_stand_in_for_unknown_quotas_is_shown_in_metrics(
    tmp_path: Path, outage: str, stand_in: str, configured: int
) -> None:
    (tmp_path / "static.yaml").write_text(
        "quotas:\n  - {entity: {user: a}, producer_byte_rate: 1MB}\n  - {entity: {user: b}, producer_byte_rate: 1MB}\n"
    )
    async with program(tmp_path, outage) as (broker, started):
        await started.until("/readyz", "ready")
        metrics = await started.until("/metrics", f'sluice_quota_stand_in{{mode="{stand_in}"}} 1.0')
        assert f"sluice_quotas_configured {configured}.0" in metrics
        async with client(started.port) as asking:
            await asking.ask(list_offsets(1))
            broker.error = 0
            metrics = await started.until("/metrics", "sluice_quotas_configured 1.0")
            assert "sluice_quota_stand_in{" not in metrics
            assert "sluice_quota_staleness_seconds 0.0\n" in metrics
            await asking.ask(list_offsets(2))


async def test_a_stand_in_that_is_wrong_keeps_the_proxy_from_starting(tmp_path: Path) -> None:
    (tmp_path / "static.yaml").write_text("quotas: 5\n")
    async with program(tmp_path, ", when_unavailable: static, static: static.yaml") as (_, started):
        async with asyncio.timeout(TIMEOUT_S):
            assert await started.task == 2


async def test_brokers_that_are_too_old_are_a_wrong_configuration(tmp_path: Path) -> None:
    async with quota_broker() as broker:
        broker.apis = [18, 3]
        async with running(tmp_path, broker, text=CONFIG.replace("OUTAGE", "")) as started:
            async with asyncio.timeout(TIMEOUT_S):
                assert await started.task == 2


@pytest.mark.long
async def test_last_good_quotas_stay_in_force_during_later_outage(tmp_path: Path) -> None:
    with capture_logs() as logs:
        async with program(tmp_path, error=0) as (broker, started):
            await started.until("/readyz", "ready")
            async with client(started.port) as asking:
                for round_ in range(3):  # flapping
                    broker.error = REFUSED
                    metrics = await started.until("/metrics", "may not be read")
                    assert "sluice_quotas_configured 1.0" in metrics
                    assert "sluice_ready 1.0" in metrics
                    await asking.ask(list_offsets(round_))
                    broker.error = 0
                    await started.until("/metrics", "sluice_quota_staleness_seconds 0.0\n")
                broker.quotas.append(Described((("user", "bob"),), (("producer_byte_rate", 1.0),)))
                await started.until("/metrics", "sluice_quotas_configured 2.0")
    events = [line["event"] for line in logs if line["event"].startswith("quotas not loaded")]
    assert events == ["quotas not loaded, the old ones stay in force"] * 3
