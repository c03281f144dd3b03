"""What clients are told and which ports are bound for it, at the start and when the settings become others."""

import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from config.brokers import parse_broker_ports
from config.settings import Listener
from config.units import AdvertisedAddress
from tests.harness.fake_broker import FakeBroker, fake_broker
from tests.harness.polling import until
from tests.harness.ports import free_ports
from tests.proxy.front import Front, client, front
from tests.proxy.playbook import list_offsets, request

pytestmark = pytest.mark.asyncio

METADATA = request(3, 1, 9, b"\0\0\0\0")


@asynccontextmanager
async def proxied(*node_ids: int, **settings: object) -> AsyncIterator[tuple[FakeBroker, Front]]:
    """A listener in front of a broker that answers for all of these."""
    async with fake_broker() as broker:
        broker.brokers = dict.fromkeys(node_ids, ("127.0.0.1", broker.port))
        async with front(broker, **settings) as proxy:
            yield broker, proxy


def with_brokers(proxy: Front, brokers: Mapping[str, object], **more: object) -> Listener:
    """The same listener with other ports."""
    return proxy.listener.settings.model_copy(update={"brokers": parse_broker_ports(brokers), **more})


async def told(proxy: Front) -> bytes:
    async with client(proxy.bootstrap_port) as asking:
        return await asking.ask(METADATA)


async def serves(port: int) -> bool:
    try:
        async with client(port) as asking:
            await asking.ask(list_offsets(1))
    except OSError:
        return False
    return True


def address(host: bytes, port: int) -> bytes:
    return len(host).to_bytes(2, "big") + host + port.to_bytes(4, "big")


async def test_clients_are_told_the_advertised_port_and_come_to_the_bound_one() -> None:
    bound, other = free_ports(2)
    brokers = parse_broker_ports({"1": {"bind": str(bound), "advertise": "31101"}, "2": str(other)})
    at = AdvertisedAddress("kafka.example.com", 31092)
    async with proxied(1, 2, 77, brokers=brokers, advertise=at) as (_, proxy):
        answer = await told(proxy)
        assert address(b"kafka.example.com", 31101) in answer
        assert address(b"kafka.example.com", other) in answer
        assert address(b"node-id-77-has-no-port-in-sluice.invalid", 31092) in answer
        assert await serves(bound)
        assert len(proxy.listener.addresses.without_port) == 1


async def test_a_node_id_that_is_added_has_a_port_without_a_restart() -> None:
    async with proxied(1, 77) as (_, proxy):
        (port,) = free_ports(1)
        assert len(proxy.listener.addresses.without_port) == 1
        closed = proxy.listener.change(with_brokers(proxy, {"1": str(proxy.port_1), "77": str(port)}))
        assert (closed, len(proxy.listener.addresses.without_port)) == ([], 0)
        assert address(b"127.0.0.1", port) in await told(proxy)
        assert await serves(port)


async def test_a_node_id_that_is_removed_has_no_port_and_its_sessions_are_returned() -> None:
    async with proxied(1, 2) as (_, proxy), client(proxy.port_1) as kept, client(proxy.port_2) as lost:
        async with client(proxy.bootstrap_port) as anywhere:
            for each in (kept, lost, anywhere):
                await each.ask(list_offsets(1))
            closed = proxy.listener.change(with_brokers(proxy, {"1": str(proxy.port_1)}))
            assert len(closed) == 1
            for session in closed:
                session.drain()
            assert await lost.closed()
            for each in (kept, anywhere):
                await each.ask(list_offsets(1))
        assert not await serves(proxy.port_2)
        assert b"node-id-2-has-no-port-in-sluice.invalid" in await told(proxy)
        assert len(proxy.listener.addresses.without_port) == 1


async def test_silent_connection_is_closed_when_its_port_is_removed() -> None:
    async with proxied(1, 2) as (_, proxy), client(proxy.port_2) as early:
        await until(proxy.stats.sessions.total)
        assert proxy.listener.change(with_brokers(proxy, {"1": str(proxy.port_1)})) == []
        assert await early.closed()


async def test_brokers_that_swap_ports_are_served_at_both() -> None:
    async with proxied(1, 2) as (_, proxy):
        async with client(proxy.port_1) as to_one, client(proxy.port_2) as to_two:
            for each in (to_one, to_two):
                await each.ask(list_offsets(1))
            closed = proxy.listener.change(with_brokers(proxy, {"2": str(proxy.port_1), "1": str(proxy.port_2)}))
            assert len(closed) == 2
        assert await serves(proxy.port_1)
        assert await serves(proxy.port_2)


async def test_changed_advertised_port_keeps_sessions_open() -> None:
    async with proxied(1) as (_, proxy), client(proxy.port_1) as kept:
        await kept.ask(list_offsets(1))
        brokers = {"1": {"bind": str(proxy.port_1), "advertise": "443"}}
        at = AdvertisedAddress("else.example.com", 9999)
        assert proxy.listener.change(with_brokers(proxy, brokers, advertise=at)) == []
        assert address(b"else.example.com", 443) in await told(proxy)
        await kept.ask(list_offsets(1))


async def test_a_new_port_that_is_taken_leaves_the_old_one_until_it_is_free() -> None:
    async with proxied(1) as (_, proxy), client(proxy.port_1) as kept:
        await kept.ask(list_offsets(1))
        with capture_logs() as logs, socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            assert proxy.listener.change(with_brokers(proxy, {"1": str(port)})) == []
            proxy.listener.addresses.try_again()
            assert address(b"127.0.0.1", proxy.port_1) in await told(proxy)
            assert await serves(proxy.port_1)
        (line,) = [line for line in logs if line["event"] == "cannot listen for broker"]
        assert (line["broker"], line["port"], line["meanwhile"]) == (1, port, "its old port stays")
        proxy.listener.addresses.try_again()
        assert address(b"127.0.0.1", port) in await told(proxy)
        assert await serves(port)
        assert not await serves(proxy.port_1)


async def test_a_port_that_was_taken_when_its_broker_was_found_is_bound_when_it_is_free() -> None:
    async with fake_broker() as one, front(one, known=False) as proxy:
        with socket.create_server(("127.0.0.1", proxy.port_1)):
            await proxy.cluster.refresh()
        assert len(proxy.listener.addresses.without_port) == 1
        proxy.listener.addresses.try_again()
        assert len(proxy.listener.addresses.without_port) == 0
        assert await serves(proxy.port_1)


async def test_port_added_while_listener_closes_is_not_bound() -> None:
    async with proxied(1, 77) as (_, proxy):
        proxy.listener.close()
        (port,) = free_ports(1)
        proxy.listener.change(with_brokers(proxy, {"1": str(proxy.port_1), "77": str(port)}))
        proxy.listener.addresses.try_again()
        assert not await serves(port)
