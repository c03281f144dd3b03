import os
import socket
from collections.abc import Callable, Iterator

import pytest

from tests.harness.polling import wait_until
from tests.harness.reconnections import Reconnections

SELF = "self"


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.fixture
def watched() -> Iterator[Reconnections]:
    with Reconnections({SELF: os.getpid()}) as reconnections:
        yield reconnections


def connect(to: socket.socket) -> socket.socket:
    return socket.create_connection(to.getsockname())


def count_held(watched: Reconnections, at_least: int) -> Callable[[], bool]:
    return lambda: watched.held()[SELF] >= at_least


@pytest.mark.long
def test_connection_to_where_one_ended_is_seen(server: socket.socket, watched: Reconnections) -> None:
    before = watched.held()[SELF]
    with connect(server):
        wait_until(count_held(watched, before + 1))
    wait_until(lambda: watched.held()[SELF] <= before)
    with connect(server):
        wait_until(lambda: watched.seen() == {SELF: [server.getsockname()[1]]})


@pytest.mark.long
def test_second_connection_is_no_reconnection(server: socket.socket, watched: Reconnections) -> None:
    before = watched.held()[SELF]
    with connect(server):
        wait_until(count_held(watched, before + 1))
        with connect(server):
            wait_until(count_held(watched, before + 2))
    wait_until(lambda: watched.held()[SELF] <= before)
    assert watched.seen() == {}
