"""A walk through a long response as it comes: the brokers' addresses at its end are replaced, the rest passes unseen.

From Fetch v16 on (KIP-951), and in ShareFetch and ShareAcknowledge (KIP-932), the addresses are behind the records.
Only the end of the frame, from the addresses on, is held: ``MOST_HELD_BYTES`` at most.

A claim allocates nothing: a length or count that the rest of the frame cannot hold raises ProtocolError.
"""

from typing import Final

from protocol.errors import ProtocolError
from protocol.frame_end import bad_end, begin_blank, rewritten_end
from protocol.outline import BLOB, ELEMENTS, TAGS, Outline
from protocol.splicer import Told

MOST_HELD_BYTES: Final = 8 * 1024
"""The longest end that is held: some 150 brokers. A longer one is replaced by one that names nobody."""


class ResumableWalk:
    """The walk through one response, whose frame has ``size`` bytes behind its size field.

    ``left`` is the number of bytes of the frame that are still to come.
    """

    __slots__ = (
        "_blank",
        "_counts",
        "_held",
        "_outline",
        "_shift",
        "_skip",
        "_step",
        "_tags",
        "_told",
        "_value",
        "left",
    )

    def __init__(self, outline: Outline, size: int, told: Told) -> None:
        self._outline = outline
        self._told = told
        self.left = 4 + size
        self._step = 0
        self._skip = outline.ahead[0]  # bytes until the varint of the step
        self._value = self._shift = 0  # of a varint of which more is to come
        self._tags = 0  # varints to come of a section of tagged fields: even, the next is a tag; odd, a size
        self._counts: list[int] = []  # elements to come of the arrays around the step
        self._held: bytearray | None = None  # the end, as far as it came
        self._blank: bytes | None = None  # what goes in place of an end that is too long; zeros follow

    @property
    def opaque(self) -> int:
        """How many bytes to come may pass without ``take``, if ``pass_over`` is told of them."""
        return self._skip if self._held is None and self._skip < self.left else 0

    def pass_over(self, count: int) -> None:
        self._skip -= count
        self.left -= count

    def take(self, data: bytes, start: int) -> tuple[int, bytes]:
        """Read the frame's next bytes, from ``start`` on; return up to where they pass, and what follows instead of the
        rest of them.

        Raises ProtocolError for a response that is not well-formed: then none of them may pass.
        """
        stop = start
        if self._held is None:
            limit = start + self.left
            stop = self.read(data, start)
            if stop == len(data):
                return stop, b""
            if limit <= len(data) and data[stop:limit] == self._outline.names_nobody:
                self.left = 0
                return limit, b""
            self._held = bytearray()
            if self.left > MOST_HELD_BYTES:
                self._blank = begin_blank(self._outline, self.left)
        came = data[stop : stop + self.left]
        self.left -= len(came)
        if self._blank is not None:
            written = self._blank[: len(came)].ljust(len(came), b"\0")
            self._blank = self._blank[len(came) :]
            return stop, written
        self._held += came
        return stop, b"" if self.left else rewritten_end(self._outline, bytes(self._held), self._told)

    def read(self, data: bytes, start: int) -> int:  # noqa: C901, PLR0912, PLR0915  split up, it takes half as long again
        """Walk on to the end, or as far as ``data`` goes; return the offset reached. Raises ProtocolError."""
        outline, counts = self._outline, self._counts
        kinds, jumps, ahead, last = outline.kinds, outline.jumps, outline.ahead, len(outline.kinds)
        step, tags, shift = self._step, self._tags, self._shift
        limit = start + self.left
        stop = min(len(data), limit)
        position = start + self._skip
        while position < stop and step != last:
            value = data[position]
            position += 1
            if value > 0x7F or shift:
                value, more = self._value | (value & 0x7F) << shift, value > 0x7F
                self._value = value if more else 0
                if more:
                    if shift == 28:
                        raise self._bad("a varint of more than 5 bytes", limit - position)
                    shift += 7
                    continue
                shift = 0
            skip = 0
            kind = TAGS if tags else kinds[step]
            if kind == BLOB:
                skip = value - 1 if value else 0
                step += 1
            elif kind == ELEMENTS and value > 1:
                if (value - 1) * outline.least[step] > limit - position:
                    raise self._bad(f"{value - 1} elements are claimed", limit - position)
                counts.append(value - 1)
                step += 1
            elif kind == ELEMENTS:  # none, or null
                step = jumps[step]
            else:
                if not tags:
                    tags = value + value
                    if tags > limit - position:
                        raise self._bad(f"{value} tagged fields are claimed", limit - position)
                else:
                    tags -= 1
                    skip = 0 if tags & 1 else value
                if not tags and jumps[step] and counts[-1] > 1:
                    counts[-1] -= 1
                    step = jumps[step]
                elif not tags:
                    if jumps[step]:
                        counts.pop()
                    step += 1
            if not tags:
                skip += ahead[step]
            if position + skip >= limit:  # at least the end of the frame follows
                raise self._bad(f"{skip} bytes are claimed", limit - position)
            position += skip
        if position >= limit:
            raise self._bad("it ends too early", 0)
        self._step, self._tags, self._shift = step, tags, shift
        self._skip = max(position - stop, 0)
        position = min(position, stop)
        self.left = limit - position
        return position

    def _bad(self, problem: str, rest: int) -> ProtocolError:
        return bad_end(self._outline, f"{problem}, {rest} bytes before its end")


def names_nobody(outline: Outline, data: bytes, position: int, size: int) -> bool:
    """Whether the response of ``size`` at ``position``, which is complete, names no broker. Raises ProtocolError."""
    end = ResumableWalk(outline, size, _nobody).read(data, position)
    return data[end : position + 4 + size] == outline.names_nobody


def _nobody(_endpoint: object) -> tuple[bytes, int] | None:
    return None
