"""What many do at once is worked off a few per turn of the loop, with others' turns in between."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from proxy.runtime.clock import now_ms
from tests.harness.fake_broker import fake_broker
from tests.harness.polling import until
from tests.proxy.front import front
from tests.proxy.playbook import list_offsets

pytestmark = pytest.mark.asyncio


async def most_in_a_turn(progress: Callable[[], int], end: int) -> int:
    """Return the largest step of ``progress`` in one turn of the loop, until it has come to ``end``."""
    before, most = progress(), 0
    async with asyncio.timeout(30):
        while before != end:
            await asyncio.sleep(0)
            before, most = progress(), max(most, abs(progress() - before))
    return most


async def test_simultaneous_deadlines_close_few_connections_per_loop_turn() -> None:
    async with fake_broker() as one, front(one, limit=1000) as proxy:
        arriving = proxy.listener._arriving.arriving
        with ExitStack() as stack:
            for _ in range(200):
                stack.enter_context(socket.create_connection(("127.0.0.1", proxy.bootstrap_port)))
            await until(lambda: len(arriving), equals=200)
            proxy.alarms.hasten(now_ms())
            proxy.alarms.ring()
            assert 0 < await most_in_a_turn(lambda: len(arriving), 0) <= 20
        await until(proxy.rejected, equals={"authentication_timeout": 200})


async def test_simultaneous_first_requests_begin_few_sessions_per_loop_turn() -> None:
    async with fake_broker() as one, front(one, limit=1000) as proxy:
        with ExitStack() as stack:
            clients = [
                stack.enter_context(socket.create_connection(("127.0.0.1", proxy.bootstrap_port))) for _ in range(200)
            ]
            await until(lambda: len(proxy.listener._arriving.arriving), equals=200)
            for each in clients:
                each.send(list_offsets(1))
            assert 0 < await most_in_a_turn(lambda: len(proxy.listener.sessions), 200) <= 8
        await until(proxy.stats.sessions.total, equals=0)


async def test_client_that_leaves_while_its_session_waits_for_its_turn_has_none() -> None:
    async with fake_broker() as one, front(one, limit=1000) as proxy:
        pacer = proxy.listener._arriving._pacer
        pacer._passed = 8
        with socket.create_connection(("127.0.0.1", proxy.bootstrap_port)) as leaving:
            leaving.send(list_offsets(1))
            await until(lambda: [each.wire for each in proxy.listener._arriving.arriving])
            await until(lambda: pacer._waiting)
            (arrival,) = proxy.listener._arriving.arriving
            wire = arrival.wire
            assert wire is not None
            wire.abort()
            await until(lambda: not wire.is_open)
        pacer._let_next_pass()
        await until(proxy.stats.sessions.total, equals=0)
        assert (proxy.stats.connections["PLAIN", "left_early"], one.requests) == (1, [])
