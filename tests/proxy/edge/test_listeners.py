"""Listeners, cluster and drain over real sockets on loopback, before stand-ins for brokers."""

import asyncio
import socket
from struct import unpack_from

import pytest
from structlog.testing import capture_logs

from proxy.brokers.metadata import read_metadata
from proxy.edge.open_sessions import drain
from proxy.runtime.faults import counts
from proxy.session.session import Session
from tests.harness.fake_broker import fake_broker, metadata
from tests.harness.polling import until
from tests.proxy.front import Front, client, front
from tests.proxy.playbook import PRODUCER, list_offsets, produce, request

pytestmark = pytest.mark.asyncio

METADATA = request(3, 1, 9, b"\0\0\0\0")


async def test_every_broker_has_a_port_that_leads_to_it() -> None:
    async with fake_broker() as one, fake_broker() as two:
        one.brokers = {1: ("127.0.0.1", one.port), 2: ("127.0.0.1", two.port)}
        async with front(one) as proxy, client(proxy.port_2) as to_two:
            assert await to_two.ask(list_offsets(7)) == b"\0\0\0\7" + bytes(4)
            assert len(two.requests) == 1


async def test_clients_are_told_the_proxy_and_a_new_broker_listens_before_they_are() -> None:
    async with fake_broker() as one, fake_broker() as two:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with front(one) as proxy, client(proxy.bootstrap_port) as asking:
            one.brokers[2] = ("127.0.0.1", two.port)
            answer = await asking.ask(METADATA)
            assert unpack_from(">i", answer, 4)[0] == 2
            assert proxy.port_1.to_bytes(4, "big") in answer
            assert proxy.port_2.to_bytes(4, "big") in answer
            async with client(proxy.port_2) as to_two:
                await to_two.ask(list_offsets(1))


async def test_a_broker_without_a_port_is_told_under_a_name_that_says_so() -> None:
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port), 77: ("10.9.9.9", 9092)}
        with capture_logs() as logs:
            async with front(one) as proxy, client(proxy.bootstrap_port) as asking:
                answer = await asking.ask(METADATA)
        assert b"node-id-77-has-no-port-in-sluice.invalid" in answer
        assert b"10.9.9.9" not in answer
        assert [line["broker"] for line in logs if line["event"].startswith("no port for broker")] == [77]


async def test_not_ready_while_no_broker_has_a_port() -> None:
    async with fake_broker() as one, front(one, known=False) as proxy:
        assert proxy.listener.addresses.why_not_ready is None  # nothing is known yet: the cluster says so
        one.brokers = dict.fromkeys(range(70, 85), ("127.0.0.1", one.port))
        await proxy.cluster.refresh()
        why = proxy.listener.addresses.why_not_ready
        assert why is not None
        assert "no broker has a port" in why
        assert "70, 71, 72, 73, 74, 75, 76, 77, 78, 79 and 5 more" in why
        one.brokers = {1: ("127.0.0.1", one.port)}
        await proxy.cluster.refresh()
        assert proxy.listener.addresses.why_not_ready is None


async def test_a_port_that_is_taken_serves_nobody() -> None:
    async with fake_broker() as one, front(one, known=False) as proxy:
        with socket.create_server(("127.0.0.1", proxy.port_1)):
            await proxy.cluster.refresh()
        assert "at free ports" in str(proxy.listener.addresses.why_not_ready)


@pytest.mark.parametrize("broker", [2, 77])
async def test_a_broker_first_named_while_the_proxy_stops_is_not_told_as_it_is(broker: int) -> None:
    """Metadata is under way when SIGTERM comes: no port is opened any more, and no address of a broker escapes."""
    async with fake_broker() as one:
        async with front(one) as proxy, client(proxy.bootstrap_port) as asking:
            await asking.ask(list_offsets(1))
            proxy.listener.close()
            one.brokers[broker] = ("kafka-2.internal", 9092)
            answer = await asking.ask(METADATA)
        assert b"kafka-2.internal" not in answer
        told = proxy.port_2.to_bytes(4, "big") if broker == 2 else b"node-id-77-has-no-port-in-sluice.invalid"
        assert told in answer


async def test_a_broker_that_moved_is_followed() -> None:
    async with fake_broker() as one, fake_broker() as old, fake_broker() as new:
        one.brokers = {1: ("127.0.0.1", one.port), 2: ("127.0.0.1", old.port)}
        async with front(one) as proxy:
            one.brokers[2] = ("127.0.0.1", new.port)
            await proxy.cluster.refresh()
            async with client(proxy.port_2) as to_two:
                await to_two.ask(list_offsets(1))
        assert (len(old.requests), len(new.requests)) == (0, 1)


async def test_a_broker_that_is_down_closes_only_its_own_sessions_and_is_logged_once() -> None:
    async with fake_broker() as one, fake_broker() as two:
        one.brokers = {1: ("127.0.0.1", one.port), 2: ("127.0.0.1", two.port)}
        with capture_logs() as logs:
            async with front(one) as proxy, client(proxy.port_1) as to_one, client(proxy.port_2) as to_two:
                await to_two.ask(list_offsets(1))
                await to_one.ask(list_offsets(1))
                proxy.cluster.brokers[2].port = 1  # nothing listens there
                two.drop()
                assert await to_two.closed()
                for _ in range(3):
                    async with client(proxy.port_2) as again:
                        again.writer.write(list_offsets(1))
                        assert await again.closed()
                await to_one.ask(list_offsets(2))
                assert proxy.stats.connections["PLAIN", "broker_unreachable"] == 3
        assert len([line for line in logs if line["event"].startswith("broker unreachable")]) == 1


async def test_the_bootstrap_port_goes_to_a_broker_that_is_up() -> None:
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port), 2: ("127.0.0.1", 1)}
        async with front(one) as proxy:
            for number in range(4):
                async with client(proxy.bootstrap_port) as asking:
                    await asking.ask(list_offsets(number))


def charged_brokers(proxy: Front) -> set[int]:
    return {usage.broker for usage in proxy.play.engine.usage(proxy.play.loop.now_ms)}


async def test_early_bootstrap_client_waits_and_is_charged_for_its_broker() -> None:
    """A second full quota, that of no broker, cannot be had by being early."""
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with front(one, known=False, quotas={PRODUCER: 1024}) as proxy, client(proxy.bootstrap_port) as early:
            early.writer.write(produce(1, 20_000))
            await until(lambda: len(proxy.listener.sessions), equals=1)
            assert one.requests == []
            await proxy.cluster.refresh()
            await early.ask(b"")
            assert charged_brokers(proxy) == {1}


@pytest.mark.parametrize("advertised", ["127.0.0.1", "localhost"])
async def test_when_the_broker_of_a_session_is_known_it_is_charged_for_it(advertised: str) -> None:
    """Without a login of its own the proxy asks for the brokers over clients' connections."""
    async with (
        fake_broker() as one,
        front(one, known=False, quotas={PRODUCER: 1024}) as proxy,
        client(proxy.bootstrap_port) as early,
    ):
        proxy.cluster.can_ask = False
        one.brokers = {1: (advertised, one.port), 2: (advertised, one.port + 1)}
        await early.ask(list_offsets(1))
        (session,) = proxy.listener.sessions
        await until(lambda: not proxy.listener._broker_connector.unnamed)
        await early.ask(produce(2, 20_000))
        assert charged_brokers(proxy) == {1}
        assert not session.closed


async def test_a_session_whose_broker_cannot_be_told_is_closed_after_its_answers_once_others_are_known() -> None:
    async with (
        fake_broker() as balancer,
        fake_broker() as one,
        front(balancer, known=False) as proxy,
        client(proxy.bootstrap_port) as early,
    ):
        proxy.cluster.can_ask = False
        balancer.brokers = {1: ("127.0.0.1", one.port), 2: ("127.0.0.1", 1)}
        assert len(await early.ask(METADATA)) > 20
        assert await early.closed()
        for number in range(4):
            async with client(proxy.bootstrap_port) as again:
                await again.ask(list_offsets(number))
        assert len(one.requests) == 4


async def test_a_session_that_ends_while_it_is_connected_is_not_one_that_waits_for_its_name() -> None:
    """Thousands of strangers who send what is refused: none of them stays, and whoever comes later is named."""
    junk = produce(1, 100)[:4] + b"\x7f\xff" + produce(1, 100)[6:]
    async with fake_broker() as one, front(one, known=False, quotas={PRODUCER: 1024}) as proxy:
        proxy.cluster.can_ask = False
        for _ in range(3):
            async with client(proxy.bootstrap_port) as stranger:
                stranger.writer.write(list_offsets(1) + junk)
                assert await stranger.closed()
        assert not proxy.listener._broker_connector.unnamed
        one.brokers = {1: ("127.0.0.1", one.port), 2: ("127.0.0.1", one.port + 1)}
        async with client(proxy.bootstrap_port) as early:
            await early.ask(list_offsets(1))
            await until(lambda: not proxy.listener._broker_connector.unnamed)
            await early.ask(produce(2, 20_000))
            assert charged_brokers(proxy) == {1}


@pytest.mark.uncompiled("the fault is put in place of a method")
async def test_bootstrap_session_failing_to_be_named_closes_and_others_continue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with fake_broker() as one, front(one, known=False, quotas={PRODUCER: 1024}) as proxy:
        proxy.cluster.can_ask, one.brokers = False, {}
        async with client(proxy.bootstrap_port) as first, client(proxy.bootstrap_port) as second:
            await first.ask(list_offsets(1))
            await second.ask(list_offsets(1))
            broken, whole = proxy.listener._broker_connector.unnamed
            named = Session.broker_known

            def fails(session: Session, broker_id: int) -> None:
                if session is broken:
                    raise KeyError
                named(session, broker_id)

            monkeypatch.setattr(Session, "broker_known", fails)
            one.brokers = {1: ("127.0.0.1", one.port), 2: ("127.0.0.1", one.port + 1)}
            await proxy.cluster.take(read_metadata(b"\0" * 8 + metadata(2, one.brokers, one.cluster_id)))
            await until(lambda: not proxy.listener._broker_connector.unnamed and broken.closed)
            await second.ask(produce(2, 20_000))
            assert not whole.closed
            assert charged_brokers(proxy) == {1}


async def test_above_the_limit_connections_are_refused_and_counted() -> None:
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with front(one, limit=1) as proxy, client(proxy.port_1) as first:
            await first.ask(list_offsets(1))
            async with client(proxy.port_1) as second:
                assert await second.closed()
            assert proxy.stats.connections["PLAIN", "refused_limit"] == 1
            await first.ask(list_offsets(2))


async def test_a_client_that_goes_away_is_forgotten() -> None:
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with front(one) as proxy:
            async with client(proxy.port_1) as leaving:
                await leaving.ask(list_offsets(1))
                assert proxy.stats.sessions["PLAIN"] == 1
            await until(lambda: not proxy.listener.sessions)
            assert proxy.stats.sessions["PLAIN"] == 0


async def test_a_slow_reader_stops_the_broker_and_loses_nothing() -> None:
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with front(one) as proxy, client(proxy.port_1) as slow:
            total = 200
            for number in range(total):
                slow.writer.write(produce(number, 20_000, acks=1))
            for number in range(total):
                answer = await slow.ask(b"")
                assert int.from_bytes(answer[:4], "big") == number


async def test_a_drain_waits_for_what_is_in_flight_and_cuts_off_what_never_comes() -> None:
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with front(one) as proxy, client(proxy.port_1) as idle, client(proxy.port_1) as stuck:
            await idle.ask(list_offsets(1))
            one.silent = True
            stuck.writer.write(list_offsets(2))
            await until(lambda: len(one.requests) >= 2)  # one of each client
            assert await drain(list(proxy.listener.sessions), 0.3) == 1
            assert await idle.closed()
            assert await stuck.closed()


async def test_a_drain_leaves_out_a_session_that_has_ended_before_its_turn() -> None:
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with front(one) as proxy, client(proxy.port_1) as first, client(proxy.port_1) as gone:
            for each in (first, gone):
                await each.ask(list_offsets(1))
            sessions, before = list(proxy.listener.sessions), dict(counts)
            gone.writer.close()
            await until(lambda: len(proxy.listener.sessions) <= 1)
            assert await drain(sessions, 1.0) == 0
            assert await first.closed()
            assert counts == before


async def test_a_refresh_that_fails_says_why_and_is_made_good_by_the_next() -> None:
    async with fake_broker() as one:
        port = one.port
        one.brokers = {1: ("127.0.0.1", port)}
        proxy = Front([1, port])
        with capture_logs() as logs:
            proxy.cluster._turn = -1
            await proxy.cluster.refresh()
        assert proxy.cluster.error is None
        assert [line["event"] for line in logs] == ["broker found", "cluster known"]
    with capture_logs() as logs:
        for _ in range(2):
            await proxy.cluster.refresh()
    assert proxy.cluster.error is not None
    assert str(port) in proxy.cluster.error
    assert len([line for line in logs if line["event"] == "no broker answers Metadata"]) == 1
    proxy.listener.close()


async def test_a_bootstrap_port_that_is_taken_is_named() -> None:
    proxy = Front([1])
    with (
        socket.create_server(("127.0.0.1", proxy.bootstrap_port)),
        pytest.raises(OSError, match=rf"PLAIN.*{proxy.bootstrap_port}"),
    ):
        proxy.open_bootstrap()


@pytest.mark.uncompiled("the fault is put in place of a method")
async def test_failed_naming_of_bootstrap_session_is_retried_with_next_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """To find the node ids of bootstrap sessions fails: nobody else notices, and each further broker is another try."""
    async with fake_broker() as one, front(one) as proxy:
        one.brokers = {1: ("127.0.0.1", one.port)}
        await proxy.cluster.refresh()
        tried = []

        async def fail() -> None:
            tried.append(1)
            raise KeyError

        monkeypatch.setattr(proxy.listener._broker_connector, "unnamed", {"a session": ()})
        monkeypatch.setattr(proxy.listener._broker_connector, "name", fail)
        before = counts["name the brokers of bootstrap sessions"]
        for node_id in (70, 71):
            proxy.listener.open_broker(node_id)
            await asyncio.sleep(0.01)
        assert len(tried) == 2
        assert counts["name the brokers of bootstrap sessions"] == before + 2
        async with client(proxy.port_1) as asking:
            await asking.ask(list_offsets(1))
        monkeypatch.undo()
