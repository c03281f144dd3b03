"""What clients have the proxy keep of what they sent: bounded for all of them together, not for each alone.

It counts what has come of requests that are not whole yet (a SASL token, an AlterClientQuotas, a CreateTopics under a
quota), and all that is kept of connections that have not proved who they are. A few KiB are everybody's: no login of
a usual length ever ends because strangers have begun long ones.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from proxy.session.pair import Pair

FREE_BYTES: Final = 16 * 1024
"""Of each connection, which are not counted."""
MOST_BYTES: Final = 64 * 1024 * 1024


class Gathering:
    """The connections of which more is kept than is everybody's."""

    __slots__ = ("_kept", "bytes", "most_bytes")

    def __init__(self) -> None:
        self._kept: dict[Pair, int] = {}
        self.bytes = 0
        """Kept of all of them together."""
        self.most_bytes = MOST_BYTES

    def note(self, pair: "Pair", kept_bytes: int) -> "Pair | None":
        """Take note of how much is kept of ``pair``. Where all is too much, return whose connection is to be closed:
        that of which most is kept.
        """
        self.bytes += kept_bytes - self._kept.get(pair, 0)
        self._kept[pair] = kept_bytes
        if self.bytes <= self.most_bytes:
            return None
        return max(self._kept, key=lambda each: self._kept[each])

    def forget(self, pair: "Pair") -> None:
        """Take note that nothing is kept of ``pair`` any more, or no more than is everybody's."""
        self.bytes -= self._kept.pop(pair, 0)
