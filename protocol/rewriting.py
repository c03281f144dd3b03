"""Rewriting of long responses in slices, so that other connections do not wait.

The changes are those of locator.py, made by the same ``Splicer``; only the walk pauses in between.
"""

import struct
from collections.abc import Generator
from struct import Struct
from typing import Final

from protocol.compile import Endpoint, SlicedWalk, Tag, compile_sliced_walk
from protocol.errors import Cause, ProtocolError
from protocol.locator import response_body_offset
from protocol.splicer import Splicer, Told
from protocol.table import ApiSpec

_INT32: Final = Struct(">i")

MOST_LOOKED_UP: Final = 50
"""The most new brokers looked up per slice: each may bind ports."""

_walks: dict[int, SlicedWalk] = {}
"""Compiled walks by ApiSpec number, compiled at the first long response of a version."""


class Rewriting:
    """The rewriting of one response.

    ``frame`` begins with its size, ``size``, and may be incomplete: the walk ends after the last broker. If even that
    is missing, ``needs_more`` is True when ``advance`` returns True.
    """

    __slots__ = (
        "_endpoints",
        "_frame",
        "_size",
        "_spec",
        "_splicer",
        "_tags",
        "_throttle_ms",
        "_walk",
        "_walked",
        "end",
    )

    def __init__(self, spec: ApiSpec, frame: bytes, size: int, throttle_ms: int | None, told: Told) -> None:
        self._spec = spec
        self._frame = frame
        self._size = size
        self._throttle_ms = throttle_ms
        self._endpoints: list[Endpoint] = []
        self._tags: list[Tag] = []
        self._splicer = Splicer(frame, spec.flexible, told)
        self._walk: Generator[None, None, tuple[int, int]] | None = None
        self._walked: tuple[int, int] | None = None
        """The offset of throttle_time_ms and the end of the walk, once it has ended."""
        self.end = 0
        """The number of bytes of the frame that ``written`` replaces; 0 until it is done, and if more bytes are
        needed.
        """

    @property
    def needs_more(self) -> bool:
        return not self.end

    def advance(self) -> bool:
        """Do one slice; returns True when done. Raises ProtocolError for an invalid frame."""
        try:
            if not self._endpoints and self._walked is None:
                if self._walk is None:
                    self._walk = self._begin()
                next(self._walk)
        except StopIteration as ended:
            self._walked = ended.value
        except (IndexError, struct.error):
            if len(self._frame) < 4 + self._size:
                return True
            raise ProtocolError(
                Cause.BAD_BODY, f"{self._spec} response of {len(self._frame)} bytes ends too early"
            ) from None
        taken = self._splicer.take(self._endpoints, self._tags, MOST_LOOKED_UP)
        self._tags.clear()
        del self._endpoints[:taken]
        if self._endpoints or self._walked is None:
            return False
        self._tell(*self._walked)
        return True

    def written(self) -> bytes:
        """Return the bytes for the client that replace the first ``end`` bytes."""
        return self._splicer.finish(self.end, self._size)

    def _begin(self) -> Generator[None, None, tuple[int, int]]:
        spec = self._spec
        body = response_body_offset(spec, self._frame, 0)
        walk = _walks.get(spec.number)
        if walk is None:
            walk = _walks[spec.number] = compile_sliced_walk(spec.response_layout, spec.endpoint_path)
        begun = walk(self._frame, body, self._endpoints, self._tags)
        next(begun)
        return begun

    def _tell(self, throttle_offset: int, end: int) -> None:
        self.end = end
        if self._throttle_ms is not None and throttle_offset >= 0:
            # Never less than the broker's own: the broker does not read this connection for that long.
            told_ms = max(self._throttle_ms, _INT32.unpack_from(self._frame, throttle_offset)[0])
            self._splicer.tell(throttle_offset, told_ms)
