"""Arrivals that come to their deadline together are ended one after the other, with others' turns in between."""

import asyncio
import socket
from contextlib import ExitStack

import pytest

from tests.harness.fake_broker import fake_broker
from tests.harness.polling import until
from tests.proxy.front import front

pytestmark = pytest.mark.asyncio


async def test_simultaneous_deadlines_close_few_connections_per_loop_turn() -> None:
    async with fake_broker() as one, front(one, limit=1000, authentication_timeout_s=0.3) as proxy:
        arriving = proxy.listener._arriving.arriving
        with ExitStack() as stack:
            for _ in range(200):
                stack.enter_context(socket.create_connection(("127.0.0.1", proxy.bootstrap_port)))
            await until(lambda: len(arriving), equals=200)
            for arrival in arriving:
                arrival.deadline_s = 0.0
            before, most = len(arriving), 0
            async with asyncio.timeout(30):
                while arriving:
                    await asyncio.sleep(0)
                    before, most = len(arriving), max(most, before - len(arriving))
            assert 0 < most <= 20
        await until(proxy.rejected, equals={"authentication_timeout": 200})
