"""Empty Fetch responses, as a broker sends them to a client over its quota."""

from struct import Struct
from typing import Final, NamedTuple

from protocol.headers import FETCH
from protocol.table import ApiSpec

INVALID_FETCH_SESSION_EPOCH: Final = 71
"""Makes a consumer start a new fetch session and close the current one (FetchSessionHandler)."""

_SESSION: Final = Struct(">ii")
_INT: Final = Struct(">i")
_BEHIND_LIMITS: Final = 9
"""The size of min_bytes, max_bytes and isolation_level, which precede the session."""


class FetchSession(NamedTuple):
    """The session of a Fetch (KIP-227): epoch 0 requests a new one, -1 none."""

    session_id: int
    epoch: int


NO_SESSION: Final = FetchSession(0, -1)


def fetch_session(spec: ApiSpec, frame: bytes, limits_offset: int) -> FetchSession:
    """Return the session of a whole Fetch request, whose min_bytes is at ``limits_offset``."""
    offset = limits_offset + _BEHIND_LIMITS
    if spec.api_version < 7 or offset + _SESSION.size > len(frame):
        return NO_SESSION
    return FetchSession(*_SESSION.unpack_from(frame, offset))


def empty_answer(spec: ApiSpec, correlation_id: int, throttle_ms: int, session: FetchSession) -> bytes:
    """Return a Fetch response without partitions (FetchContext.getThrottledResponse).

    Without a session it reports no error. Within a session the broker expects the next epoch but never saw this Fetch,
    so the client is told to start a new session, and repeats the content of this request in it.
    """
    body = b""
    if spec.api_version >= 1:
        body = _INT.pack(throttle_ms)
    if spec.api_version >= 7:
        error = INVALID_FETCH_SESSION_EPOCH if session.epoch > 0 else 0
        body += error.to_bytes(2, "big") + _INT.pack(0)
    # No topics; in flexible versions an empty compact array and no tagged fields, also after the header.
    body += b"\x01\x00" if spec.flexible else _INT.pack(0)
    header = _INT.pack(correlation_id) + (b"\x00" if spec.response_header_version else b"")
    return _INT.pack(len(header) + len(body)) + header + body


def partitions_in(spec: ApiSpec, limits_offset: int, end: int) -> int:
    """Estimate the number of partitions in a Fetch that ends at ``end``, from its size: 0 for a ShareFetch.

    ``limits_offset`` is the offset of min_bytes, or of the body before v3. Topic names count as partitions: walking
    through all topics would take longer than most fetches do.
    """
    version = spec.api_version
    if spec.api_key != FETCH:
        return 0
    before_topics = 12 if version < 4 else _BEHIND_LIMITS + (_SESSION.size if version >= 7 else 0)
    each = 16 + (8 if version >= 5 else 0) + (4 if version >= 9 else 0) + (5 if version >= 12 else 0)
    return max(end - limits_offset - before_topics, 0) // each
