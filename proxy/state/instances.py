"""Asks the other instances for their part of a list (``?all=1``), at their admin ports, by the map of owners."""

import asyncio
from collections.abc import Callable, Mapping
from functools import lru_cache, reduce
from operator import or_
from types import UnionType
from typing import Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from config.units import Address
from proxy.brokers.failures import describe
from proxy.runtime.http_get import Get
from proxy.state.resources import RESOURCES
from proxy.state.rows import Moment, Point
from proxy.usage.history import Series

ANSWER_S: Final = 2.0
_MOST_BYTES: Final = 16 * 1024 * 1024
_STRICT: Final = ConfigDict(strict=True, protected_namespaces=())

Others = Callable[[], Mapping[str, tuple[str, int] | None]]
"""Returns the other instances and their admin ports, None where that is not known."""


class Heard(NamedTuple):
    """The part of one instance."""

    instance: str
    error: str | None
    total: int = 0
    items: list[dict[str, Any]] = []  # noqa: RUF012  read only


async def ask_all(others: Others, get: Get, resource: str, parameters: Mapping[str, str]) -> list[Heard]:
    """Return what each other instance answers within ANSWER_S; they are all asked at once, and ask nobody in turn."""
    path = f"/api/v1/{resource}?{urlencode(parameters)}"
    return await asyncio.gather(*(_ask(get, name, at, resource, path) for name, at in sorted(others().items())))


async def _ask(get: Get, instance: str, at: tuple[str, int] | None, resource: str, path: str) -> Heard:
    if at is None:
        return Heard(instance, "its admin port is not known, or not reachable from here (admin.bind)")
    try:
        answer = await get(instance, at, path, ANSWER_S, _MOST_BYTES)
        if answer.status != 200:
            return Heard(instance, f"answers with status {answer.status}")
        return await asyncio.to_thread(_read, instance, resource, answer.body)
    except ValidationError:
        return Heard(instance, "its answer is not understood: is it of another version?")
    except TimeoutError as error:
        return Heard(instance, str(error))
    except OSError as error:
        return Heard(instance, f"{Address(*at)}: {describe(error)}")


def _read(instance: str, resource: str, body: bytes) -> Heard:
    """Return the items of an answer. Raises ValidationError if they are not as this instance would have them."""
    said = _schema(resource).model_validate_json(body).model_dump()
    for item in said["items"]:
        item["instance"] = instance
    return Heard(instance, None, said["total"], said["items"])


@lru_cache
def _schema(resource: str) -> type[BaseModel]:
    """Return the schema of an answer. A newer version may have more fields: they are left out."""
    items: Any = list[_in_json(RESOURCES[resource].row)]  # type: ignore[misc]  # not known before
    return create_model("Answer", __config__=_STRICT, total=(int, ...), items=(items, ...))


def _in_json(hint: Any) -> Any:
    """Return the type in JSON of a field of a row, or of a row, as ``as_json`` writes them."""
    if hint is Moment:
        return str
    if hint is Series:
        return list[_in_json(Point)]  # type: ignore[misc]  # likewise
    if hasattr(hint, "_fields"):
        fields: dict[str, Any] = {name: (_in_json(each), ...) for name, each in get_type_hints(hint).items()}
        return create_model(hint.__name__, __config__=_STRICT, **fields)
    parts = tuple(each if each is ... else _in_json(each) for each in get_args(hint))
    if get_origin(hint) in (Union, UnionType):
        return reduce(or_, parts)
    return get_origin(hint)[parts] if parts else hint
