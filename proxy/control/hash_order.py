"""The order in which a broker describes and alters quotas: that of Java's HashMap, which tools pass on to people.

A broker's table is as large as all of its quotas need; those that fall into one place of it stand there as they came.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from struct import iter_unpack
from typing import Final, TypeVar

from protocol.client_quotas import Described, Named, Result

T = TypeVar("T", Described, Result)

_NEW: Final = 16
"""Places of a table that begins empty."""


def in_hash_order(each_of_entity: Iterable[T], entities: int, *, smallest: int = 2) -> list[T]:
    """Return them as a broker would that has so many entities in its table, which has some places at least."""
    size = smallest
    while size * 3 < entities * 4:  # a table is at most three quarters full
        size *= 2
    return sorted(each_of_entity, key=lambda each: _place(each.entity, size))


def results_in_hash_order(results: Sequence[Result]) -> list[Result]:
    """Return what became of changes as a broker would."""
    return in_hash_order(results, len(results), smallest=_NEW)


def names_in_hash_order(names: Iterable[Named]) -> tuple[Named, ...]:
    """Return the names of one entity so."""
    return tuple(sorted(names, key=lambda named: _spread(_hash(named[0]), _NEW)))


def _place(entity: Sequence[Named], size: int) -> int:
    """ClientQuotaEntity.hashCode, as HashMap spreads it."""
    names = sum(_hash(dimension) ^ (0 if name is None else _hash(name)) for dimension, name in entity)
    return _spread((31 + names) & 0xFFFFFFFF, size)


def _spread(code: int, size: int) -> int:
    return (code ^ code >> 16) & (size - 1)


def _hash(text: str) -> int:
    """String.hashCode, without its sign."""
    units = iter_unpack("<H", text.encode("utf-16-le", "surrogatepass"))
    return reduce(lambda code, unit: (31 * code + unit[0]) & 0xFFFFFFFF, units, 0)
