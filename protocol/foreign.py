"""Other protocols, told by their first four bytes where Kafka has the size of a frame."""

from typing import Final

from protocol.errors import Cause, ProtocolError

_TLS_RECORDS: Final = (0x1503, 0x1603)
"""An alert and a handshake, of version 3.x: every TLS connection begins with one or the other."""
_PROXY_PROTOCOL: Final = (int.from_bytes(b"PROX", "big"), int.from_bytes(b"\r\n\r\n", "big"))


def foreign(size: int) -> ProtocolError | None:
    """Return what a frame size above the limit really is, None if nothing is known that begins so."""
    if size >> 16 in _TLS_RECORDS:
        return ProtocolError(Cause.TLS_ON_PLAINTEXT, "TLS on a plaintext listener")
    if size in _PROXY_PROTOCOL:
        return ProtocolError(
            Cause.PROXY_PROTOCOL_NOT_ALLOWED, "a PROXY protocol header, which this listener does not allow"
        )
    return None
