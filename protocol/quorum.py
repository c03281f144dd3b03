"""DescribeQuorum responses from version 2 on, which contain the addresses of KRaft controllers (KIP-853).

These may be hosts of brokers; no client connects to them, and the proxy has no address for them. So each node keeps its
id, and its listeners are removed.
"""

from typing import Final

from protocol.errors import Cause, ProtocolError
from protocol.fields import Fields
from protocol.locator import response_body_offset
from protocol.overlay import DESCRIBE_QUORUM
from protocol.table import ApiSpec
from protocol.varint import encode_varint

_NO_LISTENERS: Final = b"\x01"
_REPLICA_BYTES: Final = 4 + 16 + 8 + 8 + 8
"""replica_id, replica_directory_id, log_end_offset, last_fetch_timestamp, last_caught_up_timestamp."""


def names_controllers(spec: ApiSpec) -> bool:
    """Whether responses of this version have such addresses."""
    return spec.api_key == DESCRIBE_QUORUM and spec.api_version >= 2


def without_listeners(spec: ApiSpec, frame: bytes) -> bytes:
    """Return a whole response without the listeners of its nodes. Raises ProtocolError."""
    try:
        body = response_body_offset(spec, frame, 0)
    except IndexError:
        raise ProtocolError(Cause.BAD_BODY, f"{spec} response of {len(frame)} bytes ends too early") from None
    fields = Fields(f"{spec} response", frame, body, len(frame), flexible=True)
    fields.skip(2)  # error_code
    fields.string()  # error_message
    for _ in range(fields.counted()):
        fields.string()
        for _ in range(fields.counted()):
            _skip_partition(fields)
        fields.tags()
    begin = fields.at
    nodes = [_node(fields, frame) for _ in range(fields.counted())]
    payload = frame[4:begin] + encode_varint(len(nodes) + 1) + b"".join(nodes) + frame[fields.at :]
    return len(payload).to_bytes(4, "big") + payload


def _skip_partition(fields: Fields) -> None:
    fields.skip(4 + 2)  # partition_index, error_code
    fields.string()  # error_message
    fields.skip(4 + 4 + 8)  # leader_id, leader_epoch, high_watermark
    for _ in range(2):  # current_voters, observers
        for _ in range(fields.counted()):
            fields.skip(_REPLICA_BYTES)
            fields.tags()
    fields.tags()


def _node(fields: Fields, frame: bytes) -> bytes:
    begin = fields.at
    fields.skip(4)
    node_id = frame[begin : fields.at]
    for _ in range(fields.counted()):
        fields.string()  # name
        fields.string()  # host
        fields.skip(2)  # port
        fields.tags()
    begin = fields.at
    fields.tags()
    return node_id + _NO_LISTENERS + frame[begin : fields.at]
