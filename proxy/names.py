"""The one place where a client-id comes off the wire: what is behind it never sees one that is too long."""

from protocol import headers
from protocol.table import ApiSpec
from quotas.names import counted_as


def client_id(spec: ApiSpec, data: bytes, start: int) -> str:
    """Return the client-id of the request at ``start``, whose header is complete, as it is counted; null is ""."""
    return counted_as(headers.client_id(spec, data, start))
