"""DescribeClientQuotas and AlterClientQuotas (KIP-546), as server and as client.

An entity is pairs of a type (``user``, ``client-id``, ``ip``) and a name, None for the default. Requests use version 0,
which every broker since 2.6 supports.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from protocol.errors import Cause, ProtocolError
from protocol.headers import MORE, request_body_offset
from protocol.locator import response_body_offset
from protocol.messages import MOST_ELEMENTS, Message, read_message, write_message
from protocol.requests import Request
from protocol.table import SPECS, ApiSpec, key_version

DESCRIBE: Final = 48
ALTER: Final = 49

EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2
"""``match_type`` of a component: a name, the default entity, or any name (ClientQuotaFilterComponent)."""

_MOST_ANSWERED: Final = 2_000_000
"""The most elements of a response: it comes from our own brokers, and is not read on the clients' event loop."""

Named = tuple[str, str | None]
"""Entity type and name; None is the default entity."""


class Component(NamedTuple):
    """A filter component of a DescribeClientQuotas."""

    entity_type: str
    match_type: int
    match: str | None = None


class Op(NamedTuple):
    """A limit of an AlterClientQuotas; ``value`` None removes it."""

    key: str
    value: float | None


class QuotaEntry(NamedTuple):
    """An entity of an AlterClientQuotas. If a type occurs twice, the last one counts, as in a broker."""

    entity: tuple[Named, ...]
    ops: tuple[Op, ...]


class Result(NamedTuple):
    """The result of an entry."""

    entity: tuple[Named, ...]
    error_code: int = 0
    message: str | None = None


class Described(NamedTuple):
    """An entity and its limits, by key."""

    entity: tuple[Named, ...]
    limits: tuple[tuple[str, float], ...]


class Describing(NamedTuple):
    """A DescribeClientQuotas request. ``strict``: entities with other types do not match."""

    components: tuple[Component, ...] = ()
    strict: bool = False


class Altering(NamedTuple):
    """An AlterClientQuotas request."""

    entries: tuple[QuotaEntry, ...]
    validate_only: bool = False


class DescribedAll(NamedTuple):
    """The response to a DescribeClientQuotas; it has no entries if there is an error."""

    entries: tuple[Described, ...] = ()
    error_code: int = 0
    message: str | None = None


# ------------------------------------------------------------------------------------------------------ as server


def read_describing(spec: ApiSpec, frame: bytes) -> Describing:
    """Read a whole DescribeClientQuotas request, size included. Raises ProtocolError."""
    found = _read_request(spec, frame)
    components = tuple(
        Component(each["entity_type"], each["match_type"], each["match"]) for each in found["components"]
    )
    return Describing(components, found["strict"])


def read_altering(spec: ApiSpec, frame: bytes, most_elements: int = MOST_ELEMENTS) -> Altering:
    """Read a whole AlterClientQuotas request, size included. Raises ProtocolError, also if it has too many elements."""
    found = _read_request(spec, frame, most_elements)
    entries = tuple(
        QuotaEntry(
            _entity(each),
            tuple(Op(op["key"], None if op["remove"] else op["value"]) for op in each["ops"]),
        )
        for each in found["entries"]
    )
    return Altering(entries, found["validate_only"])


def described_answer(spec: ApiSpec, correlation_id: int, answer: DescribedAll) -> bytes:
    """Return the whole response to a DescribeClientQuotas."""
    entries = [
        {"entity": _written(each.entity), "values": [{"key": key, "value": value} for key, value in each.limits]}
        for each in answer.entries
    ]
    values = {
        "throttle_time_ms": 0,
        "error_code": answer.error_code,
        "error_message": answer.message if answer.error_code else "",  # "" as a broker sends it
        "entries": None if answer.error_code else entries,
    }
    return _answer(spec, correlation_id, values)


def altered_answer(spec: ApiSpec, correlation_id: int, results: Sequence[Result]) -> bytes:
    """Return the whole response to an AlterClientQuotas."""
    entries = [
        {"error_code": each.error_code, "error_message": each.message, "entity": _written(each.entity)}
        for each in results
    ]
    return _answer(spec, correlation_id, {"throttle_time_ms": 0, "entries": entries})


# ------------------------------------------------------------------------------------------------------ as client


def describe_request(asked: Describing) -> Request:
    """Return the request; ``read_described`` reads its response."""
    components = [each._asdict() for each in asked.components]
    return _request(DESCRIBE, {"components": components, "strict": asked.strict})


def alter_request(asked: Altering) -> Request:
    """Return the request; ``read_altered`` reads its response."""
    entries = [
        {
            "entity": _written(each.entity),
            "ops": [{"key": op.key, "value": op.value or 0.0, "remove": op.value is None} for op in each.ops],
        }
        for each in asked.entries
    ]
    return _request(ALTER, {"entries": entries, "validate_only": asked.validate_only})


def read_described(frame: bytes) -> DescribedAll:
    """Read a whole response to ``describe_request``. Raises ProtocolError."""
    found = _read_answer(DESCRIBE, frame)
    entries = tuple(
        Described(_entity(each), tuple((limit["key"], limit["value"]) for limit in each["values"]))
        for each in found["entries"] or ()
    )
    return DescribedAll(entries, found["error_code"], found["error_message"] or None)


def read_altered(frame: bytes) -> tuple[Result, ...]:
    """Read a whole response to ``alter_request``. Raises ProtocolError."""
    found = _read_answer(ALTER, frame)
    return tuple(Result(_entity(each), each["error_code"], each["error_message"]) for each in found["entries"])


# ----------------------------------------------------------------------------------------------------------- private


def _read_request(spec: ApiSpec, frame: bytes, most_elements: int = MOST_ELEMENTS) -> Message:
    body = request_body_offset(spec, frame, 0, len(frame))
    if body == MORE:
        raise ProtocolError(Cause.BAD_HEADER, f"{spec} request of {len(frame)} bytes ends inside its header")
    return read_message(f"{spec} request", spec.request_layout, frame, body, len(frame), most_elements)


def _read_answer(key: int, frame: bytes) -> Message:
    spec = SPECS[key_version(key, 0)]
    try:
        body = response_body_offset(spec, frame, 0)
    except IndexError:
        raise ProtocolError(Cause.BAD_BODY, f"{spec} response of {len(frame)} bytes ends too early") from None
    return read_message(f"{spec} response", spec.response_layout, frame, body, len(frame), _MOST_ANSWERED)


def _request(key: int, values: Message) -> Request:
    return Request(key, 0, write_message(SPECS[key_version(key, 0)].request_layout, values))


def _answer(spec: ApiSpec, correlation_id: int, values: Message) -> bytes:
    header = correlation_id.to_bytes(4, "big", signed=True) + b"\0" * spec.response_header_version
    body = write_message(spec.response_layout, values)
    return (len(header) + len(body)).to_bytes(4, "big") + header + body


def _entity(message: dict[str, Any]) -> tuple[Named, ...]:
    return tuple((each["entity_type"], each["entity_name"]) for each in message["entity"])


def _written(entity: Sequence[Named]) -> list[Message]:
    return [{"entity_type": entity_type, "entity_name": name} for entity_type, name in entity]
