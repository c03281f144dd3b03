"""From the tables of noisy neighbours to what the page shows of them."""

from typing import Any, Final

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.metrics.broker_moments import CLIENT
from analysis.metrics.neighbours import COINCIDES, TOGETHER, TOO_FEW
from analysis.report.findings import AroundBurst, Neighbour, Victim

_MOST: Final = 9
_LEAST_SCORE: Final = 0.01
"""A part of others' delay that is worth a word, however sure it is."""
_VICTIMS: Final = 3

Tables = dict[str, DataFrame]


def compared(tables: Tables) -> int:
    """Return how many candidates were held against others' delays."""
    return tables["neighbours"].where(F.col("verdict") != TOO_FEW).select(*CLIENT).distinct().count()


def found(tables: Tables) -> list[Neighbour]:
    """Return those that coincide, the strongest first, with what stands behind it."""
    loud = tables["neighbours"].where((F.col("verdict") == COINCIDES) & (F.col("score") >= _LEAST_SCORE))
    rows = loud.orderBy(F.desc("score"), *CLIENT, "measure").limit(_MOST).collect()
    if not rows:
        return []
    victims, around, together = _victims(tables["victims"]), _around(tables["evidence"]), _together(tables)
    names = [name for name in Neighbour.__slots__ if name not in {"victims", "around", "together"}]
    return [
        Neighbour(
            **{name: row[name] for name in names},
            victims=victims.get(_client(row), ()) if row.measure == "muted_ms" else (),
            around=around[*_client(row), row.measure],
            together=together.get((*_client(row), row.measure), ()),
        )
        for row in rows
    ]


def _victims(victims: DataFrame) -> dict[tuple[Any, ...], list[Victim]]:
    """Return those that were delayed longest, by CLIENT."""
    most = Window.partitionBy(*CLIENT).orderBy(F.desc("delay_ms"), "victim_user", "victim_client_id")
    ranked = victims.withColumn("place", F.row_number().over(most)).where(F.col("place") <= _VICTIMS)
    of: dict[tuple[Any, ...], list[Victim]] = {}
    for each in ranked.orderBy("place").collect():
        victim = Victim(each.victim_user, each.victim_client_id, each.delay_ms, each.shared)
        of.setdefault(_client(each), []).append(victim)
    return of


def _around(evidence: DataFrame) -> dict[tuple[Any, ...], list[AroundBurst]]:
    of: dict[tuple[Any, ...], list[AroundBurst]] = {}
    for each in evidence.orderBy("offset_s").collect():
        point = AroundBurst(each.offset_s, each.bytes_per_s, each.others_ms, each.expected_ms)
        of.setdefault((*_client(each), each.measure), []).append(point)
    return of


def _together(tables: Tables) -> dict[tuple[Any, ...], list[tuple[str | None, str | None]]]:
    of: dict[tuple[Any, ...], list[tuple[str | None, str | None]]] = {}
    for each in tables["neighbours"].where(F.col("verdict") == TOGETHER).orderBy(F.desc("score"), *CLIENT).collect():
        stronger = (each.cluster, each.broker, each.behind_user, each.behind_client_id, each.measure)
        of.setdefault(stronger, []).append((each.user, each.client_id))
    return of


def _client(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in CLIENT)
