from types import SimpleNamespace
from typing import cast

import pytest

from proxy.edge.listeners import Listener
from proxy.edge.whoami import identify
from quotas.entities import ANONYMOUS


def session(peer: str, user: str = ANONYMOUS, mechanism: str | None = None, *, authenticated: bool = False) -> object:
    sasl = SimpleNamespace(authenticated=authenticated, mechanism=mechanism)
    return SimpleNamespace(peer=peer, user=user, sasl=sasl)


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
def test_who_is_there(peer: str, listener: str, user: str, mechanism: str | None, authenticated: bool) -> None:
    found = identify(LISTENERS, peer)
    assert found is not None
    assert (found["listener"], found["user"], found["mechanism"]) == (listener, user, mechanism)
    assert found["authenticated"] is authenticated


def test_who_is_not() -> None:
    assert identify(LISTENERS, "10.0.0.1:66") is None
    assert identify([], "10.0.0.1:5") is None
