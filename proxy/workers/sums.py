"""The metrics of several workers as those of one: counts add up, over restarts too."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import chain
from typing import Any, Final

from proxy.snapshot import Sum, WorkerSnapshot

_HOW: Final[Mapping[str, Sum]] = {each.name: each.metadata.get("sum", Sum.COUNTED) for each in fields(WorkerSnapshot)}
_NOTHING_NOW: Final = {name: getattr(WorkerSnapshot(), name) for name, how in _HOW.items() if how is not Sum.COUNTED}


class Sums:
    """The sum over workers, by number. A count never falls when a process ends: what it had counted by its last
    snapshot stays in the sum.
    """

    def __init__(self) -> None:
        self._last: dict[int, WorkerSnapshot] = {}
        self._ended: dict[int, WorkerSnapshot] = {}

    def add(self, taken: Mapping[int, WorkerSnapshot], own: WorkerSnapshot) -> WorkerSnapshot:
        """Return the sum with new snapshots, and that of the process that adds; a worker that has given none counts
        with its last one.
        """
        for number, each in taken.items():
            self._last[number] = replace(each, **_NOTHING_NOW)
        silent = [last for number, last in self._last.items() if number not in taken]
        return _sum([own, *self._ended.values(), *silent, *taken.values()], list(taken.values()) or [own])

    def ended(self, number: int) -> None:
        """Note that a worker's process has ended."""
        if (last := self._last.pop(number, None)) is not None:
            self._ended[number] = _sum([last, *filter(None, [self._ended.get(number)])], [last])


def _sum(counted: Sequence[WorkerSnapshot], now: Sequence[WorkerSnapshot]) -> WorkerSnapshot:
    return WorkerSnapshot(
        **{
            name: _COMBINED[how]([getattr(each, name) for each in (counted if how is Sum.COUNTED else now)])
            for name, how in _HOW.items()
        }
    )


def plus(values: Sequence[Any]) -> Any:
    """Add up values of one form: numbers; lists, one after the other; mappings and records, each key and field."""
    values = [each for each in values if each is not None]
    if not values or isinstance(values[0], str):
        return values[0] if values else None
    first = values[0]
    if isinstance(first, bool):
        return all(values)
    if isinstance(first, Mapping):
        return _by_key(plus, values)
    if isinstance(first, list):
        return list(chain(*values))
    if isinstance(first, tuple):
        columns = map(plus, zip(*values, strict=True))
        return type(first)(*columns) if hasattr(first, "_fields") else tuple(columns)
    if is_dataclass(first) and not isinstance(first, type):
        names = [each.name for each in fields(first)]
        return replace(first, **{name: plus([getattr(each, name) for each in values]) for name in names})
    return sum(values)


def _by_key(combine: Callable[[list[Any]], Any], tables: Sequence[Mapping[Any, Any]]) -> dict[Any, Any]:
    keys: Iterable[Any] = dict.fromkeys(chain(*tables))
    return {key: combine([table[key] for table in tables if key in table]) for key in keys}


_COMBINED: Final[Mapping[Sum, Callable[[list[Any]], Any]]] = {
    Sum.COUNTED: plus,
    Sum.NOW: plus,
    Sum.EACH: lambda lists: [plus(each) for each in zip(*lists, strict=False)],  # none while quotas are off
    Sum.LEAST: lambda tables: _by_key(min, tables),
    Sum.IN_ALL: lambda lists: sorted(set(lists[0]).intersection(*lists[1:])),
}
