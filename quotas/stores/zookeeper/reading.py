"""Batched reads of ZooKeeper nodes.

kazoo reads one node per request, which costs its client 0.2 ms of CPU each: 50,000 quotas would take ten seconds.
ZooKeeper 3.6 and later answers many reads in one response (ZOOKEEPER-3402, MultiOperationRecord), which kazoo does not
support yet: the request here is built from kazoo's own pieces and goes through its queue. Older servers refuse it
(UnimplementedError) and close the connection: from them nodes must be read one by one.
"""

import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS, KazooException, NoAuthError, NoNodeError

T = TypeVar("T")

AT_ONCE: Final = 256
"""Nodes per request. A node has some hundred bytes, and a kilobyte or two if a user has credentials."""

_REQUEST_CHARS: Final = 256 * 1024
"""The total length of a request's paths: ZooKeeper closes a connection that sends a mebibyte (jute.maxbuffer)."""
_AHEAD: Final = 2048
"""Nodes of all requests in flight."""
_INT: Final = struct.Struct("!i")
_STAT: Final = struct.Struct("!qqqqiiiqiiq")
_VERSION: Final = 4
_CHILDREN: Final = 9
_HEADER: Final = struct.Struct("!iBi")
_ERROR: Final = -1
_GET_DATA: Final = 4
_GET_CHILDREN: Final = 8
_MULTI_READ: Final = 22
_END: Final = _HEADER.pack(_ERROR, True, -1)


class Node(NamedTuple):
    """The data of a node, its version (for writes), and its number of children."""

    data: bytes
    version: int
    children: int


class ReadError(Exception):
    """A node exists but could not be read."""

    def __init__(self, path: str, cause: KazooException) -> None:
        super().__init__(f"{path}: {type(cause).__name__}")
        self.path = path
        self.cause = cause


class Reader:
    """Reads through a connected client, ``at_once`` nodes per request; each response may take ``timeout_s``.

    Raises ReadError for a node, and KazooException for a connection: then everything may be read again after a
    reconnect.
    """

    def __init__(self, client: KazooClient, timeout_s: float, at_once: int = AT_ONCE) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._at_once = at_once

    def nodes(self, paths: Sequence[str]) -> Iterator[Node | None]:
        """Yield the content of each node; None if it does not exist."""
        return self._read(_Kind(_GET_DATA, _node), paths)

    def children(self, paths: Sequence[str]) -> Iterator[list[str] | None]:
        """Yield the names of each node's children; None if the node does not exist."""
        return self._read(_Kind(_GET_CHILDREN, _names), paths)

    def _read(self, kind: "_Kind[T]", paths: Sequence[str]) -> Iterator[T | None]:
        under_way: deque[tuple[Sequence[str], Any]] = deque()
        for batch in self._batches(paths):
            under_way.append((batch, self._ask(kind, batch)))
            if len(under_way) * self._at_once >= _AHEAD:
                yield from self._answers(*under_way.popleft())
        while under_way:
            yield from self._answers(*under_way.popleft())

    def _batches(self, paths: Sequence[str]) -> Iterator[Sequence[str]]:
        """Yield the paths of each request."""
        start = size = 0
        for at, path in enumerate(paths):
            if at > start and (at - start == self._at_once or size + len(path) > _REQUEST_CHARS):
                yield paths[start:at]
                start, size = at, 0
            size += len(path)
        if paths:
            yield paths[start:]

    def _ask(self, kind: "_Kind[T]", paths: Sequence[str]) -> Any:
        rooted = [f"{self._client.chroot}{path}" for path in paths]
        answer = self._client.handler.async_result()
        request = _Read(kind, rooted[0]) if self._at_once == 1 else _Reads(kind, rooted)
        self._client._call(request, answer)  # noqa: SLF001  as kazoo's own transactions are sent
        return answer

    def _answers(self, paths: Sequence[str], answer: Any) -> Iterator[Any]:
        try:
            found = answer.get(timeout=self._timeout_s)
        except (NoNodeError, NoAuthError) as error:
            found = [error]
        for path, each in zip(paths, found, strict=True):
            if isinstance(each, KazooException) and not isinstance(each, NoNodeError):
                raise ReadError(path, each)
            yield None if isinstance(each, NoNodeError) else each


class _Kind(NamedTuple, Generic[T]):
    """A kind of request for one path, and its reader: (response, offset) → (value, offset after it)."""

    type: int
    take: Callable[[bytes, int], tuple[T, int]]


class _Read(NamedTuple):
    """A request for one path, in the form that kazoo's connection takes."""

    kind: _Kind[Any]
    path: str

    @property
    def type(self) -> int:
        return self.kind.type

    def serialize(self) -> bytes:
        return _asked(self.path)

    def deserialize(self, response: bytes, offset: int) -> list[object]:
        return [self.kind.take(response, offset)[0]]


class _Reads(NamedTuple):
    """A request for many paths. The error of a path is its result."""

    kind: _Kind[Any]
    paths: Sequence[str]

    @property
    def type(self) -> int:
        return _MULTI_READ

    def serialize(self) -> bytes:
        header = _HEADER.pack(self.kind.type, False, -1)
        return b"".join(header + _asked(path) for path in self.paths) + _END

    def deserialize(self, response: bytes, offset: int) -> list[object]:
        found: list[object] = []
        while True:
            kind, done, _ = _HEADER.unpack_from(response, offset)
            offset += _HEADER.size
            if done:
                return found
            if kind == _ERROR:
                (code,) = _INT.unpack_from(response, offset)
                offset += _INT.size
                found.append(EXCEPTIONS[code]())
            else:
                one, offset = self.kind.take(response, offset)
                found.append(one)


def _asked(path: str) -> bytes:
    encoded = path.encode()
    return _INT.pack(len(encoded)) + encoded + b"\0"  # no watch


def _node(response: bytes, offset: int) -> tuple[Node, int]:
    data, offset = _buffer(response, offset)
    stat = _STAT.unpack_from(response, offset)
    return Node(data, stat[_VERSION], stat[_CHILDREN]), offset + _STAT.size


def _names(response: bytes, offset: int) -> tuple[list[str], int]:
    (count,) = _INT.unpack_from(response, offset)
    offset += _INT.size
    names = []
    for _ in range(count):
        name, offset = _buffer(response, offset)
        names.append(name.decode("utf-8", "replace"))
    return names, offset


def _buffer(response: bytes, offset: int) -> tuple[bytes, int]:
    (length,) = _INT.unpack_from(response, offset)
    offset += _INT.size
    end = offset + max(length, 0)  # -1: null
    return response[offset:end], end
