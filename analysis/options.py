"""Options that several commands share, as decorators."""

import math
import os
import posixpath
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from functools import wraps
from typing import Any, Final, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click

from analysis.errors import AnalysisError

_Command = TypeVar("_Command", bound=Callable[..., Any])

_FORM: Final = "2026-01-31, 2026-01-31T18:00 or 2026-01-31T18:00:00+02:00; without an offset it is UTC"
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_TABLES: Final = ("usage", "documents", "rejected", "gold", "checkpoints")
"""Folders of a warehouse (docs/analysis-tables.md)."""


class FiniteRange(click.FloatRange):
    """A number within bounds, and neither inf nor nan, which click accepts."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is not a finite number", param, ctx)
        return found


def warehouse_option(command: _Command) -> _Command:
    """Add ``warehouse: str``, a directory or a URI."""
    return click.option(
        "--warehouse",
        required=True,
        metavar="DIR",
        help="The folder of the tables: a directory, or hdfs://, s3a:// ...",
    )(command)


def period_options(command: _Command) -> _Command:
    """Add ``begin`` and ``end``: datetimes in UTC, or None; ``begin`` is the earlier one."""

    @wraps(command)
    def in_order(*args: Any, begin: datetime | None, end: datetime | None, **kwargs: Any) -> Any:
        if begin is not None and end is not None and begin >= end:
            said = " to ".join(f"{each:%Y-%m-%d %H:%M:%S}" for each in (begin, end))
            raise click.UsageError(f"--from and --to: {said} UTC ends before it begins")
        return command(*args, begin=begin, end=end, **kwargs)

    last = click.option("--to", "end", callback=_moment, metavar="TIME", help="End of the period, exclusive.")
    first = click.option("--from", "begin", callback=_moment, metavar="TIME", help=f"Begin of the period: {_FORM}.")
    return first(last(in_order))  # type: ignore[return-value]  # of the same options


def _moment(context: click.Context, _: click.Parameter, value: str | None) -> datetime | None:
    return None if value is None else _read_moment(value, context.params.get("zone") or UTC)


def _read_moment(value: str, zone: tzinfo) -> datetime:
    try:
        moment = datetime.fromisoformat(value.strip())
        return moment.replace(tzinfo=zone).astimezone(UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{value!r} is not a time: write {_FORM}") from None


def zone_option(command: _Command) -> _Command:
    """Add ``zone: ZoneInfo``, also of the times of ``period_options`` without an offset."""

    def known(_: click.Context, __: click.Parameter, value: str) -> ZoneInfo:
        try:
            return ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise click.BadParameter(
                f"{value!r} is not a time zone: write its name, like Europe/Berlin or UTC"
            ) from None

    return click.option(
        "--zone",
        default="UTC",
        show_default=True,
        is_eager=True,
        callback=known,
        metavar="NAME",
        help="Time zone of days and times, also in --from and --to: Europe/Berlin.",
    )(command)


def spark_options(command: _Command) -> _Command:
    """Add ``spark: SparkSettings``."""
    from analysis.spark.session import UI, SparkSettings

    @wraps(command)
    def with_settings(*args: Any, master: str | None, conf: tuple[str, ...], ui: bool, **kwargs: Any) -> Any:
        settings = {**(UI if ui else {}), **dict(map(_setting, conf))}
        return command(*args, spark=SparkSettings(master, settings), **kwargs)

    ui = click.option("--ui", is_flag=True, help="Spark's own pages while the command runs; stderr says where.")
    conf = click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; may be repeated.")
    master = click.option("--master", metavar="URL", help="Spark's master; default: all cores of this machine.")
    return master(conf(ui(with_settings)))  # type: ignore[return-value]  # one argument instead of three options


def seconds(_: click.Context, option: click.Parameter, value: str) -> int:
    """Read a duration like ``30m``, ``2h`` or ``90d``: a callback of an option."""
    number, unit = value[:-1], value[-1:]
    if unit not in _UNITS_S or not number.isdecimal():
        raise click.BadParameter(f"{value!r} is not a time like 10s, 5m, 2h or 90d", param=option)
    return int(number) * _UNITS_S[unit]


def _setting(written: str) -> tuple[str, str]:
    key, equals, value = written.partition("=")
    if not equals:
        raise click.BadParameter(f"{written!r} is not KEY=VALUE", param_hint="--conf")
    return key, value


def refuse_table(out: str, warehouse: str) -> None:
    """Raise AnalysisError if ``--out`` is in a table of the warehouse, whose readers would take its files for rows."""
    place, root = _absolute(out), _absolute(warehouse)
    for table in _TABLES:
        if f"{place}/".startswith(f"{root}/{table}/"):
            raise AnalysisError(f"--out: {out} is in {table}/, a table of the warehouse: name another directory")


def beside(warehouse: str) -> str:
    """Return the default directory of reports: the warehouse's path with ``-reports``. Raises AnalysisError."""
    scheme, colon, path = warehouse.partition("://")
    is_store = colon and scheme != "file"
    if not (path.partition("/")[2].strip("/") if is_store else _absolute(warehouse)):
        raise AnalysisError(f"--out is needed: a report cannot be written beside {warehouse}")
    plain = warehouse.rstrip("/")
    return f"{_absolute(warehouse) if posixpath.basename(plain) in ('.', '..') else plain}-reports"


def _absolute(place: str) -> str:
    """Return a directory or URI without ``..``, and without links on a disk."""
    scheme, colon, path = place.partition("://")
    if colon and scheme != "file":
        return f"{scheme}://{posixpath.normpath(path)}"
    return os.path.realpath(path if colon else place.removeprefix("file:")).rstrip("/")
