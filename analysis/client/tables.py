"""The tables beside the page: Parquet, complete as far as they say, and the course of each counter as ``usage.csv``."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa

from analysis.client.courses import Course
from analysis.client.findings import ClientFindings
from analysis.metrics.headroom import PERCENTILES
from analysis.page import spreadsheet
from analysis.spark.folder import Folder
from analysis.table import results
from analysis.table.schema import COUNT, LIMIT, TEXT, TIME

_PLACE: Final = (("kind", TEXT), ("cluster", TEXT), ("instance", TEXT), ("broker", pa.int32()), ("rule", TEXT))
_RATES: Final = ("mean", "least", "most", "shared", "muted")
_FULL: Final = (*PERCENTILES, "max")
_POINTS: Final = pa.schema([("time", TIME), *_PLACE, *((name, LIMIT) for name in (*_RATES, "limit"))])
_LIMITS: Final = pa.schema([("since", TIME), *_PLACE, ("limit", LIMIT)])
_HEADROOM: Final = pa.schema(
    [
        *_PLACE,
        *((name, LIMIT) for name in _FULL),
        *((f"{name}_while_active", LIMIT) for name in _FULL),
        *((name, LIMIT) for name in ("over", "active")),
    ]
)
_COMPANY: Final = pa.schema(
    [
        *(("begin", TIME), ("end", TIME), ("user", TEXT), ("client_id", TEXT), ("broker", pa.int32())),
        *(("kind", TEXT), ("rule", TEXT), ("mode", TEXT), ("limit", LIMIT)),
        *((name, COUNT) for name in ("muted_ms", "throttled", "used", "companions")),
        *(("companion_user", TEXT), ("companion_client_id", TEXT), ("companion_used", COUNT)),
    ]
)
_BUSY: Final = pa.schema(
    [
        *(("user", TEXT), ("client_id", TEXT), ("broker", pa.int32())),
        *((name, LIMIT) for name in ("bytes_per_s_then", "bytes_per_s", "share_then")),
        *(("peaks", COUNT), ("score", LIMIT), ("p", LIMIT), ("verdict", TEXT)),
    ]
)


def write(folder: Folder, found: ClientFindings) -> None:
    """Write the tables, and ``usage.csv``: the course of each counter once more."""
    points = list(_points(found))
    made: dict[str, pa.Table] = {
        "points": pa.Table.from_pylist(points, _POINTS),
        "limits": pa.Table.from_pylist(list(_limits(found)), _LIMITS),
        "headroom": pa.Table.from_pylist(list(_headroom(found)), _HEADROOM),
        "counters": pa.Table.from_pylist([asdict(each) for each in found.counters]),
        "company": pa.Table.from_pylist(list(_company(found)), _COMPANY),
        "neighbours": pa.Table.from_pylist([asdict(each) for each in found.busy], _BUSY),
    }
    if found.scaled is not None and found.scaled.rows:
        made["whatif"] = pa.Table.from_pylist([dict(row) for row in found.scaled.rows])
    for name, table in made.items():
        results.write(folder, name, table)
    folder.write("usage.csv", _csv(points))


def _place(found: ClientFindings, number: int) -> dict[str, Any]:
    [panel] = [each for each in found.panels if each.number == number]
    last = panel.last
    return {name: getattr(last, name) for name in ("kind", "cluster", "instance", "broker")}


def _rules(found: ClientFindings) -> dict[int, str | None]:
    return {each.counter: each.rule for each in found.counters}


def _points(found: ClientFindings) -> Iterator[dict[str, Any]]:
    rules = _rules(found)
    for number, course in found.courses.items():
        place = _place(found, number)
        times = step_times(found)
        for step, (counter, limit) in enumerate(held_at(found, course)):
            values = {name: float(getattr(course, name)[step]) for name in _RATES}
            yield {"time": times[step], **place, "rule": rules.get(counter), **values, "limit": limit}


def step_times(found: ClientFindings) -> list[datetime]:
    """Return when each step begins."""
    first = found.period.begin.timestamp() // found.step_s * found.step_s
    count = -int(-(found.period.end.timestamp() - first) // found.step_s)
    return [datetime.fromtimestamp(first, UTC) + timedelta(seconds=found.step_s * number) for number in range(count)]


def held_at(found: ClientFindings, course: Course) -> Sequence[tuple[int, float | None]]:
    """Return the counter and the limit of each step: those at its end."""
    ends = [round((time + found.step).timestamp() * 1000) for time in step_times(found)]
    changes, place, held = list(course.changes), 0, []
    for end in ends:
        while place + 1 < len(changes) and changes[place + 1][0] < end:
            place += 1
        held.append((changes[place][1], changes[place][2]))
    return held


def _limits(found: ClientFindings) -> Iterator[dict[str, Any]]:
    rules = _rules(found)
    for number, course in found.courses.items():
        place = _place(found, number)
        for since_ms, counter, limit in course.changes:
            since = datetime.fromtimestamp(since_ms / 1000, UTC)
            yield {"since": since, **place, "rule": rules.get(counter), "limit": limit}


def _headroom(found: ClientFindings) -> Iterator[dict[str, Any]]:
    for panel in found.panels:
        course = found.courses.get(panel.number)
        if course is not None and course.full:
            values = dict(zip(_FULL, course.full, strict=True))
            busy = course.full_while_active
            values |= {f"{name}_while_active": value for name, value in zip(_FULL, busy, strict=bool(busy))}
            place = _place(found, panel.number)
            yield {**place, "rule": panel.last.rule, **values, "over": course.over, "active": course.active}


def _company(found: ClientFindings) -> Iterator[Mapping[str, Any]]:
    """Yield a line for each episode, with the one who used most besides."""
    for each in found.episodes:
        row = {name: getattr(each, name) for name in _COMPANY.names if not name.startswith("companion")}
        row["companions"] = each.how_many_companions
        if each.companions:
            most = each.companions[0]
            row |= {"companion_user": most.user, "companion_client_id": most.client_id, "companion_used": most.used}
        yield row


def _csv(points: Sequence[Mapping[str, Any]]) -> str:
    times = ({**point, "time": f"{point['time']:%Y-%m-%dT%H:%M:%SZ}"} for point in points)
    return spreadsheet.text(_POINTS.names, ([point[name] for name in _POINTS.names] for point in times))
