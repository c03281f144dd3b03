"""The groups that a request names in its first field, read while its body streams past without being kept: a group, or
an array of groups. Only names as long as that of ``group`` are looked at, so a client may claim any length.
"""

from protocol.table import ApiSpec
from protocol.varint import decode_varint


class GroupNames:
    """The reader of one request, fed its body from the first byte."""

    __slots__ = ("_group", "_held", "_is_array", "_left", "_skip", "spec")

    def __init__(self, spec: ApiSpec, group: bytes, *, is_array: bool) -> None:
        self.spec = spec
        self._group = group
        self._is_array = is_array
        """Whether the number of names comes next."""
        self._left = 1
        """Names that are still to come."""
        self._held = b""
        """The begin of a field that was not all there."""
        self._skip = 0
        """Bytes of a name of another length that are still to come."""

    def feed(self, data: bytes, start: int, stop: int) -> list[bytes]:
        """Read data[start:stop], the next bytes; return the group if it is named in them."""
        if not self._left:
            return []
        skipped = min(self._skip, stop - start)
        self._skip -= skipped
        data, at = self._held + data[start + skipped : stop], 0
        while self._left and not self._skip:
            length, begin = self._length(data, at)
            if begin is None:
                break
            if self._is_array:
                self._is_array, self._left = False, length
            elif length != len(self._group):
                self._left -= 1
                self._skip = max(begin + length - len(data), 0)
                begin = min(begin + length, len(data))
            elif begin + length > len(data):
                break
            else:
                self._left -= 1
                name, begin = data[begin : begin + length], begin + length
                if name == self._group:
                    self._left = 0
                    return [name]
            at = begin
        self._held = data[at:]
        return []

    def _length(self, data: bytes, at: int) -> tuple[int, int | None]:
        """Return a length, 0 for null, and where it ends; None if it is not all there."""
        if self.spec.flexible:
            try:
                length, end = decode_varint(data, at)
            except IndexError:
                return 0, None
            return max(length - 1, 0), end
        end = at + (4 if self._is_array else 2)
        return max(int.from_bytes(data[at:end], "big", signed=True), 0), end if end <= len(data) else None
