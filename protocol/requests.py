"""The requests that the proxy sends for itself.

Packed by hand: a codec costs a tenth of a second at start, these have a field or none.
"""

from struct import Struct

from protocol.overlay import API_VERSIONS, METADATA
from protocol.table import SPECS, ApiSpec, key_version

_HEADER = Struct(">ihhih")
_NO_TOPICS = b"\0\0\0\0"  # an empty array; null would be all of them


def api_versions_request(client_id: str, correlation_id: int) -> bytes:
    """Return an ApiVersions v0 request frame: every broker since 0.10 answers it."""
    return _request(API_VERSIONS, 0, client_id, correlation_id, b"")


def metadata_request(client_id: str, correlation_id: int) -> bytes:
    """Return a Metadata v1 request frame for the brokers alone: v0 cannot ask for no topics."""
    return _request(METADATA, 1, client_id, correlation_id, _NO_TOPICS)


def metadata_spec() -> ApiSpec:
    """Return what the answer to ``metadata_request`` is."""
    return SPECS[key_version(METADATA, 1)]


def _request(api_key: int, api_version: int, client_id: str, correlation_id: int, body: bytes) -> bytes:
    encoded = client_id.encode()
    size = _HEADER.size - 4 + len(encoded) + len(body)
    return _HEADER.pack(size, api_key, api_version, correlation_id, len(encoded)) + encoded + body
