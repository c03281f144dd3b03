"""End a server of asyncio so that no connection is left behind."""

import asyncio
from typing import Final

_TURNS: Final = 5
"""Of the loop, in which who was accepted comes to the callback: a task, its transport, `connection_made`."""


async def stop_listening(server: asyncio.Server) -> None:
    """Close ``server``; whoever it had accepted has come to its callback by then.

    ``Server.close`` alone forgets a connection that was accepted in the same turn of the loop: its transport finds the
    server closed (CPython, ``Server._attach``), and nobody closes the socket. For asyncio's own loop.
    """
    loop = asyncio.get_running_loop()
    for each in server.sockets:
        loop.remove_reader(each.fileno())
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    server.close()
    await asyncio.sleep(0)  # in the loop's next turn its sockets are closed
