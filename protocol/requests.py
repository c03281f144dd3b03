"""The proxy's own requests.

Packed by hand: importing a codec takes a tenth of a second at start, and the existing ones lack delegation tokens. All
versions but that of ``are_you`` are without tagged fields, so request headers are v1 and response headers v0.
"""

from struct import Struct
from typing import Final, NamedTuple

from protocol.overlay import API_VERSIONS, METADATA
from protocol.table import SPECS, ApiSpec, key_version
from protocol.varint import encode_varint

_HEADER: Final = Struct(">ihhih")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_EMPTY_ARRAY: Final = b"\0\0\0\0"
_NO_TAGS: Final = b"\0"
_NULL_ARRAY: Final = b"\xff\xff\xff\xff"


class Request(NamedTuple):
    """A request of the proxy's own, without client-id and correlation id."""

    api_key: int
    version: int
    body: bytes

    @property
    def spec(self) -> ApiSpec:
        """The spec to read the response with."""
        return SPECS[key_version(self.api_key, self.version)]

    def frame(self, client_id: str, correlation_id: int) -> bytes:
        """Return the whole frame, its size included."""
        encoded = client_id.encode()
        size = _HEADER.size - 4 + len(encoded) + len(self.body)
        return _HEADER.pack(size, self.api_key, self.version, correlation_id, len(encoded)) + encoded + self.body


WHICH_VERSIONS: Final = Request(API_VERSIONS, 0, b"")
"""ApiVersions v0, which a broker answers before any authentication."""

WHICH_BROKERS: Final = Request(METADATA, 2, _EMPTY_ARRAY)
"""Metadata of no topics (v0 cannot ask for none; null would be all of them); from v2 on it tells the cluster's id."""

NOT_AUTHENTICATED: Final = Struct(">ihii").pack(0, -1, -1, 0)
"""The body of the response to WHICH_BROKERS if the client is not authenticated: no broker, no cluster id, no
controller, no topic (MetadataRequest.getErrorResponse).
"""

WHICH_TOKENS: Final = Request(41, 1, _NULL_ARRAY)
"""DescribeDelegationToken of all owners: the response has the tokens that the user may describe."""


def are_you(cluster_id: str, node_id: int) -> Request:
    """Return an ApiVersions v5, which a broker from 4.4 on refuses if it is another node, before any authentication
    (KIP-1242). Older ones answer that they do not know that version.
    """
    compact = b"".join(encode_varint(len(text) + 1) + text.encode() for text in ("sluice", "0", cluster_id))
    return Request(API_VERSIONS, 5, _NO_TAGS + compact + _INT32.pack(node_id) + _NO_TAGS)  # the header's tags go first


def sasl_handshake(mechanism: str) -> Request:
    """Return a SaslHandshake v1, after which tokens travel in SaslAuthenticate (v0 would mean raw frames)."""
    encoded = mechanism.encode()
    return Request(17, 1, _INT16.pack(len(encoded)) + encoded)


def sasl_authenticate(token: bytes) -> Request:
    """Return a SaslAuthenticate with ``token``; v0, because these connections never re-authenticate."""
    return Request(36, 0, _INT32.pack(len(token)) + token)
