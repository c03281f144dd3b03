"""Hypothesis strategies for the values of any response in the API table."""

from typing import Any

from hypothesis import strategies as st

from protocol.layout import ARRAY, STRUCT, Field, parse_layout
from protocol.table import ApiSpec

Values = dict[str, Any]

_BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}
_HOSTS = st.one_of(
    st.just(""),
    st.sampled_from(["kafka-1.internal", "ü.example", "h" * 126, "h" * 127, "h" * 200]),
    st.text("abc.-", min_size=1, max_size=20),
)
_FLOATS = st.floats(allow_nan=False)


def responses(spec: ApiSpec) -> st.SearchStrategy[Values]:
    """Return a strategy for values that tests.protocol.encode takes."""
    return _struct(parse_layout(spec.response_layout).fields)


def requests(spec: ApiSpec) -> st.SearchStrategy[Values]:
    """Return the same for requests."""
    return _struct(parse_layout(spec.request_layout).fields)


def _struct(fields: tuple[Field, ...]) -> st.SearchStrategy[Values]:
    required = {field.name: _value(field) for field in fields if field.tag is None}
    optional = {field.name: _value(field) for field in fields if field.tag is not None}
    return st.fixed_dictionaries(required, optional=optional)


def _value(field: Field) -> st.SearchStrategy[Any]:
    values = _present(field)
    return st.none() | values if field.nullable else values


def _present(field: Field) -> st.SearchStrategy[Any]:  # noqa: PLR0911  a table of types
    if field.type == ARRAY:
        items = _value(Field("", field.element)) if field.element else _struct(field.fields)
        return st.lists(items, max_size=3)
    if field.type == STRUCT:
        return _struct(field.fields)
    match field.type:
        case "string":
            return _HOSTS if field.name == "host" else st.text(max_size=10) | st.just("x" * 130)
        case "bytes" | "records":
            return st.binary(max_size=150)
        case "bool":
            return st.booleans()
        case "uuid":
            return st.binary(min_size=16, max_size=16)
        case "u16" | "u32":
            return st.integers(0, 0xFFFF)
        case "f64":
            return _FLOATS
    return _integer(field)


def _integer(field: Field) -> st.SearchStrategy[int]:
    if field.name in ("node_id", "broker_id"):
        return st.integers(-1, 5)
    if field.name.endswith("error_code"):
        return st.integers(-1, 100)  # kio knows error codes by name
    if "time" in field.name or field.name.endswith("_ms"):
        return st.integers(0, 2_000_000_000)  # kio reads these as dates and durations
    most = 2 ** (_BITS[field.type] - 1) - 1
    return st.sampled_from([-1, 0, 1, 100, -most - 1, most])
