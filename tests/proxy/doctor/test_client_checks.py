"""The client's way, before stand-ins: a broker that answers as the proxy would, and an admin port."""

import asyncio
import json
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme

from config.brokers import Endpoint, parse_broker_ports
from config.cluster import BrokerSasl, BrokerTls, Route
from config.listener import ClientTls, Listener
from config.loader import load_settings
from config.units import Address, AdvertisedAddress
from proxy.doctor.broker_checks import BrokerState, check_brokers
from proxy.doctor.client import ClientLogin, client_for, client_of
from proxy.doctor.client_checks import ClientChecks
from proxy.doctor.findings import DoctorFindings
from proxy.owners.map import OwnersInForce, OwnersMap
from tests.harness.fake_broker import PASSWORD, USER, fake_broker
from tests.proxy.pki import Pki
from tests.proxy.test_supervisor import CONFIG, running

pytestmark = pytest.mark.asyncio

NOW_S = datetime.now(UTC).timestamp()
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": f'x.PlainLoginModule required username="{USER}" password="{PASSWORD}";',
}
MUTUAL_TLS = "certificate: tls.crt, key: tls.key, client_ca: ca.pem, client_authentication: required"
RULES = "'RULE:^CN=([^,]+),OU=.*$/$1/'"
CERTIFICATE = {
    "security.protocol": "SSL",
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": "ca.pem",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": "client.pem",
}
NOWHERE = Address("127.0.0.1", 1)


class Admin(BaseHTTPRequestHandler):
    answer: tuple[int, bytes] = (404, b"")

    def do_GET(self) -> None:
        assert self.path.startswith("/api/v1/connections?peer=127.0.0.1%3A")
        assert self.headers["Host"] == "localhost", "else a name that is not in admin.hosts would be refused"
        status, body = self.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  http.server's name
        pass


@contextmanager
def admin(status: int, body: str) -> Iterator[Address]:
    Admin.answer = (status, body.encode())
    with HTTPServer(("127.0.0.1", 0), Admin) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield Address("127.0.0.1", server.server_port)
        finally:
            server.shutdown()
            thread.join()


def listed(*users: str) -> str:
    """Return the answer of the state API for connections of ``users``."""
    return json.dumps({"items": [{"user": user, "listener": "TEST"} for user in users]})


def listener(port: int, *, sasl: bool = False, **more: Any) -> Listener:
    return Listener(
        name="TEST",
        bind=Address("127.0.0.1", port),
        advertise=AdvertisedAddress("127.0.0.1"),
        brokers=parse_broker_ports({"1": str(port)}),
        authentication="sasl" if sasl else "none",
        **more,
    )


@asynccontextmanager
async def silent() -> AsyncIterator[int]:
    """A port that takes connections and closes them, as a proxy does that reaches no broker."""

    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(close, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def seen(
    listener: Listener,
    client: ClientLogin,
    admin: Address = NOWHERE,
    state: BrokerState | None = None,
    owners: OwnersInForce | None = None,
) -> dict[str, list[tuple[str, str]]]:
    """Return (status, text: fix) by check; ``behind`` is what was seen of the brokers."""
    found = DoctorFindings()
    if state is not None and not state.reached:
        found.fail("brokers", "nobody", "start them")
    brokers = state or BrokerState(reached=True)
    await ClientChecks(found, listener, listener.bind, admin, client, brokers, NOW_S, owners).examine()
    lines: dict[str, list[tuple[str, str]]] = {}
    for finding in found.all:
        assert finding.fix or finding.status != "FAIL", "every failing line says what to do"
        assert PASSWORD not in str(finding)
        lines.setdefault(finding.check, []).append((finding.status.value, f"{finding.text}: {finding.fix}"))
    return lines


async def test_plaintext_client_passes_every_check() -> None:
    async with fake_broker() as broker:
        with admin(200, listed("ANONYMOUS")) as at:
            lines = await seen(listener(broker.port), client_for(listener(broker.port)), at)
    assert {check: [status for status, _ in said] for check, said in lines.items()} == {
        "tcp": ["ok"],
        "tls": ["ok"],
        "versions": ["ok"],
        "login": ["ok"],
        "whoami": ["ok"],
        "advertised": ["ok"],
    }


@pytest.mark.parametrize(
    ("status", "body", "expected", "said"),
    [
        (200, listed("sluice"), "ok", "user sluice on listener TEST"),
        (200, listed("ANONYMOUS"), "FAIL", "despite its login: write authentication: sasl"),
        (200, listed("other"), "warn", "sees user sluice as other"),
        (200, listed(), "warn", "no connection from 127.0.0.1:"),
        (200, listed(), "warn", ": find out where the admin port of that proxy can be reached"),
        (404, "not found", "warn", "answers with something else"),
        (403, '{"error": "asked for"}', "warn", "answers with something else"),
        (200, "<html>", "warn", "answers with something else"),
    ],
)
async def test_whoami_check_compares_proxy_user_with_client_user(
    status: int, body: str, expected: str, said: str
) -> None:
    async with fake_broker(password=PASSWORD) as broker:
        with admin(status, body) as at:
            lines = await seen(listener(broker.port, sasl=True), client_of(LOGIN, NOW_S), at)
    ((found, text),) = lines["whoami"]
    assert (found, said in text) == (expected, True), text
    assert lines["advertised"][0][0] == "ok"


@pytest.mark.parametrize(
    ("host", "more", "login", "user"),
    [
        ("127.0.0.1", "", {}, "ANONYMOUS"),
        ("[::1]", "", {}, "ANONYMOUS"),
        ("127.0.0.1", ", authentication: sasl", LOGIN, USER),
        ("127.0.0.1", f", tls: {{{MUTUAL_TLS}, principal_mapping_rules: {RULES}}}", CERTIFICATE, "alice"),
    ],
)
async def test_a_running_proxy_tells_whose_connection_it_is(
    tmp_path: Path, pki: Pki, host: str, more: str, login: dict[str, str], user: str
) -> None:
    pki.client("alice")
    (tmp_path / "password").write_text(PASSWORD)
    text = CONFIG.replace('bind: "127.0.0.1:{bind}"', f'bind: "{host}:{{bind}}"')
    if login is LOGIN:
        text = text.replace(
            "refresh: 50ms", f"sasl: {{{{mechanism: PLAIN, username: {USER}, password_file: password}}}}"
        )
    files = {name: str(tmp_path / value) if value.endswith(".pem") else value for name, value in login.items()}
    async with fake_broker(password=PASSWORD if login is LOGIN else None) as broker:
        broker.brokers = {1: ("127.0.0.1", broker.port)}
        async with running(tmp_path, broker, more=more, text=text) as program:
            await program.until("/readyz", "ready")
            (served,) = load_settings(program.config).listeners
            client = client_of(files, NOW_S) if login else client_for(served)
            lines = await seen(served, client, Address("127.0.0.1", program.admin))
    assert lines["whoami"] == [("ok", f"user {user} on listener PLAIN: ")], lines


async def test_an_admin_port_that_is_elsewhere_ends_nothing() -> None:
    async with fake_broker(password=PASSWORD) as broker:
        lines = await seen(listener(broker.port, sasl=True), client_of(LOGIN, NOW_S))
    assert lines["whoami"][0][0] == "warn"
    assert "find out where the admin port of that proxy can be reached" in lines["whoami"][0][1]
    assert lines["advertised"][0][0] == "ok"


async def test_a_proxy_without_brokers_fails_at_the_brokers() -> None:
    async with silent() as port:
        lines = await seen(listener(port), client_for(listener(port)), state=BrokerState(reached=False))
        alone = await seen(listener(port), client_for(listener(port)))
    assert list(lines) == ["tcp", "tls", "brokers", "versions", "login", "whoami", "advertised"]
    assert [check for check, said in lines.items() if said[0][0] == "FAIL"] == ["brokers"]
    assert lines["versions"][0][1].startswith("no answer to ApiVersions, because brokers failed")
    assert {lines[check][0] for check in ("login", "whoami", "advertised")} == {
        ("skip", "not tried, because brokers failed: ")
    }
    assert [check for check, said in alone.items() if said[0][0] == "FAIL"] == ["versions"]
    assert alone["login"][0] == ("skip", "not tried, because versions failed: ")


async def test_a_broker_that_is_away_fails_once() -> None:
    async with fake_broker() as broker, silent() as port:
        broker.brokers = {1: ("127.0.0.1", broker.port), 2: ("127.0.0.1", port)}
        served = Listener(
            name="TEST",
            bind=Address("127.0.0.1", broker.port),
            advertise=AdvertisedAddress("127.0.0.1"),
            brokers=parse_broker_ports({"1": str(broker.port), "2": str(port)}),
        )
        known = await seen(served, client_for(served), state=BrokerState(reached=True, silent=frozenset((2,))))
        unknown = await seen(served, client_for(served))
    assert [status for status, _ in known["advertised"]] == ["ok", "skip"]
    assert known["advertised"][1][1].startswith(f"broker 2 at 127.0.0.1:{port} does not answer, because brokers failed")
    assert [status for status, _ in unknown["advertised"]] == ["ok", "FAIL"]


async def test_without_a_client_s_file_nobody_logs_in() -> None:
    async with fake_broker(password=PASSWORD) as broker:
        lines = await seen(listener(broker.port, sasl=True), client_for(listener(broker.port)))
    assert lines["login"][0][0] == "skip"
    assert "give --command-config" in lines["login"][0][1]
    assert (lines["whoami"][0][0], lines["advertised"][0][0]) == ("skip", "skip")
    assert lines["whoami"][0][1] == "not tried, because login was skipped: "


@pytest.mark.parametrize(
    ("days", "host", "expected"),
    [
        (100, "127.0.0.1", {"ok"}),
        (10, "127.0.0.1", {"ok", "warn"}),
        (-1, "127.0.0.1", {"ok", "FAIL"}),
        (100, "other.example", {"ok", "FAIL"}),
    ],
)
async def test_client_checks_report_expiring_expired_and_wrong_certificates(
    tmp_path: Path, days: int, host: str, expected: set[str]
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    until = datetime.now(UTC) + timedelta(days=days)
    leaf = authority.issue_cert(host, not_after=until, not_before=until - timedelta(days=365))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    leaf.configure_cert(context)
    leaf.cert_chain_pems[0].write_to_path(tmp_path / "own.pem")
    client = client_of(
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(tmp_path / "ca.pem"),
        },
        NOW_S,
    )
    async with fake_broker(tls=context) as broker:
        served = listener(broker.port, tls=ClientTls(certificate=tmp_path / "own.pem", key=tmp_path / "own.pem"))
        lines = await seen(served, client)
    assert {status for status, _ in lines["certificate"]} == expected, lines["certificate"]
    assert lines["advertised"][0][0] == ("skip" if "FAIL" in expected else "ok")


async def test_certificate_differing_from_file_or_untrusted_is_warned_about(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
    async with fake_broker(tls=context) as broker:
        served = listener(broker.port, tls=ClientTls(certificate=tmp_path / "own.pem", key=tmp_path / "own.pem"))
        lines = await seen(served, client_for(served))
    said = [text for status, text in lines["certificate"] if status == "warn"]
    assert any("in the file differs from the served one" in text for text in said)
    assert any("name that authority in ssl.truststore.location" in text for text in said)
    assert lines["advertised"][0][0] == "ok", "without a client's file, nobody's trust is at stake"


async def test_broker_check_reports_unreachable_brokers_of_each_route(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    sasl = BrokerSasl(mechanism="PLAIN", username=USER, password_file=password)
    async with fake_broker(password=PASSWORD) as one, fake_broker(password=PASSWORD) as two:
        one.brokers = {1: ("127.0.0.1", one.port), 2: ("127.0.0.1", two.port), 3: ("127.0.0.1", 1)}
        two.brokers = one.brokers
        bootstrap = (Address("127.0.0.1", one.port),)
        away = (*bootstrap, Address("127.0.0.1", 1))
        nobody = BrokerState(reached=False)
        for route, demands, expected, expected_behind in [
            (Route(bootstrap=bootstrap, sasl=sasl), True, ["ok", "ok", "FAIL"], BrokerState(True, frozenset((3,)))),
            (Route(bootstrap=away, sasl=sasl), True, ["ok", "FAIL", "ok"], BrokerState(True, frozenset((3,)))),
            (Route(bootstrap=bootstrap), True, ["ok", "warn"], BrokerState(reached=True)),
            (Route(bootstrap=bootstrap), False, ["FAIL"], nobody),
            (Route(bootstrap=bootstrap, tls=BrokerTls(ca=tmp_path / "missing")), False, ["FAIL"], nobody),
        ]:
            found = DoctorFindings()
            state = await check_brokers(found, route, demands_sasl=demands)
            assert state == expected_behind
            assert [finding.status.value for finding in found.all] == expected, found.all
            assert all(finding.fix for finding in found.all if finding.status == "FAIL")


async def test_the_address_at_a_brokers_owner_is_the_right_one() -> None:
    """With an elected owner, whatever is told: it is in no file. A fixed one is compared."""
    here = Endpoint("127.0.0.1", None, parse_broker_ports({"1": "1"}))
    there = OwnersMap(((range(1, 2), "there"),), {"there": {"TEST": here}}, ("there",))
    async with fake_broker() as broker:
        for owners, status, said in (
            (OwnersInForce("here", None, "group"), "ok", "answers"),
            (OwnersInForce("here", there), "FAIL", "instead of 127.0.0.1:1"),
        ):
            (line,) = (await seen(listener(broker.port), client_for(listener(broker.port)), owners=owners))[
                "advertised"
            ]
            assert (line[0], said in line[1]) == (status, True)
