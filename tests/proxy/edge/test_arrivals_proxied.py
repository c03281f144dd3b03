"""The PROXY header of load balancers: who has to send one, who must not, and what becomes of a bad one."""

import asyncio
import itertools
import socket
from ipaddress import ip_network

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from config.listener import ProxyProtocol
from protocol.errors import ProtocolError
from proxy.edge.proxy_protocol import V2_SIGNATURE, read_header
from proxy.edge.stats import LeftEarly
from tests.harness.examples import examples
from tests.harness.fake_broker import fake_broker
from tests.harness.polling import until
from tests.proxy.front import TIMEOUT_S, Front, client, front
from tests.proxy.pki import Pki
from tests.proxy.playbook import list_offsets

pytestmark = pytest.mark.asyncio

TRUSTED = ProxyProtocol(networks=(ip_network("127.0.0.0/8"),))
ELSEWHERE = ProxyProtocol(networks=(ip_network("10.0.0.0/8"),))
V1 = b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 9092\r\n"
V2 = V2_SIGNATURE + b"\x21\x11\0\x0f" + bytes([192, 0, 2, 7, 198, 51, 100, 1]) + b"\xdc\x04\x23\x84" + b"\x04\0\0"
V6 = V2_SIGNATURE + b"\x21\x21\0\x24" + bytes(10) + b"\xff\xff\xc0\0\2\7" + bytes(16) + b"\xdc\x04\x23\x84"
LOCAL = V2_SIGNATURE + b"\x20\0\0\0"
UNKNOWN = b"PROXY UNKNOWN\r\n"
SOURCE = "192.0.2.7:56324"


def only_peer(proxy: Front) -> str:
    (session,) = proxy.listener.sessions
    return session.peer


@pytest.mark.parametrize("header", [V1, V2, V6], ids=["v1", "v2", "v2, an IPv4 address as IPv6"])
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "TLS"])
async def test_the_header_says_who_the_client_is(pki: Pki, header: bytes, encrypted: bool) -> None:
    tls, context = (pki.settings(), pki.client()) if encrypted else (None, None)
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with (
            front(one, proxy_protocol=TRUSTED, tls=tls) as proxy,
            client(proxy.port_1, context, first=header) as asking,
        ):
            assert await asking.ask(list_offsets(7)) == b"\0\0\0\7" + bytes(4)
            assert only_peer(proxy) == SOURCE


@pytest.mark.parametrize("header", [LOCAL, UNKNOWN], ids=["LOCAL", "UNKNOWN"])
async def test_a_connection_of_the_load_balancers_own_keeps_its_address(header: bytes) -> None:
    async with (
        fake_broker() as one,
        front(one, proxy_protocol=TRUSTED) as proxy,
        client(proxy.bootstrap_port, first=header) as asking,
    ):
        await asking.ask(list_offsets(1))
        assert only_peer(proxy) == "{}:{}".format(*asking.writer.get_extra_info("sockname"))


async def test_request_in_same_segment_as_proxy_header_is_answered() -> None:
    async with (
        fake_broker() as one,
        front(one, proxy_protocol=TRUSTED) as proxy,
        client(proxy.bootstrap_port, first=V2 + list_offsets(7)) as asking,
    ):
        assert await asking.ask(b"") == b"\0\0\0\7" + bytes(4)


@pytest.mark.parametrize("first", [list_offsets(1), b"\x16\x03\x01\x02\0", b"GET / HTTP/1.1\r\n\r\n"])
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "TLS"])
async def test_from_a_listed_network_the_header_is_required(pki: Pki, first: bytes, encrypted: bool) -> None:
    tls = pki.settings() if encrypted else None
    async with fake_broker() as one, front(one, proxy_protocol=TRUSTED, tls=tls) as proxy:
        async with client(proxy.bootstrap_port, first=first) as asking:
            assert await asking.closed()
        await proxy.until_rejected("proxy_protocol_missing")


async def test_malformed_proxy_header_is_rejected_as_invalid() -> None:
    async with fake_broker() as one, front(one, proxy_protocol=TRUSTED) as proxy:
        async with client(proxy.bootstrap_port, first=b"PROXY TCP4 not-an-address\r\n") as asking:
            assert await asking.closed()
        await proxy.until_rejected("proxy_protocol_invalid")


async def test_truncated_proxy_header_is_rejected_as_invalid() -> None:
    async with fake_broker() as one, front(one, proxy_protocol=TRUSTED) as proxy:
        async with client(proxy.bootstrap_port, first=V2[:20]):
            pass
        await proxy.until_rejected("proxy_protocol_invalid")


@pytest.mark.parametrize("header", [V1, V2], ids=["v1", "v2"])
@pytest.mark.parametrize("protocol", [ELSEWHERE, None], ids=["not from here", "from nowhere"])
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "TLS"])
async def test_proxy_header_from_unlisted_network_is_rejected(
    pki: Pki, header: bytes, protocol: ProxyProtocol | None, encrypted: bool
) -> None:
    tls = pki.settings() if encrypted else None
    async with fake_broker() as one, front(one, proxy_protocol=protocol, tls=tls) as proxy:
        async with client(proxy.bootstrap_port, first=header) as asking:
            assert await asking.closed()
        await proxy.until_rejected("proxy_protocol_not_allowed")


async def test_client_from_unlisted_network_is_served_without_header(pki: Pki) -> None:
    async with (
        fake_broker() as one,
        front(one, proxy_protocol=ELSEWHERE, tls=pki.settings()) as proxy,
        client(proxy.bootstrap_port, pki.client()) as asking,
    ):
        await asking.ask(list_offsets(1))
        assert only_peer(proxy).startswith("127.0.0.1:")


@pytest.mark.parametrize("options", [{"proxy_protocol": TRUSTED}, {"tls": None}, {}], ids=["PROXY", "TLS", "plain"])
async def test_a_health_check_is_no_error(pki: Pki, options: dict[str, object]) -> None:
    if "tls" in options:
        options = {"tls": pki.settings()}
    async with fake_broker() as one:
        with capture_logs() as logs:
            async with front(one, **options) as proxy:
                for _ in range(3):
                    async with client(proxy.bootstrap_port):
                        pass
                await until(
                    lambda: not proxy.stats.sessions.total() and proxy.stats.connections["PLAIN", "accepted"] >= 3
                )
                assert proxy.rejected() == {}
                assert proxy.stats.connections["PLAIN", "left_early"] == 3
                assert (one.requests, one.connections) == ([], [])
        assert [line for line in logs if line["log_level"] in ("warning", "error")] == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([V1, V2, V6, LOCAL, UNKNOWN]), st.lists(st.integers(0, 60), max_size=5), st.binary(max_size=100))
async def test_the_header_is_read_exactly_however_it_is_cut(header: bytes, cuts: list[int], behind: bytes) -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    try:
        reading = asyncio.ensure_future(read_header(near))
        data = header + behind
        borders = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
        for start, end in itertools.pairwise(borders):
            far.send(data[start:end])
            for _ in range(4):
                await asyncio.sleep(0)
        async with asyncio.timeout(TIMEOUT_S):
            assert (await reading).length_bytes == len(header)
        far.shutdown(socket.SHUT_WR)
        assert b"".join(iter(lambda: near.recv(1000), b"")) == behind
    finally:
        near.close()
        far.close()


@examples(2)
@given(st.sampled_from([b"", b"PROXY ", b"PROXY TCP4 ", V2_SIGNATURE, V2[:14]]), st.binary(max_size=60))
async def test_any_bytes_are_a_header_or_refused(beginning: bytes, rest: bytes) -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    try:
        far.send(beginning + rest + b" ")
        far.close()
        async with asyncio.timeout(TIMEOUT_S):
            try:
                header = await read_header(near)
            except (ProtocolError, LeftEarly):
                return
        left = b"".join(iter(lambda: near.recv(1000), b""))
        assert header.length_bytes + len(left) == len(beginning + rest) + 1
    finally:
        near.close()
