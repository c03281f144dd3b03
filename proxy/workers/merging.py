"""Rows of the same client at several workers, as one: each worker has the client's connections to its own brokers."""

from array import array
from collections.abc import Callable, Iterable, Mapping
from math import isnan
from typing import Any, Final, TypeVar

from proxy.state.rows import ClientRow, UsageRow
from proxy.usage.history import Series

Merge = Callable[[Iterable[Any]], list[Any]]

Row = TypeVar("Row", ClientRow, UsageRow)


def one_each(rows: Iterable[Row], merge: Callable[[Row, Row], Row]) -> list[Row]:
    """Return one row for each client at each listener. ``worker`` is None if it is at several."""
    found: dict[tuple[str, str, str | None], Row] = {}
    for row in rows:
        names = row.listener, row.user, row.client_id
        found[names] = merge(found[names], row)._replace(worker=None) if names in found else row
    return list(found.values())


def both_clients(one: ClientRow, two: ClientRow) -> ClientRow:
    """Return what a client does at two workers: the sum of its rates, the quota that is nearest to its limit."""
    nearest = max(one, two, key=lambda each: (each.kind is not None, each.ratio or 0.0))
    return nearest._replace(
        connections=one.connections + two.connections,
        is_throttled=one.is_throttled or two.is_throttled,
        bytes_in_per_s=one.bytes_in_per_s + two.bytes_in_per_s,
        bytes_out_per_s=one.bytes_out_per_s + two.bytes_out_per_s,
        throttled_share_1m=max(one.throttled_share_1m, two.throttled_share_1m),
    )


def both_hours(one: UsageRow, two: UsageRow) -> UsageRow:
    """Return the last hour of a client at two workers, by minutes."""
    minutes: dict[int, tuple[float, ...]] = {}
    for points in (one.points, two.points):
        for at_s, *values in zip(*points, strict=True):
            minute = int(at_s // 60)
            minutes[minute] = _both_points(minutes[minute], (at_s, *values)) if minute in minutes else (at_s, *values)
    at, *columns = zip(*(minutes[each] for each in sorted(minutes)), strict=True) if minutes else ((), (), (), (), ())
    points = Series(list(at), *(array("f", column) for column in columns))
    return one._replace(bytes_per_s=one.bytes_per_s + two.bytes_per_s, points=points)


def _both_points(one: tuple[float, ...], two: tuple[float, ...]) -> tuple[float, ...]:
    at_s, bytes_in, bytes_out, ratio, share = one
    _, more_in, more_out, other_ratio, other_share = two
    if isnan(ratio) or other_ratio > ratio:
        ratio = other_ratio
    return at_s, bytes_in + more_in, bytes_out + more_out, ratio, max(share, other_share)


MERGED: Final[Mapping[str, Merge]] = {
    "clients": lambda rows: one_each(rows, both_clients),
    "usage": lambda rows: one_each(rows, both_hours),
}
"""Resource → how the rows of all workers become those of the instance."""
