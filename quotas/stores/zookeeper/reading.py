"""Reads of many ZooKeeper nodes, with many requests in flight.

Each raises ForbiddenError for a node, and KazooException for a connection: then everything may be read again after a
reconnect.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError

from quotas.stores.zookeeper.client import WAIT_S

_IN_FLIGHT: Final = 1000


class Node(NamedTuple):
    """The data of a node, its version (for writes), and its number of children."""

    data: bytes | None
    version: int
    children: int


class ForbiddenError(Exception):
    """A node exists but may not be read."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: may not be read")
        self.path = path


def read_nodes(client: KazooClient, paths: Iterable[str]) -> Iterator[Node | None]:
    """Yield the content of each node; None if it does not exist."""
    for found in _read(client.get_async, paths):
        yield None if found is None else Node(found[0], found[1].version, found[1].numChildren)


def read_children(client: KazooClient, paths: Iterable[str]) -> Iterator[list[str] | None]:
    """Yield the names of each node's children; None if the node does not exist."""
    return _read(client.get_children_async, paths)


def _read(ask: Callable[[str], Any], paths: Iterable[str]) -> Iterator[Any]:
    in_flight: deque[tuple[str, Any]] = deque()
    for path in paths:
        in_flight.append((path, ask(path)))
        if len(in_flight) == _IN_FLIGHT:
            yield _answer(*in_flight.popleft())
    while in_flight:
        yield _answer(*in_flight.popleft())


def _answer(path: str, asked: Any) -> Any:
    try:
        return asked.get(timeout=WAIT_S)
    except NoNodeError:
        return None
    except NoAuthError:
        raise ForbiddenError(path) from None
