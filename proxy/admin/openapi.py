"""The OpenAPI document of the state API, drawn from its table (``proxy.state.resources``)."""

from collections.abc import Mapping
from typing import Any, Final, get_args, get_origin, get_type_hints

from proxy import __version__
from proxy.state.paging import DEFAULT, MOST, MOST_OFFSET, MOST_TEXT
from proxy.state.resources import RESOURCES, Resource
from proxy.state.rows import Moment, Point
from proxy.usage.history import Series
from quotas.kinds import QuotaKind

_PLAIN: Final = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_DESCRIPTIONS: Final = {
    "limit": "Items of the page",
    "offset": "Items before the page",
    "sort": "A field; -field from the highest down",
    "q": "A part of the user, client-id or address",
    "all": "1: of all instances",
}
_TEXT: Final = {"type": "string", "maxLength": MOST_TEXT}
_ERRORS: Final = {
    "400": "A parameter is wrong; the error names it and what is allowed",
    "403": "The name in Host is not one of this port",
    "404": "There is no such connection (peer)",
}


def document() -> dict[str, Any]:
    paths = {f"/api/v1/{name}": {"get": _operation(name, each)} for name, each in RESOURCES.items()}
    whole = {"operationId": "openapi", "summary": "This document", "responses": {"200": _answer({"type": "object"})}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Sluice: the state of now", "version": __version__},
        "paths": {**paths, "/api/v1/openapi.json": {"get": whole}},
    }


def _operation(name: str, resource: Resource) -> dict[str, Any]:
    answer = _schema(resource.row)
    if resource.is_list:
        number, named = {"type": "integer"}, {"type": ["string", "null"]}
        fields = {"as_of": _schema(Moment), "total": number, "offset": number, "items": _list(answer)}
        answer = _object(fields)
        answer["properties"] = {**fields, "instances": _list(_object({"instance": named, "error": named}))}
    error = _object({"error": {"type": "string"}})
    return {
        "operationId": name,
        "summary": resource.summary,
        "parameters": [_parameter(each, resource) for each in resource.parameters],
        "responses": {"200": _answer(answer), **{status: _answer(error, why) for status, why in _ERRORS.items()}},
    }


def _parameter(name: str, resource: Resource) -> dict[str, Any]:
    schemas: Mapping[str, dict[str, Any]] = {
        "limit": {"type": "integer", "minimum": 1, "maximum": MOST, "default": DEFAULT},
        "offset": {"type": "integer", "minimum": 0, "maximum": MOST_OFFSET, "default": 0},
        "sort": {
            "type": "string",
            "enum": [f"{sign}{field}" for field in resource.sorts for sign in ("", "-")],
            "default": resource.sort,
        },
        "kind": {"type": "string", "enum": list(map(str, QuotaKind))},
        "broker": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
        "all": {"type": "string", "enum": ["0", "1"]},
    }
    said = _DESCRIPTIONS.get(name, f"Only items with this {name}; empty: without one")
    return {"name": name, "in": "query", "description": said, "schema": schemas.get(name, _TEXT)}


def _schema(hint: Any) -> dict[str, Any]:
    """Return the schema of a type of ``proxy.state.rows`` in JSON."""
    if hint is Moment:
        return {"type": "string", "format": "date-time"}
    if hint is Series:
        return _list(_schema(Point))
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if hasattr(hint, "_fields"):
        return _object({name: _schema(each) for name, each in get_type_hints(hint).items()})
    if get_origin(hint) is tuple:
        return _list(_schema(get_args(hint)[0]))
    if isinstance(get_origin(hint), type) and issubclass(get_origin(hint), Mapping):
        return {"type": "object"}
    return {"anyOf": [_schema(each) for each in get_args(hint)]}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _object(fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def _answer(schema: dict[str, Any], said: str = "The answer") -> dict[str, Any]:
    return {"description": said, "content": {"application/json": {"schema": schema}}}
