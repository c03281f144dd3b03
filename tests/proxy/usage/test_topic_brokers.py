"""How the usage topic's brokers are reached: by the files as they are, and no context is made on the loop."""

import asyncio
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest
import trustme

from config.cluster import BrokerSasl, BrokerTls
from config.cluster import Cluster as ClusterSettings
from config.units import Address
from proxy.brokers import tls as broker_tls
from proxy.brokers.metadata import which_brokers
from proxy.usage.shipping import SinkError
from proxy.usage.topic import Brokers


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads in which contexts are made."""
    threads: list[int] = []
    real = broker_tls.broker_context

    def broker_context(settings: BrokerTls) -> ssl.SSLContext:
        threads.append(threading.get_ident())
        return real(settings)

    monkeypatch.setattr(broker_tls, "broker_context", broker_context)
    return threads


def settings(folder: Path, **sections: Any) -> ClusterSettings:
    trustme.CA().cert_pem.write_to_path(str(folder / "ca.pem"))
    tls = BrokerTls(ca=folder / "ca.pem")
    return ClusterSettings(name="demo", bootstrap=(Address("127.0.0.1", 1),), tls=tls, **sections)


def test_files_are_taken_as_they_are_and_the_loop_does_not_wait_for_them(tmp_path: Path, made: list[int]) -> None:
    brokers = Brokers(settings(tmp_path))

    async def run() -> None:
        with pytest.raises(SinkError, match=r"no broker can be used: 127\.0\.0\.1:1"):
            await brokers.ask(which_brokers)
        (first,) = (await brokers.login())["ssl_context"].get_ca_certs()
        trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        (second,) = (await brokers.login())["ssl_context"].get_ca_certs()
        assert first["serialNumber"] != second["serialNumber"]

    asyncio.run(run())
    assert len(made) == 3
    assert threading.get_ident() not in made


def test_files_that_are_not_there_are_looked_for_again(tmp_path: Path, made: list[int]) -> None:
    brokers = Brokers(settings(tmp_path))
    (tmp_path / "ca.pem").rename(tmp_path / "away.pem")

    async def run() -> None:
        for _ in range(2):
            with pytest.raises(OSError, match=r"tls\.ca .*ca\.pem"):
                await brokers.ask(which_brokers)
        (tmp_path / "away.pem").rename(tmp_path / "ca.pem")
        assert (await brokers.login())["ssl_context"] is not None

    asyncio.run(run())
    assert threading.get_ident() not in made


def test_without_tls_none_is_made_and_the_password_is_read_each_time(tmp_path: Path, made: list[int]) -> None:
    secret = tmp_path / "password"
    secret.write_text("one\n")
    sasl = BrokerSasl(mechanism="PLAIN", username="proxy", password_file=secret)
    brokers = Brokers(settings(tmp_path).model_copy(update={"tls": None, "sasl": sasl}))

    async def run() -> None:
        assert (await brokers.login())["sasl_plain_password"] == "one"
        secret.write_text("two\n")
        login = await brokers.login()
        assert login["security_protocol"] == "SASL_PLAINTEXT"
        assert (login["ssl_context"], login["sasl_plain_username"], login["sasl_plain_password"]) == (
            None,
            "proxy",
            "two",
        )

    asyncio.run(run())
    assert not made
