"""What a period holds, found in one look at its rows; and how finely it is drawn."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

MOST_STEPS: Final = 180
"""Of a plot over time: more are not seen on a screen."""
_STEPS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
"""They divide a day, so that no step belongs to two dates."""


@dataclass(frozen=True, slots=True)
class Period:
    """``begin`` to ``end`` (not in it), aware: from the first interval recorded to the end of the last."""

    begin: datetime
    end: datetime
    interval_ms: int
    """Of most rows, in whole seconds."""
    windows_ms: tuple[int, ...]
    """The windows of enforcement that were in force: samples x sample_ms."""
    rows: int
    modes: tuple[str, ...]
    instances: int
    brokers: int

    @property
    def seconds(self) -> float:
        return (self.end - self.begin).total_seconds()

    @property
    def step_s(self) -> int:
        """How much time a step of a plot stands for."""
        return next((step for step in _STEPS_S if self.seconds <= step * MOST_STEPS), _STEPS_S[-1])

    @property
    def intervals(self) -> int:
        """How many intervals it is long."""
        return max(round(self.seconds * 1000 / self.interval_ms), 1)

    def steps(self) -> list[datetime]:
        """Return the begin of every step that the period touches."""
        first = step_of(self.begin, self.step_s)
        count = -(-(self.end - first) // timedelta(seconds=self.step_s))
        return [first + timedelta(seconds=self.step_s * number) for number in range(count)]


def step_of(moment: datetime, step_s: int) -> datetime:
    return datetime.fromtimestamp(moment.timestamp() // step_s * step_s, UTC)


def step_column(step_s: int) -> Column:
    """Return ``step``: the begin of the step that a row belongs to, by the begin of its interval."""
    return F.timestamp_seconds(F.floor(F.unix_seconds("time") / step_s) * step_s).alias("step")


def look(rows: DataFrame) -> Period | None:
    """Return what is there; None if there is no row."""
    whole_seconds = F.greatest(F.round(F.col("interval_ms") / 1000), F.lit(1)).cast("long") * 1000
    found = (
        rows.groupBy(
            whole_seconds.alias("interval_ms"),
            (F.col("samples") * F.col("sample_ms")).alias("window_ms"),
            "mode",
            "instance",
            "broker",
        )
        .agg(
            F.count(F.lit(1)).alias("rows"),
            F.min(F.unix_millis("time")).alias("begin_ms"),
            F.max(F.unix_millis("time") + F.col("interval_ms")).alias("end_ms"),
        )
        .collect()
    )
    if not found:
        return None
    of_interval: dict[int, int] = {}
    for each in found:
        of_interval[each.interval_ms] = of_interval.get(each.interval_ms, 0) + each.rows
    return Period(
        begin=_moment(min(each.begin_ms for each in found)),
        end=_moment(max(each.end_ms for each in found)),
        interval_ms=max(of_interval, key=lambda interval_ms: (of_interval[interval_ms], -interval_ms)),
        windows_ms=tuple(sorted({each.window_ms for each in found})),
        rows=sum(each["rows"] for each in found),
        modes=tuple(sorted({each["mode"] for each in found})),
        instances=len({each.instance for each in found}),
        brokers=len({each.broker for each in found if each.broker >= 0}),
    )


def _moment(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)
