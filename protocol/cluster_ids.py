"""The cluster id in a Metadata response, which follows the brokers."""

from collections.abc import Sequence
from struct import Struct, error
from typing import Final

from protocol.compile import Endpoint
from protocol.errors import ProtocolError
from protocol.table import ApiSpec
from protocol.varint import decode_varint, skip_tags

_INT16: Final = Struct(">h")
_PORT_BYTES: Final = 4
_FIRST_VERSION: Final = 2
_MOST_BYTES: Final = 255
"""The longest accepted id; Kafka's own have 22 bytes."""


def cluster_id_behind(spec: ApiSpec, frame: bytes, brokers: Sequence[Endpoint]) -> str:
    """Return the cluster id of a whole response with these ``brokers``; "" if it has none."""
    if spec.api_version < _FIRST_VERSION or not brokers:
        return ""
    try:
        _, offset = read_string(spec, frame, brokers[-1].port_offset + _PORT_BYTES)  # the rack
        if spec.flexible:
            offset = skip_tags(frame, offset)
    except (IndexError, error, ProtocolError):
        return ""
    return cluster_id_at(spec, frame, offset)


def cluster_id_at(spec: ApiSpec, data: bytes, offset: int) -> str:
    """Return the cluster id at ``offset``; "" if there is none or it is incomplete."""
    if spec.api_version < _FIRST_VERSION:
        return ""
    try:
        cluster_id, end = read_string(spec, data, offset)
    except (IndexError, error, ProtocolError):
        return ""
    if end > len(data) or len(cluster_id) > _MOST_BYTES:
        return ""
    return cluster_id.decode("ascii") if cluster_id.isascii() and cluster_id.decode("ascii").isprintable() else ""


def read_string(spec: ApiSpec, data: bytes, offset: int) -> tuple[bytes, int]:
    """Return a nullable string (null as empty) and its end."""
    if spec.flexible:
        length, start = decode_varint(data, offset)
        length -= 1
    else:
        (length,), start = _INT16.unpack_from(data, offset), offset + _INT16.size
    end = start + max(length, 0)
    return data[start:end], end
