"""What the cases of ``quotas.json`` are made of, and how an answer is compared with what a case expects."""

import json
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from quotas.entities import Default, Entity, Name
from quotas.rate import Window

Case = Mapping[str, Any]
Answers = Iterator[object]
"""A kind yields one answer, or several where more than one is right; the case passes if any is as expected."""


class UnknownMemberError(Exception):
    """A case says something that its kind does not document: never silently passed over."""


@dataclass(frozen=True, slots=True)
class Json:
    """An answer that the file gives as JSON text and that is compared by value, not byte for byte."""

    value: object


def window_of(inputs: Case) -> Window:
    return Window(inputs.get("samples", 11), int(inputs.get("window_s", 1) * 1000))


def entity_of(row: Case) -> Entity:
    return Entity(name_of(row.get("user")), name_of(row.get("client")), name_of(row.get("ip")))


def name_of(value: object) -> Name:
    if isinstance(value, dict):
        if value != {"default": True}:
            raise UnknownMemberError(f"name {value}")
        return Default.DEFAULT
    if value is None or isinstance(value, str):
        return value
    raise UnknownMemberError(f"name {value!r}")


# How far an answer may be from the expected number; what is named in _ms, and every int, is compared exactly.
Close = Callable[[float, float], bool]
EXACT: Close = operator.eq
TOLERANCES: dict[str, Close] = {
    "rate": partial(math.isclose, rel_tol=1e-9),
    "connection": partial(math.isclose, rel_tol=1e-9, abs_tol=1e-12),
    "fetch_cap": partial(math.isclose, rel_tol=1e-9),
    "token_bucket": partial(math.isclose, rel_tol=0.0, abs_tol=1e-6),
}


def difference(expected: object, got: object, close: Close, where: str = "") -> str | None:
    """Return where ``got`` first differs from ``expected``, None if nowhere. Members not expected are ignored."""
    if isinstance(expected, dict) and isinstance(got, dict) and expected:
        pairs = [(f".{key}", value, got.get(key)) for key, value in expected.items()]
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        pairs = [(f"[{index}]", *pair) for index, pair in enumerate(zip(expected, got, strict=True))]
    else:
        return None if _same(expected, got, close) else f"{where or 'the answer'}: {got!r} instead of {expected!r}"
    differences = (difference(value, other, close, f"{where}{step}") for step, value, other in pairs)
    return next((found for found in differences if found is not None), None)


def _same(expected: object, got: object, close: Close) -> bool:
    if isinstance(got, Json):
        return isinstance(expected, str) and json.loads(expected) == got.value
    if isinstance(expected, float | int) and isinstance(got, float) and not isinstance(expected, bool):
        return close(expected, got)
    return expected == got and isinstance(expected, bool) == isinstance(got, bool)
