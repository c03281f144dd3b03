"""One direction of one connection, cut at frame borders.

A frame is an int32 size and that many bytes. Only the fixed head of a frame is looked at; the rest is counted,
never gathered, so a claimed size allocates nothing and a body of any length streams through.
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
"""Pieces below this are gathered in one buffer: an object for each of many single bytes takes forty times as much."""

MANY: Final = 2**31
"""As many frames as there are."""

# (size, …): what a head Struct unpacks to; its first member is always the frame's size.
Head = tuple[Any, ...]


class FrameSplitter:
    """Finds where frames begin in a stream of chunks.

    ``remaining`` is how many bytes of the frame before the next border are still to come: a chunk that is no longer
    than that is opaque, and the caller may forward it without calling ``split`` (``is_within``).
    """

    __slots__ = ("_head_size", "_held", "_least", "_unpack", "_wanted", "held_bytes", "limit", "remaining")

    def __init__(self, head: Struct, limit: int) -> None:
        self._unpack = head.unpack_from
        self._head_size = head.size
        self._least = head.size - 4
        self.limit = limit
        self.remaining = 0
        self._held: list[bytes | bytearray] | None = None
        """None instead of an empty list, which every idle connection would have twice."""
        self.held_bytes = 0
        """Bytes kept back because a frame's head, or what a caller asked for, is not complete yet; to be read only."""
        self._wanted = 0

    @property
    def ready(self) -> bool:
        """What is held is as much as was wanted: ``split`` has something to say without further bytes."""
        return 0 < self.held_bytes >= self._wanted

    def is_within(self, count: int) -> bool:
        """Whether the next ``count`` bytes all belong to the frame under way; then they are taken for come."""
        if count > self.remaining:
            return False
        self.remaining -= count
        return True

    def split(self, data: bytes, most: int = MANY) -> tuple[bytes, int, Sequence[Head]]:
        """Return ``(chunk, start, heads)``: ``heads[0]`` begins at ``chunk[start]``, each next one 4 + size on.

        ``chunk`` is ``data`` with what was held before it and without a trailing piece too short to be a head;
        the bytes before ``start`` belong to the frame already under way. Only the last frame may be incomplete.
        Of more than ``most`` frames the others are held, and the splitter is ``ready``.
        Raises ProtocolError for a size that no frame may have, as soon as its four bytes are there.
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
        """Keep ``data[start:]``, a frame border at ``start``, until ``wanted`` bytes from there are present.

        ``split`` then begins at that border again; the caller forwards nothing from ``start`` on. What ``split``
        itself kept of the same chunk stays behind it.
        """
        kept = data[start:]
        if self._held is None:
            self._held = []
        self._held.insert(0, kept)
        self.held_bytes += len(kept)
        self._wanted = wanted
        self.remaining = 0

    def keep(self, data: bytes) -> None:
        """Put ``data`` behind what is held, to be split later: for a direction that is stopped at a border."""
        if not self._held:
            self._wanted = 0
        self._append(data)

    def hold_more(self, data: bytes, start: int, size: int) -> None:
        """Hold a frame of ``size`` whose beginning is not enough, until twice as much or all of it is there.

        Twice, so that what comes byte by byte is read again a few times and not with each byte.
        """
        self.hold(data, start, min(4 + size, 2 * (len(data) - start)))

    def release(self) -> bytes:
        """Return all that is held, and hold it no longer."""
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
