"""Which quotas brokers enforce on what comes through the proxy."""

from pathlib import Path
from typing import Any

import pytest

from config.loader import load_settings
from protocol.client_quotas import Described
from proxy.doctor.broker_checks import look_at_quotas
from proxy.doctor.findings import DoctorFindings
from tests.harness.quota_broker import QuotaBroker, quota_broker

pytestmark = pytest.mark.asyncio

CONFIG = """\
cluster: {name: demo, bootstrap: ["127.0.0.1:PORT"]}
listeners:
  - {name: A, bind: "127.0.0.1:1000", advertise: a.example, brokers: {"1": "1001"}}
quotas: {QUOTAS}
"""
FILE = "{store: {path: quotas.yaml}}"
OF_ALICE = Described((("user", "alice"),), (("producer_byte_rate", 5.0), ("consumer_byte_rate", 5.0)))
OF_BOB = Described((("user", "bob"),), (("producer_byte_rate", 5.0),))
OF_ALL_ADDRESSES = Described((("ip", None),), (("connection_creation_rate", 5.0),))


async def said(folder: Path, broker: QuotaBroker, quotas: str = FILE, **route: Any) -> list[str]:
    (folder / "quotas.yaml").write_text("quotas:\n  - {entity: {user: alice}, producer_byte_rate: 1MB}\n")
    config = folder / "sluice.yaml"
    config.write_text(CONFIG.replace("PORT", str(broker.port)).replace("{QUOTAS}", quotas))
    settings, found = load_settings(config), DoctorFindings()
    await look_at_quotas(found, settings, settings.cluster.model_copy(update=route))
    assert {finding.check for finding in found.all} <= {"quotas"}
    return [finding.text for finding in found.all]


async def test_a_quota_that_both_sides_hold_is_told_once(tmp_path: Path) -> None:
    async with quota_broker() as broker:
        assert await said(tmp_path, broker) == []
        broker.quotas = [OF_BOB]
        assert await said(tmp_path, broker) == []
        broker.quotas = [OF_BOB, OF_ALICE]
        [line] = await said(tmp_path, broker)
        assert line.startswith("user=alice: producer_byte_rate is enforced by the brokers and by Sluice: a client gets")
        [line] = await said(tmp_path, broker, "{store: {type: cluster}}")
        assert "and by Sluice, and 2 more" in line
        assert await said(tmp_path, broker, "{mode: shadow, store: {type: cluster}}") == []


async def test_a_rate_of_all_addresses_is_one_of_the_proxy_s(tmp_path: Path) -> None:
    async with quota_broker() as broker:
        broker.quotas = [OF_ALL_ADDRESSES]
        [line] = await said(tmp_path, broker, "{mode: shadow, store: {path: quotas.yaml}}")
        assert "applies to the proxy's address at the brokers, for all its clients together" in line


async def test_brokers_that_do_not_tell_are_not_taken_for_such_without_quotas(tmp_path: Path) -> None:
    async with quota_broker() as broker:
        broker.error = 31
        assert await said(tmp_path, broker) == ["the brokers refuse to describe their quotas (error 31)"]
        broker.apis = []
        assert await said(tmp_path, broker) == []
