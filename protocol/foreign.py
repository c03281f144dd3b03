"""Detection of other protocols by their first four bytes, where Kafka has the frame size."""

from typing import Final

from protocol.errors import Cause, ProtocolError

_TLS_RECORDS: Final = (0x1503, 0x1603)
"""A TLS alert and a handshake, version 3.x: every TLS connection begins with one of them."""
_PROXY_PROTOCOL: Final = (int.from_bytes(b"PROX", "big"), int.from_bytes(b"\r\n\r\n", "big"))


def foreign(size: int) -> ProtocolError | None:
    """Return the error for a frame size that is the start of another protocol, or None."""
    if size >> 16 in _TLS_RECORDS:
        return ProtocolError(Cause.TLS_ON_PLAINTEXT, "TLS on a plaintext listener")
    if size in _PROXY_PROTOCOL:
        return ProtocolError(
            Cause.PROXY_PROTOCOL_NOT_ALLOWED, "a PROXY protocol header, which this listener does not allow"
        )
    if size.to_bytes(4, "big").strip(b"\r\n").decode("latin-1").isprintable():
        return ProtocolError(Cause.NOT_KAFKA, "text where Kafka has the size of a frame, as HTTP and SSH begin")
    return None
