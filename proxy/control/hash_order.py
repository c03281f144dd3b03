"""The order in which a broker describes quotas: that of Java's HashMap, which kafka-configs passes on to people.

A broker's table is as large as all of its quotas need; those that fall into one place of it stand there as they came.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from struct import iter_unpack

from protocol.client_quotas import Described, Named


def in_hash_order(described: Iterable[Described], configured: int) -> list[Described]:
    """Return them as a broker would that has so many quotas in all."""
    size = 2
    while size * 3 < configured * 4:  # a table is at most three quarters full
        size *= 2
    return sorted(described, key=lambda each: _place(each.entity, size))


def _place(entity: Sequence[Named], size: int) -> int:
    """ClientQuotaEntity.hashCode, as HashMap spreads it."""
    names = sum(_hash(dimension) ^ (0 if name is None else _hash(name)) for dimension, name in entity)
    code = (31 + names) & 0xFFFFFFFF
    return (code ^ code >> 16) & (size - 1)


def _hash(text: str) -> int:
    """String.hashCode, without its sign."""
    units = iter_unpack("<H", text.encode("utf-16-le", "surrogatepass"))
    return reduce(lambda code, unit: (31 * code + unit[0]) & 0xFFFFFFFF, units, 0)
