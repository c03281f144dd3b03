"""A Fetch that is answered with nothing, as a broker answers one that is over its quota."""

from struct import Struct
from typing import Final, NamedTuple

from protocol.headers import FETCH
from protocol.table import ApiSpec

INVALID_FETCH_SESSION_EPOCH: Final = 71
"""Makes a consumer begin another fetch session: it closes the one that it had (FetchSessionHandler)."""

_SESSION: Final = Struct(">ii")
_INT: Final = Struct(">i")
_BEHIND_LIMITS: Final = 9
"""From min_bytes to the session: min_bytes, max_bytes, isolation_level."""


class FetchSession(NamedTuple):
    """The session that a Fetch belongs to (KIP-227): epoch 0 asks for one, -1 for none."""

    session_id: int
    epoch: int


NO_SESSION: Final = FetchSession(0, -1)


def fetch_session(spec: ApiSpec, frame: bytes, limits_offset: int) -> FetchSession:
    """Return the session of a whole Fetch request, whose min_bytes stands at ``limits_offset``."""
    offset = limits_offset + _BEHIND_LIMITS
    if spec.api_version < 7 or offset + _SESSION.size > len(frame):
        return NO_SESSION
    return FetchSession(*_SESSION.unpack_from(frame, offset))


def empty_answer(spec: ApiSpec, correlation_id: int, throttle_ms: int, session: FetchSession) -> bytes:
    """Return an answer of a Fetch version without any partition (FetchContext.getThrottledResponse).

    Without a session that is no error. Within one the broker would count this Fetch, and does not, so the client is
    told to begin another session: what it had to say in this request it then says again.
    """
    body = b""
    if spec.api_version >= 1:
        body = _INT.pack(throttle_ms)
    if spec.api_version >= 7:
        error = INVALID_FETCH_SESSION_EPOCH if session.epoch > 0 else 0
        body += error.to_bytes(2, "big") + _INT.pack(0)
    # No topics; in flexible versions a compact array of none, and no tagged fields, also behind the header.
    body += b"\x01\x00" if spec.flexible else _INT.pack(0)
    header = _INT.pack(correlation_id) + (b"\x00" if spec.response_header_version else b"")
    return _INT.pack(len(header) + len(body)) + header + body


def partitions_in(spec: ApiSpec, limits_offset: int, end: int) -> int:
    """Return roughly how many partitions a Fetch lists that ends at ``end``, by its size: 0 for a ShareFetch.

    ``limits_offset`` is that of min_bytes, or of the body before v3. Topic names count as if they were partitions: to
    walk through all topics would take longer than most fetches do.
    """
    version = spec.api_version
    if spec.api_key != FETCH:
        return 0
    before_topics = 12 if version < 4 else _BEHIND_LIMITS + (_SESSION.size if version >= 7 else 0)
    each = 16 + (8 if version >= 5 else 0) + (4 if version >= 9 else 0) + (5 if version >= 12 else 0)
    return max(end - limits_offset - before_topics, 0) // each
