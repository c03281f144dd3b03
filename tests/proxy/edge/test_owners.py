"""Two instances in front of one cluster: clients are told owners, and who comes to another is held, then closed."""

import asyncio
import socket
from struct import unpack_from

import pytest

from config.brokers import Endpoint, parse_broker_ports
from config.units import AdvertisedAddress
from proxy.edge import advertised_addresses, doors
from proxy.edge.doors import MOST_OF_ADDRESS, HeldConnections
from proxy.owners.map import OwnersInForce, OwnersMap
from proxy.runtime.faults import counts
from tests.harness.fake_broker import fake_broker
from tests.harness.polling import until
from tests.proxy.front import TIMEOUT_S, client, front
from tests.proxy.pki import Pki
from tests.proxy.playbook import Play, heartbeat, list_offsets, produce, request

pytestmark = pytest.mark.asyncio

METADATA = request(3, 1, 9, b"\0\0\0\0")
THERE = Endpoint("there.test", None, parse_broker_ports({"1-2": "7001-7002"}))


@pytest.fixture
def none_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "LET_IN", 0.0)


def owners(own: int, others: int) -> OwnersInForce:
    owned = ((range(own, own + 1), "here"), (range(others, others + 1), "there"))
    return OwnersInForce("here", OwnersMap(owned, {"there": {"PLAIN": THERE}}, ("here", "there")))


async def test_clients_are_told_each_brokers_address_at_its_owner() -> None:
    async with fake_broker() as one, fake_broker() as two:
        one.brokers = {1: ("127.0.0.1", one.port), 2: ("127.0.0.1", two.port)}
        async with front(one, owners=owners(1, 2)) as proxy, client(proxy.bootstrap_port) as asking:
            answer = await asking.ask(METADATA)
            assert unpack_from(">i", answer, 4)[0] == 2
            assert b"127.0.0.1" + proxy.port_1.to_bytes(4, "big") in answer
            assert b"there.test" + (7002).to_bytes(4, "big") in answer
            assert proxy.port_2.to_bytes(4, "big") not in answer
            async with client(proxy.port_1) as own:
                assert await own.ask(list_offsets(7)) == b"\0\0\0\7" + bytes(4)
            assert len(proxy.listener.addresses.without_port) == 0


def controller(answer: bytes) -> int:
    """Return the controller id of a Metadata v1 without topics."""
    return int.from_bytes(answer[-8:-4], "big")


async def test_metadata_names_one_controller_with_owners_on_kraft() -> None:
    async with fake_broker() as one:
        one.brokers = {8: ("127.0.0.1", 1), 7: ("127.0.0.1", one.port)}
        async with front(one, owners=owners(7, 8)) as proxy, client(proxy.bootstrap_port) as asking:
            assert controller(await asking.ask(METADATA)) == 1, "as the broker says: it may have a ZooKeeper"
            proxy.cluster.is_kraft = True
            assert controller(await asking.ask(METADATA)) == 7
        async with front(one) as proxy, client(proxy.bootstrap_port) as asking:
            proxy.cluster.is_kraft = True
            assert controller(await asking.ask(METADATA)) == 1, "nobody else serves a broker"


async def test_a_broker_that_its_owner_has_no_port_for_is_told_under_a_name_that_says_so() -> None:
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port), 77: ("10.9.9.9", 9092)}
        async with front(one, owners=owners(1, 77)) as proxy, client(proxy.bootstrap_port) as asking:
            answer = await asking.ask(METADATA)
            assert b"node-id-77-has-no-port-in-sluice-there.invalid" in answer
            assert b"10.9.9.9" not in answer
            assert proxy.listener.addresses.why_not_ready is None


async def test_client_at_non_owner_gets_metadata_and_no_other_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client all of whose addresses are old would be lost otherwise."""
    monkeypatch.setattr(doors, "LET_IN", 1.0)
    async with fake_broker() as one, fake_broker() as two:
        one.brokers = two.brokers = {1: ("127.0.0.1", one.port), 2: ("127.0.0.1", two.port)}
        async with front(one, owners=owners(1, 2)) as proxy:
            for wrong in (produce(2, 100), list_offsets(2), heartbeat(2)):
                async with client(proxy.port_2) as asking:
                    assert b"there.test" + (7002).to_bytes(4, "big") in await asking.ask(METADATA)
                    asking.writer.write(wrong)
                    assert await asking.closed()
            assert proxy.rejected() == {"not_owner": 3}
            assert proxy.stats.connections["PLAIN", "not_owner"] == 0


@pytest.mark.usefixtures("none_let_in")
async def test_connection_for_broker_of_other_instance_is_held_then_closed() -> None:
    async with fake_broker() as one, fake_broker() as two:
        one.brokers = {1: ("127.0.0.1", one.port), 2: ("127.0.0.1", two.port)}
        async with front(one, owners=owners(1, 2)) as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port_2)
            async with asyncio.timeout(TIMEOUT_S):
                assert await reader.read() == b""
            writer.close()
            assert proxy.stats.connections == {("PLAIN", "not_owner"): 1}
            assert (proxy.slots.taken, list(proxy.turned_away), two.requests) == (0, [], [])


@pytest.mark.usefixtures("none_let_in")
async def test_a_host_name_of_another_instances_broker_is_turned_away_behind_tls(pki: Pki) -> None:
    context = pki.client()
    hosts = {"advertise": AdvertisedAddress("boot.kafka.test"), "broker_host": "b{node_id}.kafka.test"}
    async with fake_broker() as one, fake_broker() as two:
        one.brokers = two.brokers = {1: ("127.0.0.1", one.port), 2: ("127.0.0.1", two.port)}
        async with front(one, owners=owners(1, 2), tls=pki.settings(), **hosts) as proxy:
            async with client(proxy.bootstrap_port, context, "b1.kafka.test") as own:
                await own.ask(list_offsets(1))
            async with client(proxy.bootstrap_port, context, "b2.kafka.test") as other:
                other.writer.write(list_offsets(1))
                assert await other.closed()
            await until(lambda: not proxy.slots.taken)
            assert (proxy.stats.connections["PLAIN", "not_owner"], two.requests) == (1, [])


async def test_a_bootstrap_session_gets_a_broker_of_its_own_instance() -> None:
    async with fake_broker() as one, fake_broker() as two:
        one.brokers = two.brokers = {1: ("127.0.0.1", one.port), 2: ("127.0.0.1", two.port)}
        async with front(one, owners=owners(2, 1)) as proxy:
            for _ in range(4):
                async with client(proxy.bootstrap_port) as asking:
                    await asking.ask(list_offsets(1))
                    await asking.ask(produce(2, 100))
            assert [len(each.requests) for each in (one, two)] == [0, 8]


async def test_an_instance_without_a_broker_lets_clients_ask_but_not_produce() -> None:
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with front(one, owners=owners(2, 1)) as proxy, client(proxy.bootstrap_port) as asking:
            assert b"there.test" + (7001).to_bytes(4, "big") in await asking.ask(METADATA)
            asking.writer.write(produce(2, 100))
            assert await asking.closed()
            assert proxy.rejected() == {"not_owner": 1}


@pytest.mark.uncompiled("the fault is put in place of a method")
async def test_held_connection_is_closed_despite_fault_in_close(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play()
    held, (ours, theirs) = HeldConnections(play.throttling.wake), socket.socketpair()
    monkeypatch.setattr(held, "_close", lambda client: {}[client])
    held.hold("any", 1, play.loop.now_ms + 50, ours.close)
    play.loop.advance(50)
    assert ours.fileno() < 0
    theirs.close()
    assert counts.pop("alarm") == 1


async def test_a_greedy_address_shortens_its_own_hold_alone() -> None:
    play, pairs = Play(), [socket.socketpair() for _ in range(MOST_OF_ADDRESS + 3)]
    held, end_ms = HeldConnections(play.throttling.wake, MOST_OF_ADDRESS), play.loop.now_ms + 50
    try:
        for ours, host in zip(
            [pair[0] for pair in pairs], ["patient", *["greedy"] * (MOST_OF_ADDRESS + 2)], strict=True
        ):
            held.hold(host, 1, end_ms, ours.close)
        assert [ours.fileno() < 0 for ours, _ in pairs] == [False, True, True] + [False] * MOST_OF_ADDRESS
        held.most = 1
        late, theirs = socket.socketpair()
        pairs.append((late, theirs))
        held.hold("late", 1, end_ms, late.close)
        assert pairs[0][0].fileno() < 0
        held.close()
        assert (list(held), late.fileno()) == ([], -1)
    finally:
        for ours, theirs in pairs:
            ours.close()
            theirs.close()


async def test_bootstrap_clients_wait_until_owners_are_known() -> None:
    async with fake_broker() as one, fake_broker() as two:
        one.brokers = {1: ("127.0.0.1", one.port), 2: ("127.0.0.1", two.port)}
        in_force = OwnersInForce("here")
        async with front(one, owners=in_force) as proxy, client(proxy.bootstrap_port) as asking:
            answer = asyncio.ensure_future(asking.ask(METADATA))
            async with client(proxy.port_1) as to_broker:
                assert await to_broker.closed()
            assert proxy.stats.connections == {("PLAIN", "not_owner"): 1}
            in_force.replace(owners(1, 2).in_force)
            proxy.listener.addresses.tell_owners()
            assert b"there.test" + (7002).to_bytes(4, "big") in await answer


async def test_client_waiting_for_unknown_owners_is_closed_as_not_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "LET_IN", 1.0)
    monkeypatch.setattr(advertised_addresses, "_OWNERS_S", 0.05)
    async with fake_broker() as one, front(one, owners=OwnersInForce("here")) as proxy:
        async with client(proxy.bootstrap_port) as asking:
            assert await asking.closed()
        assert proxy.stats.connections == {("PLAIN", "not_owner"): 1}


async def test_a_listener_that_closes_while_clients_wait_for_owners_refuses_them() -> None:
    async with fake_broker() as one, front(one, owners=OwnersInForce("here")) as proxy:
        async with client(proxy.bootstrap_port) as asking:
            proxy.listener.close()
            assert await asking.closed()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", proxy.bootstrap_port)


async def test_a_bootstrap_port_that_fails_to_open_opens_with_the_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advertised_addresses, "_OWNERS_S", 0.0)
    async with fake_broker() as one:
        in_force = OwnersInForce("here")
        with monkeypatch.context() as broken:
            broken.setattr(advertised_addresses.AdvertisedAddresses, "accept_bootstrap", lambda self: {}[self])
            async with front(one, owners=in_force) as proxy:
                await until(lambda: counts["open the bootstrap port"], equals=1)
                broken.undo()
                in_force.replace(owners(1, 2).in_force)
                proxy.listener.addresses.tell_owners()
                async with client(proxy.bootstrap_port) as asking:
                    await asking.ask(list_offsets(1))
    assert counts.pop("open the bootstrap port") == 1
