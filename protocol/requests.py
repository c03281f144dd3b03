"""The requests that the proxy sends for itself.

Packed by hand: a codec costs a tenth of a second at start, and those there are lack delegation tokens. All are of
versions without tagged fields, so their headers are v1, and those of the answers v0.
"""

from struct import Struct
from typing import Final, NamedTuple

from protocol.overlay import API_VERSIONS, METADATA
from protocol.table import SPECS, ApiSpec, key_version

_HEADER: Final = Struct(">ihhih")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_EMPTY_ARRAY: Final = b"\0\0\0\0"
_NULL_ARRAY: Final = b"\xff\xff\xff\xff"


class Request(NamedTuple):
    """A request of the proxy's own, but for what differs each time it is sent."""

    api_key: int
    version: int
    body: bytes

    @property
    def spec(self) -> ApiSpec:
        """What the answer is read by."""
        return SPECS[key_version(self.api_key, self.version)]

    def frame(self, client_id: str, correlation_id: int) -> bytes:
        """Return the whole frame, its size included."""
        encoded = client_id.encode()
        size = _HEADER.size - 4 + len(encoded) + len(self.body)
        return _HEADER.pack(size, self.api_key, self.version, correlation_id, len(encoded)) + encoded + self.body


WHICH_VERSIONS: Final = Request(API_VERSIONS, 0, b"")
"""What a broker answers to anybody, before any authentication."""

WHICH_BROKERS: Final = Request(METADATA, 1, _EMPTY_ARRAY)
"""Metadata of no topics (v0 cannot ask for none; null would be all of them)."""

NOT_AUTHENTICATED: Final = Struct(">iii").pack(0, -1, 0)
"""What stands behind the header of the answer to WHICH_BROKERS where the client is not authenticated: no broker, no
controller, no topic (MetadataRequest.getErrorResponse)."""

WHICH_TOKENS: Final = Request(41, 1, _NULL_ARRAY)
"""DescribeDelegationToken of all owners: the broker answers with the tokens that the asker may describe."""


def sasl_handshake(mechanism: str) -> Request:
    """Return the SaslHandshake after which tokens travel in SaslAuthenticate (v0 would mean raw frames)."""
    encoded = mechanism.encode()
    return Request(17, 1, _INT16.pack(len(encoded)) + encoded)


def sasl_authenticate(token: bytes) -> Request:
    """Return the SaslAuthenticate that carries ``token``; v0, because nobody here lives to re-authenticate."""
    return Request(36, 0, _INT32.pack(len(token)) + token)
