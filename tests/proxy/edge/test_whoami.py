import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from proxy.edge.listeners import Listener
from proxy.edge.whoami import find, identify
from proxy.runtime.slices import SLICE
from quotas.entities import ANONYMOUS

pytestmark = pytest.mark.asyncio


def session(
    peer: str, user: str = ANONYMOUS, mechanism: str | None = None, *, authenticated: bool = False
) -> SimpleNamespace:
    sasl = SimpleNamespace(authenticated=authenticated, mechanism=mechanism)
    return SimpleNamespace(peer=peer, identity=SimpleNamespace(user=user), sasl=sasl, closed=False, waits=None)


LISTENERS = cast(
    "list[Listener]",
    [
        SimpleNamespace(name="PLAIN", sessions=[session("10.0.0.1:5")]),
        SimpleNamespace(
            name="SASL",
            sessions=[
                session("10.0.0.1:6", "alice", "SCRAM-SHA-512", authenticated=True),
                session("10.0.0.1:7", mechanism="PLAIN"),
                session("::1:8", "cert"),
            ],
        ),
    ],
)


@pytest.mark.parametrize(
    ("peer", "listener", "user", "mechanism", "authenticated"),
    [
        ("10.0.0.1:5", "PLAIN", ANONYMOUS, None, False),
        ("10.0.0.1:6", "SASL", "alice", "SCRAM-SHA-512", True),
        ("10.0.0.1:7", "SASL", ANONYMOUS, "PLAIN", False),
        ("[::1]:8", "SASL", "cert", None, True),
    ],
)
async def test_known_peer_is_identified_with_user_and_mechanism(
    peer: str, listener: str, user: str, mechanism: str | None, authenticated: bool
) -> None:
    found = await identify(LISTENERS, peer)
    assert found is not None
    assert (found["listener"], found["user"], found["mechanism"]) == (listener, user, mechanism)
    assert found["authenticated"] is authenticated


async def test_unknown_peer_is_not_identified() -> None:
    assert await identify(LISTENERS, "10.0.0.1:66") is None
    assert await identify([], "10.0.0.1:5") is None


async def test_identify_yields_to_event_loop_between_slices() -> None:
    many = SimpleNamespace(name="MANY", sessions=[session(f"10.0.0.1:{port}") for port in range(3 * SLICE)])
    asking = asyncio.ensure_future(identify([cast("Listener", many)], "10.0.0.2:1"))
    turns = 0
    while not asking.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 3
    many.sessions[7].closed = True  # what is left of it is nobody's
    assert await identify([cast("Listener", many)], "10.0.0.1:7") is None


async def test_all_connections_of_a_client_are_found() -> None:
    def of(user: str, client_id: str, peer: str, *, closed: bool = False) -> SimpleNamespace:
        account = SimpleNamespace(key=SimpleNamespace(client_id=client_id))
        return SimpleNamespace(peer=peer, identity=SimpleNamespace(user=user, account=account), closed=closed)

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
