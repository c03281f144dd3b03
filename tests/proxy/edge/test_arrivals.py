"""What clients say before their first frame, over real sockets: PROXY headers, garbage, nothing at all."""

import asyncio
import itertools
import socket
from contextlib import AsyncExitStack
from ipaddress import ip_network

import pytest
from structlog.testing import capture_logs

from config.listener import ProxyProtocol
from proxy.edge.arriving import Pacer
from proxy.edge.open_sessions import drain
from proxy.edge.proxy_protocol import V2_SIGNATURE
from tests.harness.fake_broker import fake_broker
from tests.harness.polling import until
from tests.proxy.front import TIMEOUT_S, client, front
from tests.proxy.pki import Pki
from tests.proxy.playbook import list_offsets, request
from tests.proxy.sabotage import Sabotage

pytestmark = pytest.mark.asyncio

TRUSTED = ProxyProtocol(networks=(ip_network("127.0.0.0/8"),))
V1 = b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 9092\r\n"
V2 = V2_SIGNATURE + b"\x21\x11\0\x0f" + bytes([192, 0, 2, 7, 198, 51, 100, 1]) + b"\xdc\x04\x23\x84" + b"\x04\0\0"
V6 = V2_SIGNATURE + b"\x21\x21\0\x24" + bytes(10) + b"\xff\xff\xc0\0\2\7" + bytes(16) + b"\xdc\x04\x23\x84"


# ---------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("first", [list_offsets(1), b"GET / HTTP/1.1\r\n\r\n", b"\x80", b"\x16\x04\x01", b"\0"])
async def test_plaintext_at_tls_port_is_rejected_as_not_tls(pki: Pki, first: bytes) -> None:
    async with fake_broker() as one, front(one, tls=pki.settings()) as proxy:
        async with client(proxy.bootstrap_port, first=first) as asking:
            assert await asking.closed()
        await proxy.until_rejected("not_tls")


@pytest.mark.parametrize("first", [b"\x16\x03\x01\x00\x05hello", b"\x16\x03\x03\xff\xff" + bytes(100)])
async def test_malformed_tls_hello_is_rejected_as_failed_handshake(pki: Pki, first: bytes) -> None:
    async with fake_broker() as one, front(one, tls=pki.settings()) as proxy:
        async with client(proxy.bootstrap_port, first=first) as asking:
            await asyncio.wait_for(asking._reader.read(), TIMEOUT_S)  # perhaps an alert, then the end
        await proxy.until_rejected("tls_handshake")


async def test_tls_client_at_plaintext_port_is_rejected_and_counted(pki: Pki) -> None:
    async with fake_broker() as one, front(one) as proxy:
        with pytest.raises(OSError):  # noqa: PT011  a reset, an end within the handshake: the loop's choice
            async with client(proxy.bootstrap_port, pki.client()):
                pass
        await proxy.until_rejected("tls_on_plaintext")


async def test_client_leaving_during_tls_handshake_is_counted_as_rejected(pki: Pki) -> None:
    async with fake_broker() as one, front(one, tls=pki.settings()) as proxy:
        async with client(proxy.bootstrap_port, first=b"\x16\x03\x01\x02\0\x01"):
            pass
        await proxy.until_rejected("tls_handshake")


async def test_bytes_of_rejected_client_are_not_logged(pki: Pki) -> None:
    secret = b"\0alice\0canary-secret"
    async with fake_broker() as one:
        with capture_logs() as logs:
            for options in ({"tls": pki.settings()}, {"proxy_protocol": TRUSTED}):
                async with front(one, **options) as proxy:
                    async with client(proxy.bootstrap_port, first=request(36, 1, 1, secret)) as asking:
                        assert await asking.closed()
                    async with client(proxy.bootstrap_port, first=b"PROXY TCP4 canary-secret 1 2 3\r\n") as asking:
                        assert await asking.closed()
        assert any(line["event"] == "connection closed" for line in logs)
        assert "canary" not in repr(logs)


# ----------------------------------------------------------------------------------------------------------- deadlines


@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01\x02\0\x01\0\x01\xfc"], ids=["silence", "half a hello"])
async def test_a_tls_handshake_has_a_deadline(pki: Pki, first: bytes) -> None:
    async with fake_broker() as one, front(one, tls=pki.settings(), authentication_timeout_s=0.05) as proxy:
        async with client(proxy.bootstrap_port, first=first) as waiting:
            assert await waiting.closed()
        await proxy.until_rejected("authentication_timeout")


async def test_a_client_that_drips_bytes_gains_no_time(pki: Pki) -> None:
    """The deadline is absolute: an idle timer would start again with every byte."""
    options = {"tls": pki.settings(), "proxy_protocol": TRUSTED, "authentication_timeout_s": 0.2}
    async with fake_broker() as one, front(one, **options) as proxy:
        async with client(proxy.bootstrap_port) as dripping:
            closing = asyncio.ensure_future(dripping.closed())
            for byte in b"PROXY UNKNOWN " + b"x" * 80:
                if closing.done():
                    break
                dripping.writer.write(bytes([byte]))
                await asyncio.sleep(0.01)
            assert await closing
        await proxy.until_rejected("authentication_timeout")


async def test_sasl_has_the_same_deadline() -> None:
    async with fake_broker() as one:
        options = {"authentication": "sasl", "authentication_timeout_s": 0.1}
        async with front(one, **options) as proxy, client(proxy.bootstrap_port) as waiting:
            await waiting.ask(request(18, 0, 1))
            assert await waiting.closed()
            await proxy.until_rejected("authentication_timeout")
            assert not proxy.alarms.number


@pytest.mark.long
async def test_authenticated_or_closed_client_has_no_authentication_deadline() -> None:
    async with fake_broker() as one:
        options = {"authentication": "sasl", "authentication_timeout_s": 0.6}
        async with front(one, **options) as proxy:
            async with client(proxy.bootstrap_port) as leaving:
                await leaving.ask(request(18, 0, 1))
            async with client(proxy.bootstrap_port) as staying:
                await staying.ask(list_offsets(1))  # answered: the broker demands nothing of this client
                await asyncio.sleep(0.7)
                await staying.ask(list_offsets(2))
            assert proxy.rejected() == {}
            assert not proxy.alarms.number


@pytest.mark.long
@pytest.mark.parametrize("first", [b"", list_offsets(1)[:13]], ids=["silence", "half a head"])
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "TLS"])
async def test_a_first_request_has_the_same_deadline(pki: Pki, first: bytes, encrypted: bool) -> None:
    tls, context = (pki.settings(), pki.client()) if encrypted else (None, None)
    async with fake_broker() as one, front(one, tls=tls, authentication_timeout_s=0.3) as proxy:
        async with client(proxy.bootstrap_port, context) as waiting:
            waiting.writer.write(first)
            assert await waiting.closed()
        await proxy.until_rejected("authentication_timeout")
        assert one.connections == []


# ---------------------------------------------------------------------------------------------------- limits and drain


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "TLS"])
async def test_silent_connections_cost_no_broker_and_leave_room(pki: Pki, encrypted: bool) -> None:
    """The oldest goes, of the address that has most of them: who speaks at once is served."""
    tls, context = (pki.settings(), pki.client()) if encrypted else (None, None)
    async with fake_broker() as one, AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(front(one, tls=tls, limits={"connections_before_request": 5}))
        proxy.slots.grace_s = 0.0
        silent = [await stack.enter_async_context(client(proxy.bootstrap_port)) for _ in range(20)]
        await until(lambda: proxy.rejected().get("connections_before_request", 0), equals=15)
        for gone in silent[:15]:
            assert await gone.closed()
        assert (proxy.slots.taken, proxy.slots.before_request, len(one.connections)) == (5, 5, 0)
        speaking = await stack.enter_async_context(client(proxy.bootstrap_port, context))
        await speaking.ask(list_offsets(1))
        assert (proxy.slots.taken, proxy.slots.before_request, len(one.connections)) == (5, 4, 1)


async def test_a_flood_within_one_turn_of_the_loop_leaves_nothing_behind() -> None:
    """Connections that make room before anybody has looked at them are closed, too."""
    async with fake_broker() as one, front(one, limits={"connections_before_request": 3}) as proxy:
        proxy.slots.grace_s = 0.0
        flood = [socket.create_connection(("127.0.0.1", proxy.bootstrap_port)) for _ in range(40)]
        await until(lambda: proxy.rejected().get("connections_before_request", 0), equals=37)
        await until(proxy.stats.sessions.total, equals=3)
        for gone in flood[:37]:
            gone.settimeout(TIMEOUT_S)
            assert gone.recv(1) == b""
        for each in flood:
            each.close()
        await until(lambda: (proxy.slots.taken, proxy.stats.sessions.total()), equals=(0, 0))
        await until(lambda: proxy.listener._arriving.arriving, equals={})


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "TLS"])
async def test_connections_per_ip_limit_closes_the_next_connection(pki: Pki, encrypted: bool) -> None:
    tls, context = (pki.settings(), pki.client()) if encrypted else (None, None)
    async with fake_broker() as one, AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(front(one, tls=tls, limits={"connections_per_ip": 2}))
        first = await stack.enter_async_context(client(proxy.bootstrap_port, context))
        await first.ask(list_offsets(1))
        second = await stack.enter_async_context(client(proxy.bootstrap_port))
        await until(lambda: proxy.slots.taken, equals=2)
        async with client(proxy.bootstrap_port) as third:
            assert await third.closed()
        assert proxy.rejected() == {"connections_per_ip": 1}
        second.writer.close()
        await until(lambda: proxy.slots.taken, equals=1)
        async with client(proxy.bootstrap_port, context) as again:
            await again.ask(list_offsets(2))


async def test_behind_a_load_balancer_an_address_is_the_one_that_it_names() -> None:
    limits = {"connections_per_ip": 2, "connections_per_ip_overrides": {"192.0.2.7": 1}}
    async with fake_broker() as one, AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(front(one, proxy_protocol=TRUSTED, limits=limits))
        seven = await stack.enter_async_context(client(proxy.bootstrap_port, first=V1))
        await seven.ask(list_offsets(1))
        for header in (V2, V6):
            async with client(proxy.bootstrap_port, first=header) as another:
                assert await another.closed()
        for number in (1, 2):
            other = V1.replace(b"192.0.2.7", b"192.0.2.8")
            eight = await stack.enter_async_context(client(proxy.bootstrap_port, first=other))
            await eight.ask(list_offsets(number))
        assert proxy.rejected() == {"connections_per_ip": 2}


async def test_a_place_is_taken_until_the_descriptors_are_closed() -> None:
    async with fake_broker() as one:
        one.padding = 100_000
        async with front(one) as proxy, client(proxy.bootstrap_port) as slow:
            for number in range(100):
                slow.writer.write(list_offsets(number))
            await until(lambda: len(proxy.listener.sessions), equals=1)
            (session,) = proxy.listener.sessions
            await until(lambda: session.unread)
            session.close()
            assert (len(proxy.listener.sessions), proxy.slots.taken) == (0, 1)
            slow.writer.transport.abort()
            await until(lambda: proxy.slots.taken, equals=0)


async def test_handshakes_beyond_limit_per_loop_turn_wait_in_order() -> None:
    pace = Pacer(2)
    passed: list[int] = []

    async def handshake(number: int) -> None:
        await pace.turn()
        passed.append(number)

    tasks = [asyncio.ensure_future(handshake(number)) for number in range(7)]
    counts = []
    await asyncio.sleep(0)
    tasks[3].cancel()
    while len(passed) < 6:
        counts.append(len(passed))
        await asyncio.sleep(0)
    assert passed == [0, 1, 2, 4, 5, 6]
    assert max(later - earlier for earlier, later in itertools.pairwise([0, *counts, 6])) <= 2
    await asyncio.gather(*tasks, return_exceptions=True)
    await pace.turn()


async def test_handshakes_count_for_the_limit(pki: Pki) -> None:
    async with (
        fake_broker() as one,
        front(one, tls=pki.settings(), limit=1) as proxy,
        client(proxy.bootstrap_port, first=b"\x16\x03"),
    ):
        await until(proxy.stats.sessions.total)
        async with client(proxy.bootstrap_port) as second:
            assert await second.closed()
        assert proxy.stats.connections["PLAIN", "refused_limit"] == 1


@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01\x02\0\x01", V1, V1 + b"\x16\x03\x01\x02\0\x01"])
async def test_a_drain_cuts_off_who_has_no_session_yet(pki: Pki, first: bytes) -> None:
    protocol = TRUSTED if first.startswith(b"PROXY") else None
    async with fake_broker() as one, front(one, tls=pki.settings(), proxy_protocol=protocol) as proxy:
        async with client(proxy.bootstrap_port, first=first) as greeting:
            await until(proxy.stats.sessions.total)
            await asyncio.sleep(0.02)
            proxy.listener.close()
            assert await drain(list(proxy.listener.sessions), TIMEOUT_S) == 0
            assert await greeting.closed()
        assert proxy.rejected() == {}
        assert proxy.stats.sessions.total() == 0


async def test_handshakes_go_on_after_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    pace = Pacer(1)
    sabotage = Sabotage(monkeypatch, "let the next pass")
    async with asyncio.timeout(TIMEOUT_S):
        for _ in range(5):
            await pace.turn()
    assert sabotage.met
