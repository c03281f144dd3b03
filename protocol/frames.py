"""Splitting one direction of a connection into frames.

A frame is an int32 size and that many bytes. Only the fixed head of a frame is parsed; the rest is counted and never
buffered, so a claimed size allocates nothing and a body of any length streams through.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final

from protocol.errors import Cause, ProtocolError
from protocol.foreign import foreign

REQUEST_HEAD: Final = Struct(">iIih")
"""size, api key << 16 | api version, correlation id, length of client_id (request header v1 and v2)."""

RESPONSE_HEAD: Final = Struct(">ii")
"""size, correlation id (every response header begins with it)."""

_SIZE: Final = Struct(">i")
_SMALL_BYTES: Final = 1024
"""Smaller pieces are collected in one buffer: separate objects for single bytes would take forty times the memory."""

MANY: Final = 2**31
"""No bound on the number of frames."""

# (size, …): what a head Struct unpacks to; its first member is always the frame's size.
Head = tuple[Any, ...]


class FrameSplitter:
    """Finds the starts of frames in a stream of chunks.

    ``remaining`` is the number of bytes until the next frame border: a chunk no longer than that is opaque, and the
    caller may forward it without calling ``split`` (``is_within``).
    """

    __slots__ = ("_head_size", "_held", "_least", "_unpack", "_wanted", "held_bytes", "limit", "remaining")

    def __init__(self, head: Struct, limit: int) -> None:
        self._unpack = head.unpack_from
        self._head_size = head.size
        self._least = head.size - 4
        self.limit = limit
        self.remaining = 0
        self._held: list[bytes | bytearray] | None = None
        """Held pieces; not an empty list by default, to save memory in idle connections."""
        self.held_bytes = 0
        """Bytes held because a frame's head, or the part a caller asked for, is incomplete. Read-only."""
        self._wanted = 0

    @property
    def ready(self) -> bool:
        """Whether enough is held that ``split`` returns something without further bytes."""
        return 0 < self.held_bytes >= self._wanted

    def is_within(self, count: int) -> bool:
        """Whether the next ``count`` bytes all belong to the current frame; if so, they are counted as received."""
        if count > self.remaining:
            return False
        self.remaining -= count
        return True

    def split(self, data: bytes, most: int = MANY) -> tuple[bytes, int, Sequence[Head]]:
        """Return ``(chunk, start, heads)``: ``heads[0]`` begins at ``chunk[start]``, each next one 4 + size later.

        ``chunk`` is the held bytes and ``data``, without a trailing piece too short to be a head; the bytes before
        ``start`` belong to the previous frame. Only the last frame may be incomplete. If there are more than ``most``
        frames, the rest is held, and the splitter is ``ready``. Raises ProtocolError for an invalid size, as soon as
        its four bytes are there.
        """
        if self._held:
            self._append(data)
            if self.held_bytes < self._wanted:
                return b"", 0, ()
            data = self.release()
        end = len(data)
        start = position = self.remaining
        heads: list[Head] = []
        if position >= end:
            self.remaining = position - end
            return data, end, heads
        head_size = self._head_size
        while end - position >= head_size:
            head = self._unpack(data, position)
            size = head[0]
            if not self._least <= size <= self.limit:
                raise self._refused(size)
            if len(heads) == most:
                self.hold(data, position, 0)
                return data[:position], start, heads
            heads.append(head)
            position += 4 + size
        if position < end:
            wanted = _SIZE.size
            if end - position >= wanted:
                size = _SIZE.unpack_from(data, position)[0]
                if not self._least <= size <= self.limit:
                    raise self._refused(size)
                wanted = head_size
            self.hold(data, position, wanted)
            return data[:position], start, heads
        self.remaining = position - end
        return data, start, heads

    def hold(self, data: bytes, start: int, wanted: int) -> None:
        """Hold ``data[start:]``, which begins at a frame border, until ``wanted`` bytes of it are present.

        ``split`` then starts at that border again; the caller must not forward anything from ``start`` on. Bytes that
        ``split`` itself held from the same chunk follow it.
        """
        kept = data[start:]
        if self._held is None:
            self._held = []
        self._held.insert(0, kept)
        self.held_bytes += len(kept)
        self._wanted = wanted
        self.remaining = 0

    def keep(self, data: bytes) -> None:
        """Append ``data`` to the held bytes, to be split later: for a direction that is stopped at a border."""
        if not self._held:
            self._wanted = 0
        self._append(data)

    def release(self) -> bytes:
        """Return the held bytes and clear them."""
        held = b"".join(self._held or ())
        self._held = None
        self.held_bytes = 0
        return held

    def _append(self, data: bytes) -> None:
        self.held_bytes += len(data)
        if not data:
            return
        if self._held is None:
            self._held = []
        if len(data) >= _SMALL_BYTES:
            self._held.append(data)
        elif self._held and isinstance(self._held[-1], bytearray):
            self._held[-1] += data
        else:
            self._held.append(bytearray(data))

    def _refused(self, size: int) -> ProtocolError:
        if size > self.limit:
            return foreign(size) or ProtocolError(
                Cause.FRAME_TOO_LARGE, f"frame of {size} bytes, the limit is {self.limit}"
            )
        return ProtocolError(
            Cause.FRAME_TOO_SHORT, f"frame size {size}, the shortest possible frame has {self._least} bytes"
        )
