"""TLS to clients, over real sockets: who is let in, as whom, to which broker, and why not."""

import asyncio
import datetime
import socket
import ssl
import sys
from types import SimpleNamespace

import pytest
import trustme
from structlog.testing import capture_logs

from config.units import AdvertisedAddress
from proxy.edge.arrival import Arrival
from proxy.edge.tls import client_context, ignore_undecodable_names
from proxy.edge.wires import ClientWire
from proxy.identity.principal import UNNAMED
from proxy.session.session import Session
from quotas.entities import Default, Entity
from quotas.policy import Policy
from tests.harness.fake_broker import fake_broker
from tests.harness.polling import until
from tests.proxy.front import TIMEOUT_S, Front, client, front
from tests.proxy.pki import Pki
from tests.proxy.playbook import PRODUCER, list_offsets, produce, request

pytestmark = pytest.mark.asyncio

VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
SNI = {"advertise": AdvertisedAddress("boot.kafka.test"), "broker_host": "B{node_id}.kafka.test"}


def only_user(proxy: Front) -> str:
    (session,) = proxy.listener.sessions
    return session.identity.user


async def refused(proxy: Front, tls: ssl.SSLContext, cause: str, name: str = "127.0.0.1") -> str:
    """Connect, be refused for ``cause``, and return how OpenSSL calls the alert that the client got or gave."""

    def connect() -> str:
        # Not by the loop: as clients too, asyncio and uvloop keep their alerts to themselves.
        try:
            with (
                socket.create_connection(("127.0.0.1", proxy.bootstrap_port), TIMEOUT_S) as plain,
                tls.wrap_socket(plain, server_hostname=name) as encrypted,
            ):
                encrypted.sendall(list_offsets(1))
                return "closed" if encrypted.recv(1) == b"" else "served"
        except ssl.SSLError as error:
            return error.reason
        except OSError:
            return "reset"

    said = await asyncio.to_thread(connect)
    await proxy.until_rejected(cause)
    return said


# ---------------------------------------------------------------------------------------------------------- handshakes


@VERSIONS
async def test_a_client_without_a_certificate_is_anonymous(pki: Pki, version: ssl.TLSVersion) -> None:
    context = pki.client()
    context.minimum_version = context.maximum_version = version
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with front(one, tls=pki.settings()) as proxy, client(proxy.port_1, context) as asking:
            assert await asking.ask(list_offsets(7)) == b"\0\0\0\7" + bytes(4)
            assert only_user(proxy) == "ANONYMOUS"
            (session,) = proxy.listener.sessions
            assert session.peer == "{}:{}".format(*asking.writer.get_extra_info("sockname"))


@VERSIONS
@pytest.mark.parametrize("wanted", ["requested", "required"])
async def test_a_certificate_names_the_user(pki: Pki, version: ssl.TLSVersion, wanted: str) -> None:
    context = pki.client("alice")
    context.minimum_version = context.maximum_version = version
    async with fake_broker() as one:
        settings = pki.settings(client_authentication=wanted)
        async with front(one, tls=settings) as proxy, client(proxy.bootstrap_port, context) as asking:
            await asking.ask(list_offsets(1))
            assert only_user(proxy).startswith("CN=alice,")


async def test_client_without_requested_certificate_is_anonymous(pki: Pki) -> None:
    async with fake_broker() as one:
        settings = pki.settings(client_authentication="requested")
        async with front(one, tls=settings) as proxy, client(proxy.bootstrap_port, pki.client()) as asking:
            await asking.ask(list_offsets(1))
            assert only_user(proxy) == "ANONYMOUS"


async def test_with_sasl_a_certificate_lets_in_and_names_nobody(pki: Pki) -> None:
    async with fake_broker() as one:
        options = {"tls": pki.settings(client_authentication="required"), "authentication": "sasl"}
        async with front(one, **options) as proxy, client(proxy.bootstrap_port, pki.client("alice")) as asking:
            await asking.ask(list_offsets(1))
            assert only_user(proxy) == "ANONYMOUS"


async def test_certificate_with_reserved_name_is_charged_as_reserved(pki: Pki) -> None:
    settings = pki.settings(client_authentication="required", principal_mapping_rules="RULE:^CN=(.*?),.*$/$1/")
    async with fake_broker() as one, front(one, tls=settings) as proxy:
        async with client(proxy.bootstrap_port, pki.client("alice")) as asking:
            await asking.ask(list_offsets(1))
            assert only_user(proxy) == "alice"
        await until(lambda: not proxy.listener.sessions)
        async with client(proxy.bootstrap_port, pki.client("sluice:token:abc")) as asking:
            await asking.ask(list_offsets(1))
            assert only_user(proxy) == "sluice:reserved"


async def test_a_certificate_whose_name_is_empty_is_held_by_the_quota_of_the_default_user(pki: Pki) -> None:
    """One with its names in the SAN alone, or a mapping rule with no result: the empty user is nobody to the quotas."""
    settings = pki.settings(client_authentication="required", principal_mapping_rules="RULE:^.+$//")
    async with fake_broker() as one, front(one, tls=settings) as proxy:
        default = Policy({Entity(user=Default.DEFAULT): {PRODUCER: 1024}})
        proxy.play.engine.apply(default, proxy.play.loop.now_ms)
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with client(proxy.bootstrap_port, pki.client("alice")) as asking:
            await asking.ask(produce(1, 20_000))
            assert only_user(proxy) == UNNAMED
            (usage,) = proxy.play.engine.usage(proxy.play.loop.now_ms)
            assert (usage.user, usage.charged_total > 20_000) == (UNNAMED, True)


async def test_a_certificate_that_names_nobody_is_refused(pki: Pki) -> None:
    settings = pki.settings(client_authentication="required", principal_mapping_rules="RULE:^CN=bob,.*$/bob/")
    async with fake_broker() as one, front(one, tls=settings) as proxy:
        await refused(proxy, pki.client("alice"), "principal_mapping")


async def test_refused_tls_client_is_counted_by_cause_and_gets_alert(pki: Pki) -> None:
    required = pki.settings(client_authentication="required")
    foreign = pki.client("alice", ca=trustme.CA())
    distrustful = ssl.create_default_context()
    old = pki.client("alice")
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    weak = pki.client("alice")
    weak.maximum_version = ssl.TLSVersion.TLSv1_2
    weak.set_ciphers("AES128-SHA")
    modern = pki.settings(client_authentication="required", minimum_version="TLSv1.3")
    cases = [
        (required, pki.client(), "client_certificate_missing", "TLSV13_ALERT_CERTIFICATE_REQUIRED"),
        (required, foreign, "client_certificate_invalid", "TLSV1_ALERT_UNKNOWN_CA"),
        (required, weak, "tls_cipher", "SSLV3_ALERT_HANDSHAKE_FAILURE"),
        (modern, old, "tls_version", "TLSV1_ALERT_PROTOCOL_VERSION"),
        (required, distrustful, "certificate_refused", "CERTIFICATE_VERIFY_FAILED"),  # its own alert, that is
    ]
    for settings, context, cause, alert in cases:
        async with fake_broker() as one, front(one, tls=settings) as proxy:
            assert await refused(proxy, context, cause) == alert


async def test_configured_tls_cipher_is_negotiated(pki: Pki) -> None:
    context = pki.client()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    settings = pki.settings(ciphers="ECDHE-ECDSA-CHACHA20-POLY1305")
    async with fake_broker() as one, front(one, tls=settings) as proxy, client(proxy.bootstrap_port, context) as asking:
        assert asking.writer.get_extra_info("cipher")[0] == "ECDHE-ECDSA-CHACHA20-POLY1305"


async def test_tls_context_forbids_compression_renegotiation_and_old_versions(pki: Pki) -> None:
    context = client_context(pki.settings())
    assert context.options & ssl.OP_NO_COMPRESSION
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


# ---------------------------------------------------------------------------------------------------------- resumption


def resumed(port: int, context: ssl.SSLContext, names: list[str]) -> list[bool]:
    """Connect under one name after the other with the first one's session; returns whether it was resumed."""
    session = None
    reused = []
    for name in names:
        with (
            socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=name, session=session) as tls,
        ):
            tls.sendall(list_offsets(1))
            assert len(tls.recv(100)) == 12
            session = session or tls.session
            reused.append(bool(tls.session_reused))
    return reused


@VERSIONS
async def test_a_resumed_session_has_its_user_and_its_broker(pki: Pki, version: ssl.TLSVersion) -> None:
    context = pki.client("alice")
    context.minimum_version = context.maximum_version = version
    users: list[str] = []
    async with fake_broker() as one, fake_broker() as two:
        one.brokers = {1: ("127.0.0.1", one.port), 2: ("127.0.0.1", two.port)}
        settings = pki.settings(client_authentication="required")
        async with front(one, tls=settings, **SNI) as proxy:
            begin = proxy.listener._arriving._begin

            def noted(arrival: Arrival, wire: ClientWire) -> Session:
                session = begin(arrival, wire)
                users.append(session.identity.user)
                return session

            proxy.listener._arriving._begin = noted
            names = ["b2.kafka.test", "b2.kafka.test", "b2.kafka.test"]
            assert await asyncio.to_thread(resumed, proxy.bootstrap_port, context, names) == [False, True, True]
            assert len(two.requests) == 3
            assert [user.split(",")[0] for user in users] == ["CN=alice"] * 3


async def test_no_session_outlives_a_change_of_the_authorities(pki: Pki) -> None:
    context = pki.client("alice")
    async with fake_broker() as one, front(one, tls=pki.settings(client_authentication="required")) as proxy:
        names = ["127.0.0.1"]
        assert await asyncio.to_thread(resumed, proxy.bootstrap_port, context, names * 2) == [False, True]
        trustme.CA().cert_pem.write_to_path(pki.ca_file)
        await proxy.listener.reload_tls()
        await refused(proxy, context, "client_certificate_invalid")


# ----------------------------------------------------------------------------------------------------------------- SNI


async def test_sni_host_selects_broker_on_shared_port(pki: Pki) -> None:
    context = pki.client()
    async with fake_broker() as one, fake_broker() as two:
        one.brokers = {1: ("127.0.0.1", one.port), 2: ("127.0.0.1", two.port)}
        async with front(one, tls=pki.settings(), **SNI) as proxy:
            before = len(one.requests)
            async with client(proxy.bootstrap_port, context, "b2.KAFKA.test") as to_two:
                await to_two.ask(list_offsets(1))
            assert (len(one.requests) - before, len(two.requests)) == (0, 1)
            async with client(proxy.bootstrap_port, context, "B1.kafka.test") as to_one:
                await to_one.ask(list_offsets(1))
            assert (len(one.requests) - before, len(two.requests)) == (1, 1)
            assert proxy.listener.addresses.told == {
                1: (b"B1.kafka.test", proxy.bootstrap_port),
                2: (b"B2.kafka.test", proxy.bootstrap_port),
            }


async def test_advertised_or_missing_sni_host_leads_to_any_broker(pki: Pki) -> None:
    nameless = pki.client()
    nameless.check_hostname = False
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with front(one, tls=pki.settings(), **SNI) as proxy:
            for context, name in ((pki.client(), "BOOT.kafka.test"), (nameless, "127.0.0.1")):  # an address is no SNI
                async with client(proxy.bootstrap_port, context, name) as asking:
                    await asking.ask(list_offsets(1))


@pytest.mark.parametrize("named", [True, False], ids=["host", "no host"])
async def test_produce_without_sni_at_a_listener_with_broker_host_is_refused_and_counted(pki: Pki, named: bool) -> None:
    """Bootstrap by IP address may stay; records would go to any broker."""
    context = pki.client()
    context.check_hostname = named
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with front(one, tls=pki.settings(), **SNI) as proxy:
            async with client(proxy.bootstrap_port, context, "b1.kafka.test" if named else "127.0.0.1") as asking:
                await asking.ask(request(3, 1, 9, b"\0\0\0\0"))
                asking.writer.write(produce(1, 100))
                assert await (asking.ask(b"") if named else asking.closed())
            assert proxy.rejected() == ({} if named else {"no_sni": 1})


@pytest.mark.parametrize("name", ["b3.kafka.test", "b01.kafka.test", "b1.kafka.test.example", "other.kafka.test"])
async def test_an_unknown_host_is_told_so_and_logged(pki: Pki, name: str) -> None:
    context = pki.client()
    context.check_hostname = False
    async with fake_broker() as one:
        with capture_logs() as logs:
            async with front(one, tls=pki.settings(), **SNI) as proxy:
                assert await refused(proxy, context, "unknown_sni", name) == "TLSV1_UNRECOGNIZED_NAME"
        (line,) = [line for line in logs if line["event"] == "connection closed"]
        assert repr(name) in line["error"]


async def test_a_host_that_is_not_ascii_is_refused_without_a_traceback(
    pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", seen.append)
    ignore_undecodable_names()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = pki.client().wrap_bio(incoming, outgoing, server_hostname="abcdefgh")
    with pytest.raises(ssl.SSLWantReadError):
        hello.do_handshake()
    async with fake_broker() as one, front(one, tls=pki.settings(), **SNI) as proxy:
        first = outgoing.read().replace(b"abcdefgh", b"ab\xffdefgh")
        async with client(proxy.bootstrap_port, first=first) as asking:
            assert not await asking.closed()  # an alert comes first
            await proxy.until_rejected("unknown_sni")
    assert seen == []
    sys.unraisablehook(SimpleNamespace(exc_value=ValueError("a bug"), object=None))
    assert len(seen) == 1


# -------------------------------------------------------------------------------------------------------------- reload


def served(port: int, pki: Pki) -> bytes:
    return ssl.get_server_certificate(("127.0.0.1", port)).encode()


async def test_new_files_are_served_and_old_connections_go_on(pki: Pki) -> None:
    async with (
        fake_broker() as one,
        front(one, tls=pki.settings()) as proxy,
        client(proxy.bootstrap_port, pki.client()) as old,
    ):
        await old.ask(list_offsets(1))
        before = await asyncio.to_thread(served, proxy.bootstrap_port, pki)
        pki.issue("127.0.0.1")
        await proxy.listener.reload_tls()
        after = await asyncio.to_thread(served, proxy.bootstrap_port, pki)
        assert before != after
        assert after.strip() in pki.certificate.read_bytes()
        await old.ask(list_offsets(2))
    assert proxy.stats.certificate_reloads == {("PLAIN", "ok"): 1}


def _another_key(pki: Pki) -> None:
    pki.ca.issue_cert("x").private_key_pem.write_to_path(pki.key)


BROKEN = {
    "key of another": (_another_key, "does not belong"),
    "certificate gone": (lambda pki: pki.certificate.unlink(), "tls.crt: no such file"),
    "key gone": (lambda pki: pki.key.unlink(), "tls.key: no such file"),
    "no PEM": (lambda pki: pki.certificate.write_text("hello"), "tls.crt"),
    "empty": (lambda pki: pki.key.write_bytes(b""), "tls.key"),
    "no authority": (lambda pki: pki.ca_file.write_text("hello"), "ca.pem: holds no certificate"),
    "authority gone": (lambda pki: pki.ca_file.unlink(), "ca.pem"),
}


@pytest.mark.parametrize("how", BROKEN)
async def test_broken_files_leave_the_old_ones_in_force(pki: Pki, how: str) -> None:
    break_it, reason = BROKEN[how]
    settings = pki.settings(client_authentication="requested")
    context = pki.client()
    async with fake_broker() as one, front(one, tls=settings) as proxy:
        assert proxy.listener.tls is not None
        before = proxy.listener.tls.context, proxy.listener.tls.expires_at_s
        break_it(pki)
        with capture_logs() as logs:
            await proxy.listener.reload_tls()
        assert (proxy.listener.tls.context, proxy.listener.tls.expires_at_s) == before
        assert proxy.stats.certificate_reloads == {("PLAIN", "failed"): 1}
        (line,) = [line for line in logs if "the old one stays in force" in line["event"]]
        assert reason in line["error"]
        async with client(proxy.bootstrap_port, context) as asking:
            await asking.ask(list_offsets(1))
        with pytest.raises(OSError, match=reason):
            client_context(settings)


async def test_the_expiry_is_that_of_the_first_to_expire(pki: Pki) -> None:
    ends = datetime.datetime(2030, 1, 2, tzinfo=datetime.UTC)
    issued = pki.ca.issue_cert("127.0.0.1", not_after=ends)
    pki.certificate.write_bytes(issued.cert_chain_pems[0].bytes() + pki.ca.cert_pem.bytes())
    issued.private_key_pem.write_to_path(pki.key)
    async with front(tls=pki.settings()) as proxy:
        assert proxy.stats.certificate_expiry_s == {"PLAIN": ends.timestamp()}
