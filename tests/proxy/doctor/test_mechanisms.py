"""Mechanisms that brokers offer, and whose clients share a counter."""

from pathlib import Path

import pytest

from config.cluster import Route
from config.listener import Kerberos, ListenerSasl
from config.settings import Listener
from config.units import Address
from proxy.doctor.broker_checks import look_at_mechanisms
from proxy.doctor.findings import DoctorFindings
from tests.harness.fake_broker import fake_broker

pytestmark = pytest.mark.asyncio


def listener(kerberos: Kerberos | None = None) -> Listener:
    sasl = ListenerSasl() if kerberos is None else ListenerSasl(kerberos=kerberos)
    settings = {"name": "SASL", "sasl": sasl}
    return Listener.model_construct(None, **settings)  # type: ignore[arg-type]  # what is asked for, and no more


async def test_mechanisms_that_share_a_counter_are_warned_about() -> None:
    keytab = Kerberos(keytab=Path("kafka.keytab"), default_realm="EXAMPLE.COM")
    async with fake_broker() as one:
        route = Route(bootstrap=(Address("127.0.0.1", 1), Address("127.0.0.1", one.port)))
        for offered, kerberos, told in (
            (["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"], None, []),
            (["GSSAPI", "CUSTOM"], None, ["GSSAPI", "CUSTOM"]),
            (["GSSAPI", "CUSTOM"], keytab, ["CUSTOM"]),
        ):
            one.mechanisms = offered
            found = DoctorFindings()
            await look_at_mechanisms(found, listener(kerberos), route)
            assert [finding.text.split()[2].rstrip(",") for finding in found.all] == told
            assert {finding.status.value for finding in found.all} <= {"warn"}


async def test_unreachable_broker_gives_no_mechanism_findings() -> None:
    found = DoctorFindings()
    await look_at_mechanisms(found, listener(), Route(bootstrap=(Address("127.0.0.1", 1),)))
    assert found.all == []
