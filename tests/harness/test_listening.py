"""Who connects while a server stops is not forgotten."""

import asyncio
import gc
import socket

from tests.harness.listening import stop_listening
from tests.harness.ports import LOOPBACK


def test_connection_accepted_during_server_stop_is_handed_over() -> None:
    """`Server.close` in the same turn of the loop leaves sockets that nobody closes: an error when collected."""
    asyncio.run(connect_as_it_stops())
    gc.collect()


async def connect_as_it_stops() -> None:
    accepted: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: accepted.append(writer), LOOPBACK, 0)
    address = server.sockets[0].getsockname()
    clients = [socket.create_connection(address) for _ in range(10)]  # the loop stands still meanwhile
    await asyncio.sleep(0)
    await asyncio.create_task(stop_listening(server))  # begins as they are accepted
    assert len(accepted) == len(clients)
    for client, writer in zip(clients, accepted, strict=True):
        writer.close()
        await writer.wait_closed()
        client.close()
    with socket.socket() as late:
        assert late.connect_ex(address) != 0
