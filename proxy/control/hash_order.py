"""The order in which a broker describes and alters quotas: that of Java's HashMap, which tools show to users.

The size of a broker's table depends on the number of its quotas; those in one bucket are in the order of insertion.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from struct import iter_unpack
from typing import Final, TypeVar

from protocol.client_quotas import Described, Named, Result

T = TypeVar("T", Described, Result)

_NEW: Final = 16
"""Buckets of a new table."""


def in_hash_order(each_of_entity: Iterable[T], entities: int, *, smallest: int = 2) -> list[T]:
    """Return the items in the order of a broker that has ``entities`` in a table of at least ``smallest`` buckets."""
    size = smallest
    while size * 3 < entities * 4:  # a table is at most three quarters full
        size *= 2
    return sorted(each_of_entity, key=lambda each: _place(each.entity, size))


def results_in_hash_order(results: Sequence[Result]) -> list[Result]:
    return in_hash_order(results, len(results), smallest=_NEW)


def names_in_hash_order(names: Iterable[Named]) -> tuple[Named, ...]:
    """Return the names of one entity in a broker's order."""
    return tuple(sorted(names, key=lambda named: _spread(_hash(named[0]), _NEW)))


def _place(entity: Sequence[Named], size: int) -> int:
    """Return the bucket: ClientQuotaEntity.hashCode, spread as HashMap does."""
    names = sum(_hash(dimension) ^ (0 if name is None else _hash(name)) for dimension, name in entity)
    return _spread((31 + names) & 0xFFFFFFFF, size)


def _spread(code: int, size: int) -> int:
    return (code ^ code >> 16) & (size - 1)


def _hash(text: str) -> int:
    """Return String.hashCode as an unsigned number."""
    units = iter_unpack("<H", text.encode("utf-16-le", "surrogatepass"))
    return reduce(lambda code, unit: (31 * code + unit[0]) & 0xFFFFFFFF, units, 0)
