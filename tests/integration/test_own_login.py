"""The proxy's own questions to real brokers: TLS, its login, and whose a delegation token is."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from config.cluster import BrokerSasl, BrokerTls, Route
from config.units import Address
from proxy.brokers.cluster import Cluster
from proxy.identity.delegation_tokens import TokenOwners
from tests.harness.sasl import create_delegation_token, log_in_scram
from tests.harness.secure import MTLS, NODE_IDS, PROXY_USER, SASL, SASL_TLS, SecureCluster
from tests.harness.wire import Address as Place
from tests.harness.wire import Connection

pytestmark = pytest.mark.integration

T = TypeVar("T")

USERS: Final = {"alice": "alice-secret", "bob": "bob-secret"}


@pytest.fixture(scope="module")
def secure() -> Iterator[SecureCluster]:
    with SecureCluster(USERS) as running:
        yield running


def route(secure: SecureCluster, listener: str, **changed: Any) -> Route:
    """The route that the configuration file would name, with some of it changed; None leaves a section out."""
    written = {**secure.route(listener, guarded=False), **changed}
    bootstrap = [Place.parse(text) for text in written.pop("bootstrap")]
    sections: dict[str, Any] = {name: section for name, section in written.items() if section is not None}
    if "tls" in sections:
        sections["tls"] = BrokerTls(**{key: Path(value) for key, value in sections["tls"].items()})
    if "sasl" in sections:
        login = sections["sasl"]
        sections["sasl"] = BrokerSasl(**{**login, "password_file": Path(login["password_file"])})
    return Route(bootstrap=tuple(Address(each.host, each.port) for each in bootstrap), **sections)


def run(route: Route, work: Callable[[Cluster], Awaitable[T]], *, demands_sasl: bool = True) -> T:
    """Run ``work`` on a cluster that was asked once, on uvloop as the proxy does."""
    import uvloop

    async def refreshed() -> T:
        cluster = Cluster(
            "secure", route, lambda _: None, refresh_s=30.0, connect_timeout_s=10.0, demands_sasl=demands_sasl
        )
        await cluster.refresh()
        return await work(cluster)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(refreshed())


async def error_of(cluster: Cluster) -> str | None:
    return cluster.error


async def brokers_of(cluster: Cluster) -> list[int]:
    assert cluster.error is None
    return list(cluster.brokers)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("listener", [SASL, SASL_TLS])
def test_brokers_are_known_after_a_login(secure: SecureCluster, listener: str, mechanism: str) -> None:
    login = {**secure.route(listener)["sasl"], "mechanism": mechanism}
    assert run(route(secure, listener, sasl=login), brokers_of) == [*NODE_IDS]


def test_brokers_are_known_by_the_proxy_s_certificate(secure: SecureCluster) -> None:
    assert run(route(secure, MTLS), brokers_of, demands_sasl=False) == [*NODE_IDS]


def test_refusals_say_what_to_do(secure: SecureCluster, tmp_path: Path) -> None:
    wrong = tmp_path / "password"
    wrong.write_text("canary\n")
    login = secure.route(SASL)["sasl"]
    wrongs: list[tuple[str, dict[str, Any], str]] = [
        (SASL, {"sasl": {**login, "password_file": str(wrong)}}, f"refused the login of user {PROXY_USER} by SCRAM"),
        (SASL_TLS, {"tls": {}}, "not signed by an authority trusted here: name that authority in tls.ca"),
        (SASL_TLS, {"tls": None}, "require TLS, a client certificate or SASL?"),
        (SASL, {"tls": {"ca": secure.authority.certificate}}, "closed the connection during the TLS handshake"),
        (MTLS, {"tls": {"ca": secure.authority.certificate}}, "set tls.certificate and tls.key"),
    ]
    for listener, changed, said in wrongs:
        error = run(route(secure, listener, **changed), error_of)
        assert error is not None
        assert said in error, (listener, changed)
        assert "canary" not in error
        assert "\n" not in error
    missing = {"mechanism": "PLAIN", "username": "nobody", "password_file": str(wrong)}
    assert "refused the login of user nobody by PLAIN" in str(run(route(secure, SASL, sasl=missing), error_of))


def test_without_a_login_a_broker_that_demands_sasl_is_there_and_no_more(secure: SecureCluster) -> None:
    async def seen(cluster: Cluster) -> tuple[str | None, list[int]]:
        return cluster.why_not_ready, list(cluster.brokers)

    assert run(route(secure, SASL, sasl=None), seen) == (None, [])
    why, _ = run(route(secure, SASL, sasl=None), seen, demands_sasl=False)
    assert "require TLS, a client certificate or SASL?" in str(why)


def test_proxy_learns_owners_of_delegation_tokens(secure: SecureCluster) -> None:
    tokens = {}
    for user, password in USERS.items():
        with Connection(Place.parse(secure.cluster.bootstrap_of(SASL))) as connection:
            assert log_in_scram(connection, user, password).error_code == 0
            tokens[create_delegation_token(connection).token_id] = user

    async def owners(cluster: Cluster) -> dict[str, str]:
        found: dict[str, str] = {}
        asking = TokenOwners(cluster, ask_every_s=0.5)
        everybody = asyncio.Event()

        def take(token_id: str, owner: str) -> None:
            found[token_id] = owner
            if len(found) == len(tokens):
                everybody.set()

        for token_id in tokens:
            assert asking.owner(token_id, lambda owner, token_id=token_id: take(token_id, owner)) is None  # type: ignore[misc]
        async with asyncio.timeout(10.0):
            await everybody.wait()
        assert {token_id: asking.owner(token_id, lambda _: None) for token_id in tokens} == found
        return found

    assert run(route(secure, SASL), owners) == tokens
