"""The controller that Metadata and DescribeCluster name.

A KRaft broker names any broker, each time another one: all of them pass requests on to the controller. Sluice names one
instead, the same in all answers, so that what is asked of "the controller" comes to one process and is counted once.
"""

from struct import Struct, error
from typing import Final

from protocol.cluster_ids import read_string
from protocol.compile import Endpoint
from protocol.errors import Cause, ProtocolError
from protocol.locator import response_body_offset
from protocol.overlay import DESCRIBE_CLUSTER, METADATA
from protocol.table import ApiSpec

_INT32: Final = Struct(">i")
_OF_BROKERS: Final = 1
"""EndpointType of DescribeCluster: the answer lists brokers, not controllers."""


def name_controller(
    spec: ApiSpec, frame: bytes, end: int, written: bytes, node_id: int, *, is_whole: bool
) -> tuple[int, bytes] | None:
    """Name the controller in an answer whose list of brokers, up to ``end``, has become ``written``: return how far
    ``frame`` is replaced, and by what. None if more of the frame is needed; ProtocolError if all of it is there.
    """
    try:
        offset = _controller_offset(spec, frame, end)
    except (IndexError, error):
        if not is_whole:
            return None
        raise _incomplete(spec, frame) from None
    if offset is not None and offset >= end:
        written += frame[end : offset + _INT32.size]
        offset, end = len(written) - _INT32.size, offset + _INT32.size
    return end, _replace_controller(written, offset, node_id)


def is_candidate(spec: ApiSpec, frame: bytes, broker: Endpoint) -> bool:
    """Whether a broker in an answer that names a controller may be that: it has an address, and is not fenced."""
    if broker.node_id < 0 or not broker.host or spec.api_key not in (METADATA, DESCRIBE_CLUSTER):
        return False
    if spec.api_key == METADATA or spec.api_version < 2:
        return True
    _, end = read_string(spec, frame, broker.port_offset + _INT32.size)  # the rack
    return not frame[end]


def _controller_offset(spec: ApiSpec, frame: bytes, brokers_end: int) -> int | None:
    """Return the offset of controller_id in an answer whose list of brokers ends at ``brokers_end``; None if it has
    none. Raises IndexError, struct.error or ProtocolError if the frame ends before it.
    """
    if spec.api_key == METADATA:
        offset = brokers_end
        if spec.api_version == 0:
            return None
        if spec.api_version > 1:
            _, offset = read_string(spec, frame, offset)  # the cluster id
    elif spec.api_key == DESCRIBE_CLUSTER:
        message_offset = response_body_offset(spec, frame, 0) + 6  # after throttle_time_ms and error_code
        _, offset = read_string(spec, frame, message_offset)
        if spec.api_version > 0:
            if frame[offset] != _OF_BROKERS:
                return None
            offset += 1
        _, offset = read_string(spec, frame, offset)  # the cluster id
    else:
        return None
    return offset if _INT32.unpack_from(frame, offset)[0] >= 0 else None


def _incomplete(spec: ApiSpec, frame: bytes) -> ProtocolError:
    """Return the error of an answer that ends before controller_id."""
    return ProtocolError(Cause.BAD_BODY, f"{spec} response of {len(frame)} bytes ends before controller_id")


def _replace_controller(frame: bytes, offset: int | None, node_id: int) -> bytes:
    """Return ``frame`` with ``node_id`` at ``offset``, None for unchanged."""
    if offset is None:
        return frame
    return frame[:offset] + _INT32.pack(node_id) + frame[offset + _INT32.size :]
