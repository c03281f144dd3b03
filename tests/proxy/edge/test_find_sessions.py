import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from proxy.edge.listeners import Listener
from proxy.edge.open_sessions import find
from proxy.runtime.tasks import SLICE

pytestmark = pytest.mark.asyncio


def of(user: str, client_id: str, peer: str, *, closed: bool = False) -> SimpleNamespace:
    account = SimpleNamespace(key=SimpleNamespace(client_id=client_id))
    return SimpleNamespace(peer=peer, identity=SimpleNamespace(user=user, account=account), closed=closed)


async def test_find_yields_to_event_loop_between_slices() -> None:
    sessions = [of("alice", "app", f"10.0.0.1:{port}") for port in range(3 * SLICE)]
    finding = asyncio.ensure_future(find([cast("Listener", SimpleNamespace(sessions=sessions))], peer="10.0.0.2:1"))
    turns = 0
    while not finding.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 3
    assert finding.result() == []


async def test_all_connections_of_a_client_are_found() -> None:
    one, two, other = of("alice", "app", "[::1]:1"), of("alice", "", "10.0.0.1:2"), of("bob", "app", "10.0.0.1:3")
    closed = of("alice", "app", "10.0.0.1:4", closed=True)
    listeners = cast(
        "list[Listener]", [SimpleNamespace(sessions=[one, closed]), SimpleNamespace(sessions=[two, other])]
    )
    for wanted, found in (
        ({"user": "alice"}, [one, two]),
        ({"user": "alice", "client_id": "app"}, [one]),
        ({"user": "alice", "client_id": ""}, [two]),
        ({"client_id": "app"}, [one, other]),
        ({"peer": "::1:1"}, [one]),
        ({"user": "bob", "peer": "[::1]:1"}, []),
    ):
        assert await find(listeners, **wanted) == found
