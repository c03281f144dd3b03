"""Arrivals that come to their deadline together are ended one after the other, with others' turns in between."""

import asyncio
import socket

import pytest

from config.units import Address
from proxy.edge.arrivals import Arrival
from proxy.edge.deadlines import Deadlines

pytestmark = pytest.mark.asyncio


async def test_simultaneous_deadlines_close_few_connections_per_loop_turn() -> None:
    ended: list[Arrival] = []
    deadlines = Deadlines(ended.append)
    with socket.socket() as client:
        late = [Arrival(client, Address("127.0.0.1", 1), None, None, 0.0) for _ in range(500)]
    for arrival in late:
        deadlines.watch(arrival, 0.0)
    before, most = 0, 0
    async with asyncio.timeout(30):
        while len(ended) < len(late):
            await asyncio.sleep(0)
            before, most = len(ended), max(most, len(ended) - before)
    assert ended == late
    assert 0 < most <= 20
    assert not deadlines.arriving
