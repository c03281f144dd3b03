"""An address is not a broker: no byte of a client goes to a node that has not said who it is."""

import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from config.cluster import BrokerSasl, BrokerTls, Route
from config.units import Address
from protocol.errors import Cause
from protocol.requests import WHICH_VERSIONS
from proxy.brokers import cluster, names
from proxy.brokers.broker import Refused, Unproven, Verified
from proxy.brokers.cluster import Cluster
from proxy.brokers.connection import open_connection, open_transport
from proxy.brokers.names import Names
from proxy.runtime.faults import counts
from tests.harness.fake_broker import API_VERSIONS, PASSWORD, USER, fake_broker, reply
from tests.harness.polling import until
from tests.proxy.front import TIMEOUT_S, Front, client, front
from tests.proxy.pki import Pki
from tests.proxy.playbook import list_offsets, produce, request

pytestmark = pytest.mark.asyncio

METADATA = request(3, 1, 9, b"\0\0\0\0")


@contextlib.asynccontextmanager
async def address_of_one_broker() -> AsyncIterator[tuple[Front, Callable[..., Any]]]:
    """Yield a proxy before a broker that is gone, and what starts another node at its address."""
    async with contextlib.AsyncExitStack() as stack:
        proxy: Front
        async with fake_broker() as one:
            one.brokers = {1: ("127.0.0.1", one.port)}
            proxy = await stack.enter_async_context(front(one))
            async with client(proxy.port_1) as asking:
                await asking.ask(list_offsets(1))
        yield proxy, lambda: fake_broker(port=one.port)


# ----------------------------------------------------------------------------------------- another node at the address


@pytest.mark.parametrize("port_of", ["broker", "bootstrap"])
async def test_broker_address_given_to_another_cluster_gets_no_byte_of_a_client(port_of: str) -> None:
    """400 of 400 records went there, with a line at level info."""
    async with address_of_one_broker() as (proxy, node):
        async with node() as other:
            other.cluster_id, other.brokers = "of-others", {1: ("127.0.0.1", other.port)}
            with capture_logs() as logs:
                for number in range(2):
                    port = proxy.port_1 if port_of == "broker" else proxy.bootstrap_port
                    async with client(port) as asking:
                        asking.writer.write(produce(number, 100))
                        assert await asking.closed()
            assert other.requests == []
        assert proxy.stats.rejected["broker", Cause.OTHER_CLUSTER] >= 2
        lines = [each for each in logs if each["event"].startswith("another node answers")]
        assert {line["log_level"] for line in lines} == {"error"}
        assert len(lines) <= 2, "once for each that has the address: the broker, and bootstrap"
        assert lines[0]["error"] == f"127.0.0.1:{other.port} belongs to cluster of-others, not to of-the-test"
        assert "belongs to cluster of-others" in str(proxy.cluster.why_not_ready)
        assert not proxy.cluster.brokers[1].reachable


async def test_broker_address_given_to_another_node_of_its_cluster_gets_no_byte_of_a_client() -> None:
    async with address_of_one_broker() as (proxy, node), node() as other:
        other.brokers = {2: ("127.0.0.1", other.port)}
        async with client(proxy.port_1) as asking:
            asking.writer.write(produce(1, 100))
            assert await asking.closed()
        assert other.requests == []
        assert proxy.stats.rejected["broker", Cause.OTHER_NODE] >= 1
        await proxy.cluster.refresh()
        async with client(proxy.port_2) as asking:
            await asking.ask(list_offsets(2))


async def test_session_that_connects_while_its_broker_moves_gets_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fake_broker() as one, fake_broker() as new:
        one.brokers = new.brokers = {1: ("127.0.0.1", one.port)}
        async with front(one) as proxy:
            async with client(proxy.port_1) as asking:
                await asking.ask(list_offsets(1))
            broker = proxy.cluster.brokers[1]

            async def moves_meanwhile(*to: Any, **how: Any) -> Any:
                transport = await open_transport(*to, **how)
                new.brokers = {1: ("127.0.0.1", new.port)}
                broker.move("127.0.0.1", new.port)
                assert isinstance(await proxy.cluster.verify(broker), Verified)
                return transport

            served = len(one.requests)
            with monkeypatch.context() as moving:
                moving.setattr(cluster, "open_transport", moves_meanwhile)
                async with client(proxy.port_1) as asking:
                    asking.writer.write(list_offsets(2))
                    assert await asking.closed()
            assert (len(one.requests), new.requests) == (served, [])


async def test_broker_that_returns_to_its_address_is_verified_and_served_again() -> None:
    async with address_of_one_broker() as (proxy, node):
        async with node() as other:
            other.cluster_id = "of-others"
            other.brokers = {1: ("127.0.0.1", other.port)}
            async with client(proxy.port_1) as asking:
                asking.writer.write(list_offsets(1))
                assert await asking.closed()
        async with node() as one:
            one.brokers = {1: ("127.0.0.1", one.port)}
            async with client(proxy.port_1) as asking:
                await asking.ask(list_offsets(1))
        assert proxy.cluster.why_not_ready is None


async def test_addresses_swapped_between_brokers_of_one_cluster_keep_working() -> None:
    async with fake_broker() as one, fake_broker() as two:
        one.brokers = {1: ("127.0.0.1", one.port), 2: ("127.0.0.1", two.port)}
        async with front(one) as proxy:
            for port in (proxy.port_1, proxy.port_2):
                async with client(port) as asking:
                    await asking.ask(list_offsets(1))
            one.brokers = {2: ("127.0.0.1", one.port), 1: ("127.0.0.1", two.port)}
            for each in (one, two):
                each.requests.clear()
                each.drop()
            async with client(proxy.port_1) as asking:
                asking.writer.write(list_offsets(1))
                assert await asking.closed(), "for the moment: it is not broker 1"
            await proxy.cluster.refresh()
            async with client(proxy.port_1) as asking:
                await asking.ask(list_offsets(1))
            assert (len(one.requests), len(two.requests)) == (0, 1)


async def test_node_is_asked_once_for_all_sessions_and_again_after_a_loss() -> None:
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with front(one) as proxy:
            one.own.clear()
            for _ in range(5):
                async with client(proxy.port_1) as asking:
                    await asking.ask(list_offsets(1))
            assert len(one.own) == 1
            one.drop()
            async with client(proxy.port_1) as asking:
                await asking.ask(list_offsets(1))
            assert len(one.own) == 2


async def test_bootstrap_of_two_clusters_is_not_ready_and_serves_one_of_them_alone() -> None:
    async with fake_broker() as one, fake_broker() as other:
        one.brokers = {1: ("127.0.0.1", one.port)}
        other.brokers, other.cluster_id = {1: ("127.0.0.1", other.port)}, "of-others"
        async with front(one, other) as proxy:
            await proxy.cluster.probe(proxy.cluster._bootstrap)
            assert "belongs to cluster" in str(proxy.cluster.why_not_ready)
            assert proxy.stats.rejected["broker", Cause.OTHER_CLUSTER] == 1
            for _ in range(4):
                async with client(proxy.bootstrap_port) as asking:
                    await asking.ask(list_offsets(1))
                await proxy.cluster.refresh()
        assert sorted(len(each.requests) for each in (one, other)) == [0, 4]


async def test_node_behind_tls_is_verified_too(pki: Pki) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.certificate, pki.key)
    async with fake_broker(tls=context) as broker:
        route = Route(bootstrap=(Address("127.0.0.1", broker.port),), tls=BrokerTls(ca=pki.ca_file))
        cluster = Cluster("test", route, lambda _: None, refresh_s=TIMEOUT_S, connect_timeout_s=TIMEOUT_S)
        await cluster.refresh()
        assert isinstance(await cluster.verify(cluster.brokers[1]), Verified)
        cluster.brokers[1].lose()
        broker.cluster_id = "of-others"
        assert isinstance(await cluster.verify(cluster.brokers[1]), Refused)


# --------------------------------------------------------------------------------------- what one client is told


async def test_metadata_of_one_client_moves_no_broker_for_others() -> None:
    """59 of 59 connections of another client, and its password, went to that address."""
    async with fake_broker() as one, fake_broker() as zone:
        one.brokers = {1: ("127.0.0.1", one.port)}
        one.by_client = {"app": {1: ("127.0.0.1", zone.port)}}
        async with front(one) as proxy, client(proxy.bootstrap_port) as zoned:
            assert proxy.port_1.to_bytes(4, "big") in await zoned.ask(METADATA)
            await proxy.cluster.refresh()
            async with client(proxy.port_1) as other:
                await other.ask(list_offsets(1))
        assert (zone.requests, zone.own) == ([], [])


async def test_broker_that_only_a_client_was_told_of_gets_no_byte_until_the_cluster_names_it() -> None:
    async with fake_broker() as one, fake_broker() as two:
        one.brokers = {1: ("127.0.0.1", one.port)}
        one.by_client = {"app": {1: ("127.0.0.1", one.port), 2: ("127.0.0.1", two.port)}}
        async with front(one) as proxy, client(proxy.bootstrap_port) as asking:
            assert proxy.port_2.to_bytes(4, "big") in await asking.ask(METADATA)
            async with client(proxy.port_2) as early:
                early.writer.write(list_offsets(1))
                assert await early.closed()
            assert two.requests == []
            one.brokers[2] = ("127.0.0.1", two.port)
            async with client(proxy.port_2) as asking_two:
                await asking_two.ask(list_offsets(1))


# ------------------------------------------------------------------------------------------------- without a login


async def test_broker_of_4_4_is_asked_before_any_login_of_a_client() -> None:
    async with fake_broker(password=PASSWORD) as broker:
        broker.newest_versions = 5
        cluster = without_login(broker.port)
        assert isinstance(await cluster.verify(cluster.brokers[1]), Verified)
        cluster.brokers[1].lose()
        broker.brokers = {2: broker.brokers[1]}
        refused = await cluster.verify(cluster.brokers[1])
        assert isinstance(refused, Refused)
        assert refused.cause is Cause.OTHER_NODE


async def test_older_broker_without_a_login_is_asked_by_a_session() -> None:
    async with fake_broker(password=PASSWORD) as broker:
        cluster = without_login(broker.port)
        assert isinstance(await cluster.verify(cluster.brokers[1]), Unproven)


async def test_without_a_login_a_session_asks_before_its_first_request() -> None:
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with front(one, known=False) as proxy:
            proxy.cluster.can_ask = False
            async with client(proxy.bootstrap_port) as asking:
                asking.writer.write(produce(1, 100))
                await until(lambda: one.requests)
            assert proxy.cluster.cluster_id == "of-the-test"
            before = len(one.own)
            one.cluster_id = "of-others"
            one.drop()
            one.requests.clear()
            async with client(proxy.port_1) as asking:
                asking.writer.write(produce(1, 100))
                assert await asking.closed()
            assert len(one.own) > before
            assert one.requests == []
            assert proxy.rejected()["other_cluster"] == 1


async def test_without_a_login_all_brokers_with_new_addresses_are_found_by_bootstrap() -> None:
    """A restart was the only way back."""
    async with fake_broker() as bootstrap, front(bootstrap, known=False) as proxy:
        proxy.cluster.can_ask = False
        async with fake_broker() as old:
            bootstrap.brokers = {1: ("127.0.0.1", old.port)}
            async with client(proxy.bootstrap_port) as asking:
                await asking.ask(list_offsets(1))
            async with client(proxy.bootstrap_port) as asking:
                await asking.ask(list_offsets(1))
            assert len(old.requests) == 1
        async with fake_broker() as new:
            bootstrap.brokers = {1: ("127.0.0.1", new.port)}
            await proxy.cluster.probe(list(proxy.cluster.brokers.values()))
            bootstrap.drop()
            for _ in range(2):
                async with client(proxy.bootstrap_port) as asking:
                    await asking.ask(list_offsets(1))
            async with client(proxy.port_1) as asking:
                await asking.ask(list_offsets(1))
            assert new.requests


async def test_refused_login_of_the_proxy_leaves_the_question_to_sessions(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    sasl = BrokerSasl(mechanism="PLAIN", username=USER, password_file=tmp_path / "password")
    async with fake_broker(password=PASSWORD) as broker:
        route = Route(bootstrap=(Address("127.0.0.1", broker.port),), sasl=sasl)
        cluster = Cluster("test", route, lambda _: None, refresh_s=TIMEOUT_S, connect_timeout_s=TIMEOUT_S)
        await cluster.refresh()
        broker.password = "another"
        assert isinstance(await cluster.verify(cluster.brokers[1]), Unproven)


def without_login(port: int) -> Cluster:
    from proxy.brokers.broker import Broker

    route = Route(bootstrap=(Address("127.0.0.1", port),))
    options = {"refresh_s": TIMEOUT_S, "connect_timeout_s": TIMEOUT_S, "demands_sasl": True}
    cluster = Cluster("test", route, lambda _: None, **options)  # type: ignore[arg-type]
    cluster.cluster_id = "of-the-test"
    cluster.brokers[1] = Broker(1, "127.0.0.1", port)
    return cluster


# ------------------------------------------------------------------------------------------------------------- names


@pytest.fixture
def slow_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A resolver that takes its time for some names: name → event that lets it answer."""
    import threading

    held: dict[str, threading.Event] = {}
    found: dict[str, list[str]] = {}

    class Resolver:
        SOCK_STREAM = socket.SOCK_STREAM

        @staticmethod
        def getaddrinfo(host: str, *_: object, **__: object) -> list[Any]:
            if host in held:
                held[host].wait()
            return [(None, None, None, "", (ip, 0)) for ip in found.get(host, ["127.0.0.1"])]

    monkeypatch.setattr(names, "socket", Resolver)
    monkeypatch.setattr("proxy.brokers.connection.NAMES", Names())
    yield {"hold": lambda host: held.setdefault(host, threading.Event()), "found": found}
    for each in held.values():
        each.set()


async def test_slow_names_of_brokers_hold_up_no_connection_to_another(slow_names: dict[str, Any]) -> None:
    """With eight of them, nobody reached a healthy broker in 25 s."""
    async with fake_broker() as one:
        slow = [f"slow-{number}.example" for number in range(40)]
        for name in slow:
            slow_names["hold"](name)
        one.brokers = {100 + number: (name, 9092) for number, name in enumerate(slow)}
        one.brokers[1] = ("healthy.example", one.port)
        async with front(one) as proxy:
            from proxy.runtime.tasks import spawn

            probing = spawn(proxy.cluster.probe(list(proxy.cluster.brokers.values())), "probe all")
            async with client(proxy.port_1) as asking:
                await asking.ask(list_offsets(1))
            assert not probing.done()
            probing.cancel()


async def test_name_that_was_found_before_serves_while_it_is_asked_again(
    slow_names: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "_PATIENCE_S", 0.01)
    looked_up = Names()
    assert await looked_up.ips("a.example") == ("127.0.0.1",)
    slow_names["found"]["a.example"] = ["127.0.0.2"]
    held = slow_names["hold"]("a.example")
    assert await looked_up.ips("a.example") == ("127.0.0.1",)
    held.set()
    await until(lambda: not looked_up._asking)
    assert await looked_up.ips("a.example") == ("127.0.0.2",)


@pytest.mark.parametrize("first", ["192.0.2.1", "127.9.9.9"])
async def test_name_whose_first_address_is_silent_or_refuses_is_reached_at_the_second(
    slow_names: dict[str, Any], first: str
) -> None:
    """All addresses had one time-out together (KIP-302)."""
    slow_names["found"]["two.example"] = [first, "127.0.0.1"]
    async with fake_broker() as one:
        one.brokers = {1: ("two.example", one.port)}
        async with front(one) as proxy, client(proxy.port_1) as asking:
            await asking.ask(list_offsets(1))


@pytest.mark.parametrize(
    "place", ["proxy.brokers.verification.which_brokers", "proxy.brokers.connection.start_connection"]
)
async def test_fault_in_a_question_ends_one_session_alone(
    place: str, slow_names: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise KeyError

    slow_names["found"]["two.example"] = ["127.0.0.1", "127.0.0.2"]
    async with fake_broker() as one:
        one.brokers = {1: ("two.example", one.port)}
        async with front(one) as proxy:
            before = sum(counts.values())
            monkeypatch.setattr(place, fail)
            async with client(proxy.port_1) as asking:
                asking.writer.write(list_offsets(1))
                assert await asking.closed()
            assert sum(counts.values()) > before
            monkeypatch.undo()
            monkeypatch.setattr("proxy.brokers.connection.NAMES", Names())
            proxy.cluster.brokers[1].host = "127.0.0.1"
            one.brokers = {1: ("127.0.0.1", one.port)}
            async with client(proxy.port_1) as asking:
                await asking.ask(list_offsets(1))


# ------------------------------------------------------------------------------------------------------------- texts


async def test_kraft_controller_in_bootstrap_is_said_to_be_one() -> None:
    async with fake_broker() as controller:
        fetch_alone = b"\0\0" + b"\0\0\0\1" + b"\0\1\0\0\0\7"
        controller.answers[API_VERSIONS] = lambda request: reply(request, fetch_alone)
        route = Route(bootstrap=(Address("127.0.0.1", controller.port),))
        cluster = Cluster("test", route, lambda _: None, refresh_s=TIMEOUT_S, connect_timeout_s=TIMEOUT_S)
        await cluster.refresh()
        assert "is a KRaft controller, which serves no client" in str(cluster.why_not_ready)


async def test_question_on_a_connection_that_the_broker_has_closed_is_a_connection_error() -> None:
    async with fake_broker() as one:
        connection = await open_connection("127.0.0.1", one.port, None)
        await connection.ask(WHICH_VERSIONS)
    await until(lambda: not connection.is_open)
    with pytest.raises(ConnectionResetError, match="closed the connection"):
        await connection.ask(WHICH_VERSIONS)
    await connection.close()
