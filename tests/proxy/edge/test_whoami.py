import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from proxy.edge.listeners import Listener
from proxy.edge.whoami import identify
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
async def test_who_is_there(peer: str, listener: str, user: str, mechanism: str | None, authenticated: bool) -> None:
    found = await identify(LISTENERS, peer)
    assert found is not None
    assert (found["listener"], found["user"], found["mechanism"]) == (listener, user, mechanism)
    assert found["authenticated"] is authenticated


async def test_who_is_not() -> None:
    assert await identify(LISTENERS, "10.0.0.1:66") is None
    assert await identify([], "10.0.0.1:5") is None


async def test_others_have_their_turn_while_many_are_looked_at() -> None:
    many = SimpleNamespace(name="MANY", sessions=[session(f"10.0.0.1:{port}") for port in range(3 * SLICE)])
    asking = asyncio.ensure_future(identify([cast("Listener", many)], "10.0.0.2:1"))
    turns = 0
    while not asking.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 3
    many.sessions[7].closed = True  # what is left of it is nobody's
    assert await identify([cast("Listener", many)], "10.0.0.1:7") is None
