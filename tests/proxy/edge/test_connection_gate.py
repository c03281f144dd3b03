"""Connection rates over real sockets: who waits in the backlog, who is held unread, and who notices nothing of it.

Rates go by a clock that stands still; only the wait of an acceptor, which tests choose short, is real.
"""

import socket
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from functools import partial
from ipaddress import ip_network

import pytest
from structlog.testing import capture_logs

from config.listener import ProxyProtocol
from config.units import AdvertisedAddress
from proxy.edge.proxy_protocol import V2_SIGNATURE
from proxy.edge.stats import ThrottleTotals
from proxy.usage.addresses import Addresses
from quotas.connections import KIND
from quotas.entities import Default, Entity
from quotas.exemptions import Exemptions
from quotas.policy import Policy
from tests.harness.fake_broker import FakeBroker, fake_broker
from tests.harness.polling import until
from tests.proxy.front import TIMEOUT_S, Front, client, front
from tests.proxy.pki import Pki
from tests.proxy.playbook import list_offsets

pytestmark = pytest.mark.asyncio

ONE_A_SECOND = Policy({Entity(ip=Default.DEFAULT): {KIND: 1}})
BURST = 10
"""What one a second allows at once."""
TRUSTED = ProxyProtocol(networks=(ip_network("127.0.0.9/32"),))
V2 = V2_SIGNATURE + b"\x21\x21\0\x24"


def header(address: bytes) -> bytes:
    """Return a PROXY header of version 2 for an IPv6 address."""
    return V2 + address + bytes(16) + b"\xdc\x04\x23\x84"


def connect(port: int, source: str = "127.0.0.1", first: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), TIMEOUT_S, source_address=(source, 0))
    connection.setblocking(False)
    connection.send(first)
    return connection


@contextmanager
def connected(port: int, number: int, source: str = "127.0.0.1", first: bytes = b"") -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(connect(port, source, first)) for _ in range(number)]


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def closed(connections: Iterable[socket.socket]) -> int:
    return sum(map(is_closed, connections))


def refused(proxy: Front) -> int:
    return proxy.rejected().get("connection_rate_per_ip", 0)


def has_refused(proxy: Front, number: int) -> bool:
    return refused(proxy) == number


def came(proxy: Front) -> int:
    return proxy.stats.connections["PLAIN", "accepted"]


@asynccontextmanager
async def serving(**options: object) -> AsyncIterator[tuple[FakeBroker, Front]]:
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with front(one, **options) as proxy:
            yield one, proxy
            await until(lambda: not proxy.slots.taken)


# ----------------------------------------------------------------------------------------------------------- addresses


async def test_an_address_that_comes_too_often_is_held_unread_and_then_closed() -> None:
    async with serving(policy=ONE_A_SECOND) as (one, proxy):
        with connected(proxy.port_1, BURST) as served, connected(proxy.port_1, 3, first=list_offsets(1)) as held:
            await until(lambda: refused(proxy), equals=3)
            assert (came(proxy), proxy.slots.taken) == (BURST, BURST)
            assert proxy.play.throttling.queue_sizes()[KIND] == 3
            proxy.play.loop.advance(999)
            assert closed(held) == 0
            proxy.play.loop.advance(1)  # 11 in ten seconds at one a second: a second too early
            await until(lambda: closed(held), equals=3)
            assert closed(served) == 0
            assert proxy.play.throttling.queue_sizes()[KIND] == 0
        assert one.requests == [], "nothing of theirs was read"
        assert proxy.stats.ip_throttles == {"PLAIN": ThrottleTotals(3, 3000)}
        assert proxy.listener._accounts.refused == 3


async def test_every_address_has_its_own_rate_and_those_that_are_served_notice_nothing() -> None:
    async with serving(policy=ONE_A_SECOND) as (_, proxy), client(proxy.port_1) as before:
        await before.ask(list_offsets(1))
        for storm in range(2, 22):
            with connected(proxy.port_1, 2 * BURST, f"127.0.0.{storm}"):
                await until(partial(has_refused, proxy, BURST * (storm - 1)))
                await before.ask(list_offsets(storm))
        async with client(proxy.port_1) as newcomer:
            await newcomer.ask(list_offsets(1))
        assert came(proxy) == 20 * BURST + 2


async def test_refused_reconnects_do_not_count_for_address_or_listener_rate() -> None:
    """Who is refused does not count; who waits his time is served again."""
    async with serving(policy=ONE_A_SECOND, listener_rate=100) as (_, proxy):
        for again in range(20):
            with connected(proxy.port_1, BURST):
                await until(partial(has_refused, proxy, BURST * again))
        assert came(proxy) == BURST
        assert proxy.stats.accept_throttles == {}, "190 refused ones are not in the rate of the listener"
        proxy.play.loop.advance(11_000)
        with connected(proxy.port_1, BURST):
            await until(lambda: came(proxy), equals=2 * BURST)


async def test_an_exempt_network_is_held_by_no_quota_and_by_the_limits_that_are_none() -> None:
    async with serving(policy=ONE_A_SECOND, listener_rate=10) as (_, proxy):
        proxy.listener._accounts.exemptions = Exemptions(networks=[ip_network("127.0.0.2/32")])
        with connected(proxy.port_1, 100, "127.0.0.2"):
            await until(lambda: came(proxy), equals=100)
            with connect(proxy.port_1, "127.0.0.2"):
                await until(lambda: proxy.stats.accept_throttles)
        assert refused(proxy) == 0
        assert list(proxy.gate.usage_of_addresses()) == []


async def test_a_changed_quota_holds_for_the_next_connection() -> None:
    async with serving() as (_, proxy):
        with connected(proxy.port_1, 5 * BURST):
            await until(lambda: came(proxy), equals=5 * BURST)
        proxy.gate.apply(Policy({Entity(ip="127.0.0.1"): {KIND: 1}}))
        with connected(proxy.port_1, BURST + 1):
            await until(lambda: refused(proxy), equals=1)
        proxy.gate.apply(Policy())
        async with client(proxy.port_1) as again:
            await again.ask(list_offsets(1))


async def test_too_many_that_are_held_go_at_once_the_oldest_first() -> None:
    async with serving(policy=ONE_A_SECOND) as (_, proxy):
        proxy.gate.held.most = 5
        with connected(proxy.port_1, BURST), connected(proxy.port_1, 12) as held:
            await until(lambda: closed(held), equals=7)
            assert [is_closed(each) for each in held] == [True] * 7 + [False] * 5
            assert proxy.play.throttling.queue_sizes()[KIND] == 5
            proxy.gate.held.close()
            await until(lambda: closed(held), equals=12)
            assert proxy.play.throttling.queue_sizes()[KIND] == 0


async def test_a_log_line_says_which_quota_it_was() -> None:
    with capture_logs() as logs:
        async with serving(policy=ONE_A_SECOND) as (_, proxy):
            with connected(proxy.port_1, BURST + 50):
                await until(lambda: refused(proxy), equals=50)
    (line,) = [line for line in logs if line.get("cause") == "connection_rate_per_ip"]
    assert line["error"] == "more than 1 connections a second (connection_creation_rate of ip=<default>)"


# ------------------------------------------------------------------------------------------------------ PROXY protocol

MAPPED = bytes(10) + b"\xff\xff\xc0\0\2\7"


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "TLS"])
async def test_behind_a_load_balancer_the_address_is_the_one_that_it_names(pki: Pki, encrypted: bool) -> None:
    """192.0.2.7 in IPv6 clothes, under a quota for the IPv4 address; the load balancer's own is not meant."""
    limits = Policy({Entity(ip="192.0.2.7"): {KIND: 1}, Entity(ip="127.0.0.9"): {KIND: 1}})
    tls = pki.settings() if encrypted else None
    async with serving(policy=limits, proxy_protocol=TRUSTED, tls=tls) as (_, proxy):
        with (
            connected(proxy.port_1, BURST, "127.0.0.9", header(MAPPED)),
            connected(proxy.port_1, 2 * BURST, "127.0.0.9", header(bytes(15) + b"\1")) as others,
        ):
            await until(lambda: [each.rate for each in proxy.gate.usage_of_addresses()], equals=[1.0])
            with connected(proxy.port_1, 3, "127.0.0.9", header(MAPPED)) as held:
                await until(lambda: refused(proxy), equals=3)
                await until(lambda: proxy.slots.taken, equals=3 * BURST)
                assert closed(held) == 0
                proxy.play.loop.advance(1000)
                await until(lambda: closed(held), equals=3)
            assert closed(others) == 0
        await until(lambda: not proxy.slots.taken and not proxy.stats.sessions.total())


async def test_a_million_addresses_of_one_network_are_not_a_million_bursts() -> None:
    async with serving(policy=ONE_A_SECOND, proxy_protocol=TRUSTED, limit=2000) as (_, proxy):
        for number in range(300):
            connect(proxy.port_1, "127.0.0.9", header(b"\x20\x01" + bytes(12) + number.to_bytes(2, "big"))).close()
        await until(lambda: came(proxy), equals=300)
        await until(lambda: refused(proxy), equals=300 - 256 - BURST)


async def test_connection_without_proxy_header_counts_for_listener_rate_only() -> None:
    async with serving(policy=ONE_A_SECOND, proxy_protocol=TRUSTED) as (_, proxy):
        with connected(proxy.port_1, 3 * BURST, "127.0.0.9"):
            await until(lambda: came(proxy), equals=3 * BURST)
            assert proxy.gate.usage()[1].rate == 3.0
        assert refused(proxy) == 0


# ------------------------------------------------------------------------------------------------------------- brokers


@asynccontextmanager
async def two_brokers(**options: object) -> AsyncIterator[tuple[list[FakeBroker], Front]]:
    async with fake_broker() as one, fake_broker() as two:
        one.brokers = two.brokers = {1: ("127.0.0.1", one.port), 2: ("127.0.0.1", two.port)}
        async with front(one, **options) as proxy:
            yield [one, two], proxy


async def test_an_address_has_its_rate_at_each_broker_and_from_the_bootstrap_port_no_more() -> None:
    async with two_brokers(policy=ONE_A_SECOND) as (_, proxy):
        with connected(proxy.port_1, BURST + 3):
            await until(lambda: refused(proxy), equals=3)
        with connected(proxy.bootstrap_port, 2 * BURST):  # in turn: half of them for the broker that is full
            await until(lambda: refused(proxy), equals=3 + BURST)
        with connected(proxy.port_2, 3), connected(proxy.bootstrap_port, 4):
            await until(lambda: refused(proxy), equals=3 + BURST + 7)
        assert came(proxy) == 2 * BURST


@pytest.mark.parametrize("is_down", [False, True])
async def test_a_bootstrap_session_gets_the_broker_that_it_was_counted_for(is_down: bool) -> None:
    async with two_brokers(policy=ONE_A_SECOND) as (brokers, proxy):
        if is_down:
            proxy.cluster.brokers[2].reachable = False
        for number in range(6):
            async with client(proxy.bootstrap_port) as asking:
                await asking.ask(list_offsets(number))
        rates = {each.broker: each.rate * 10 for each in proxy.gate.usage_of_addresses()}
        assert rates == ({1: 6.0} if is_down else {1: 3.0, 2: 3.0})
        served = [len([request for request in each.requests if request[:2] == b"\0\2"]) for each in brokers]
        assert served == [rates.get(1), rates.get(2, 0)]


async def test_behind_one_tls_port_a_connection_counts_for_the_broker_that_it_names(pki: Pki) -> None:
    hosts = {"advertise": AdvertisedAddress("boot.kafka.test"), "broker_host": "b{node_id}.kafka.test"}
    async with two_brokers(policy=ONE_A_SECOND, tls=pki.settings(), **hosts) as (_, proxy):
        for name in ("b1", "b2"):
            for number in range(BURST):
                async with client(proxy.bootstrap_port, pki.client(), f"{name}.kafka.test") as asking:
                    await asking.ask(list_offsets(number))
        assert {each.broker: each.rate for each in proxy.gate.usage_of_addresses()} == {None: 0.0, 1: 1.0, 2: 1.0}
        async with client(proxy.bootstrap_port, pki.client(), "b1.kafka.test") as late:
            late.writer.write(list_offsets(1))
            await until(lambda: refused(proxy), equals=1)
            assert proxy.play.throttling.queue_sizes()[KIND] == 1
            proxy.play.loop.advance(1000)
            assert await late.closed()
        await until(lambda: not proxy.slots.taken)
        assert {each.broker: each.rate for each in proxy.gate.usage_of_addresses()} == {None: 0.1, 1: 1.0, 2: 1.0}


async def test_behind_one_tls_port_silent_connections_have_a_rate_too(pki: Pki) -> None:
    hosts = {"advertise": AdvertisedAddress("boot.kafka.test"), "broker_host": "b{node_id}.kafka.test"}
    async with two_brokers(policy=ONE_A_SECOND, tls=pki.settings(), **hosts) as (_, proxy):
        with connected(proxy.bootstrap_port, BURST + 3):
            await until(lambda: refused(proxy), equals=3)
        await until(lambda: not proxy.slots.taken)


async def test_behind_one_tls_port_an_address_has_its_number_at_each_broker(pki: Pki) -> None:
    hosts = {"advertise": AdvertisedAddress("boot.kafka.test"), "broker_host": "b{node_id}.kafka.test"}
    limits = {"connections_per_ip": 1}
    async with two_brokers(limits=limits, tls=pki.settings(), **hosts) as (_, proxy), AsyncExitStack() as stack:
        for name in ("b1", "b2"):
            served = await stack.enter_async_context(client(proxy.bootstrap_port, pki.client(), f"{name}.kafka.test"))
            await served.ask(list_offsets(1))
        async with client(proxy.bootstrap_port, pki.client(), "b2.kafka.test") as another:
            another.writer.write(list_offsets(1))
            assert await another.closed()
        await until(proxy.rejected, equals={"connections_per_ip": 1})


# ------------------------------------------------------------------------------------------------ listener and proxy


def fill(proxy: Front, number: int = 99) -> None:
    """Use up what ten a second allow at once, but for one. With 200, whoever comes waits for a second."""
    for _ in range(number):
        proxy.gate.delay_ms("PLAIN")


@pytest.mark.long
@pytest.mark.parametrize("limit", ["listener_rate", "connection_rate"])
async def test_connections_beyond_the_rate_stay_in_the_backlog(limit: str) -> None:
    async with serving(**{limit: 10}) as (_, proxy), client(proxy.port_1) as before:
        await before.ask(list_offsets(1))
        fill(proxy, 200)
        proxy.stats.accept_throttles.clear()
        with connected(proxy.port_1, 5) as late, connect(proxy.bootstrap_port):
            acceptor = proxy.listener._acceptor
            await until(lambda: acceptor._delayed is not None)
            throttles = proxy.stats.accept_throttles["PLAIN"]
            assert came(proxy) == throttles.number, "the first did not wait, and the last one does so now"
            assert throttles.ms == 1000 * throttles.number
            await before.ask(list_offsets(2))
            proxy.play.loop.advance(11_000)  # what comes after that wait finds an empty window
            waited = throttles.number
            await until(lambda: came(proxy), equals=1 + 6)
            assert closed(late) == 0
            assert throttles.number == waited


async def test_delayed_connection_is_served_before_the_next() -> None:
    async with serving(listener_rate=10) as (_, proxy), client(proxy.port_1) as first:
        await first.ask(list_offsets(1))
        fill(proxy)
        async with client(proxy.port_1) as delayed, client(proxy.port_1) as next_one:
            await delayed.ask(list_offsets(2))
            await next_one.ask(list_offsets(3))
        assert proxy.stats.accept_throttles == {"PLAIN": ThrottleTotals(2, 100 + 200)}


async def test_a_listener_that_closes_while_one_waits_leaves_nothing_behind() -> None:
    async with serving(listener_rate=10) as (_, proxy):
        fill(proxy, 200)
        proxy.stats.accept_throttles.clear()
        with connected(proxy.port_1, 2) as late:
            await until(lambda: proxy.stats.accept_throttles)
            proxy.listener.close()
            await until(lambda: closed(late), equals=2)
        assert came(proxy) == 0


# --------------------------------------------------------------------------------------------------------------- modes


async def test_shadow_counts_connection_throttles_and_closes_no_client() -> None:
    async with serving(policy=ONE_A_SECOND, listener_rate=2, mode="shadow") as (one, proxy):
        with connected(proxy.port_1, 4 * BURST, first=list_offsets(1)) as all_of_them:
            await until(lambda: len(one.requests) == 4 * BURST)
            assert closed(all_of_them) == 0
        assert refused(proxy) == 0
        assert proxy.stats.ip_throttles["PLAIN"].number == 3 * BURST
        assert proxy.listener._accounts.refused == 0
        for _ in range(3 * BURST):
            proxy.gate.delay_ms("PLAIN")
        proxy.play.loop.advance(1000)
        proxy.gate.tidy(proxy.play.loop.clock())
        assert proxy.stats.accept_throttles["PLAIN"].number > 0
        assert proxy.stats.accept_throttles["PLAIN"].ms <= 2000, "no more than there was time, and the last wait"


async def test_mode_off_counts_no_connection_rates() -> None:
    async with serving(policy=ONE_A_SECOND, listener_rate=1, mode="off") as (_, proxy):
        with connected(proxy.port_1, 4 * BURST):
            await until(lambda: came(proxy), equals=4 * BURST)
        assert (proxy.stats.ip_throttles, proxy.stats.accept_throttles) == ({}, {})
        assert (proxy.gate.usage(), list(proxy.gate.usage_of_addresses())) == ([], [])


# ------------------------------------------------------------------------------------------------ so many at a listener


async def test_a_listener_has_so_many_places_and_no_more() -> None:
    async with serving(listener_most=4, limits={"connections_per_ip": 10}) as (one, proxy):
        with connected(proxy.port_1, 4, first=list_offsets(1)):
            await until(lambda: len(one.requests) == 4)
            async with client(proxy.port_1) as fifth:
                assert await fifth.closed()
            assert proxy.stats.connections["PLAIN", "refused_listener_limit"] == 1
        await until(lambda: not proxy.slots.taken)
        async with client(proxy.port_1) as again:
            await again.ask(list_offsets(1))


async def test_the_mode_turned_lets_go_who_is_held_and_holds_from_then_on() -> None:
    async with serving(policy=ONE_A_SECOND) as (_, proxy):
        with connected(proxy.port_1, BURST), connected(proxy.port_1, 3) as held:
            await until(lambda: refused(proxy), equals=3)
            proxy.play.throttling.set_mode("shadow", proxy.play.loop.now_ms)
            await until(lambda: closed(held), equals=3)
            with connected(proxy.port_1, 2) as free:
                await until(lambda: came(proxy), equals=BURST + 2)
                assert (closed(free), refused(proxy)) == (0, 3)
                assert proxy.stats.ip_throttles["PLAIN"].number == 5, "counted all the same"
            proxy.play.throttling.set_mode("enforce", proxy.play.loop.now_ms)
            with connected(proxy.port_1, 1):
                await until(lambda: refused(proxy), equals=4)


@pytest.mark.parametrize(("mode", "refused_"), [("enforce", 2), ("shadow", 2), ("off", 0)])
async def test_usage_records_have_who_came_and_who_was_refused_in_every_mode(mode: str, refused_: int) -> None:
    async with serving(policy=ONE_A_SECOND, mode=mode) as (_, proxy):
        addresses = proxy.gate._addresses = Addresses(10)
        proxy.listener._accounts.exemptions = Exemptions(networks=[ip_network("127.0.0.2/32")])
        with connected(proxy.port_1, BURST + 2), connected(proxy.port_1, 1, "127.0.0.2"):
            await until(lambda: sum(each.attempts for each in addresses._addresses.values()), equals=BURST + 3)
        rows = [row for row in addresses.take(proxy.play.loop.now_ms) if row is not None]
        assert {(key.ip, key.exempt, figures[0], figures[3]) for key, figures in rows} == {
            ("127.0.0.1", False, BURST + 2, refused_),
            ("127.0.0.2", True, 1, 0),
        }
