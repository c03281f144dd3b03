"""Documents of usage records, read by SQL alone: what is wrong with one, and the rows of one that is right."""

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from analysis.schema import COLUMNS, DOCUMENT, HEADER, ROWS, VERSION

_DAMAGED: Final = "damaged"
_OPTIONS: Final = {"columnNameOfCorruptRecord": _DAMAGED, "allowNonNumericNumbers": "false"}
_READ: Final = StructType([*DOCUMENT, StructField(_DAMAGED, StringType())])
_NEEDED: Final = ("instance", "boot", "seq", "time_ms", "interval_ms", "rows")
"""Fields without which a row has no place. For the others the proxy's defaults are taken."""
_DEFAULTS: Final[dict[str, int | str]] = {"cluster": "", "mode": "enforce", "samples": 11, "sample_ms": 1000}
_NEVER_NEGATIVE: Final = ("seq", "time_ms", "interval_ms")
_END_OF_TIME_MS: Final = 253_402_300_800_000
"""The year 10000: dates of partitions have four digits."""
_BEFORE_A_SIGN: Final = (",-", "[-", " -")


def headers(documents: DataFrame) -> DataFrame:
    """Return ``id``, ``bytes`` and ``schema.HEADER`` of documents of ``id`` and ``value``; null: not readable."""
    header = F.from_json("value", HEADER, _OPTIONS).alias("header")
    return documents.select("id", F.octet_length("value").alias("bytes"), header).select("id", "bytes", "header.*")


def is_time(time_ms: int | None) -> bool:
    """Whether a document's ``time_ms`` can be one."""
    return time_ms is not None and 0 <= time_ms < _END_OF_TIME_MS


def read(documents: DataFrame) -> DataFrame:
    """Add ``document`` (``schema.DOCUMENT``) and ``readable`` to documents of column ``value``, their text."""
    faults = _all_faults()
    return documents.withColumn("document", F.from_json("value", _READ, _OPTIONS)).withColumn("readable", ~_any(faults))


def faults(documents: DataFrame) -> DataFrame:
    """Return the documents that are not readable, with ``fault``: what is wrong.

    Apart from ``read``, because to say it takes far more than to see it.
    """
    return read(documents).where(~F.col("readable")).withColumn("fault", _fault())


def rows_of(documents: DataFrame, *, two_digits: bool = False) -> DataFrame:
    """Return the rows (``schema.ROWS``) of documents that were read and are readable.

    ``two_digits``: hours are strings of two, as partitions are called.
    """
    time = F.timestamp_millis("document.time_ms")
    hour = F.lpad(F.hour(time).cast("string"), 2, "0") if two_digits else F.hour(time)
    by_document = {"time": time, "date": F.to_date(time), "hour": hour, "last": row_count() - 1}
    documents = documents.select("document", *(value.alias(name) for name, value in by_document.items()))
    # By index: a missing array is null at every index, and arrays_zip would have to be told of it.
    index = F.explode(F.sequence(F.lit(0), "last")).alias("index")
    indexed = documents.where("last >= 0").select("document", "time", "date", "hour", index)
    fields = {name: F.col(f"document.{name}") for name in DOCUMENT.names} | {name: F.col(name) for name in by_document}
    for name, value in _DEFAULTS.items():
        fields[name] = _filled(fields[name], value, name)
    for column in COLUMNS:
        found = F.get(_array(column.name), F.col("index"))
        fields[column.name] = found if column.missing is None else _filled(found, column.missing, column.name)
    return indexed.select(*(fields[name].alias(name) for name in ROWS.names))


def row_count() -> Column:
    """Return how many rows a readable document has."""
    return F.greatest(*(F.coalesce(_size(column.name), F.lit(0)) for column in COLUMNS))


def _filled(value: Column, missing: int | str, name: str) -> Column:
    return F.coalesce(value, F.lit(missing).cast(ROWS[name].dataType))


def _all_faults() -> list[Column]:
    """Return what must not be; null is not."""
    negative = [F.col(f"document.{name}") < 0 for name in _NEVER_NEGATIVE]
    # A look at the text spares looking at each number.
    signed = _any(F.contains("value", F.lit(sign)) for sign in _BEFORE_A_SIGN)
    return [
        _damaged(),
        F.col("document.v").isNull(),
        F.col("document.v") != VERSION,
        *_lacking().values(),
        *negative,
        _timeless(),
        *_uneven(),
        F.when(signed, _any(_below().values())),
    ]


def _fault() -> Column:
    """Say the first thing that is wrong."""
    negative = {name: F.col(f"document.{name}") < 0 for name in _NEVER_NEGATIVE}
    return (
        F.when(_damaged(), _damage())
        .when(F.col("document.v").isNull(), F.lit("has no v"))
        .when(F.col("document.v") != VERSION, _unknown(F.col("document.v").cast("string")))
        .when(_any(_lacking().values()), _listing("has no ", _lacking()))
        .when(_any(negative.values()), _listing("is below 0: ", negative))
        .when(_timeless(), F.lit("time_ms is not in milliseconds"))
        .when(_any(_uneven()), F.concat(F.lit("arrays differ in length: "), _lengths()))
        .otherwise(_listing("has numbers that are too small in ", _below()))
    )


def _damaged() -> Column:
    return F.col("document").isNull() | F.col(f"document.{_DAMAGED}").isNotNull()


def _lacking() -> dict[str, Column]:
    return {name: F.col(f"document.{name}").isNull() for name in _NEEDED}


def _timeless() -> Column:
    return F.col("document.time_ms") >= _END_OF_TIME_MS


def _uneven() -> list[Column]:
    length = F.greatest(*(_size(column.name) for column in COLUMNS))
    return [_size(column.name) != length for column in COLUMNS]


def _damage() -> Column:
    """Say what kept ``from_json`` from reading a document; by reading it once more, piece by piece."""
    text = F.col("value")
    json = F.try_parse_json(text)
    version = F.get_json_object(text, "$.v")
    wrong = {
        field.name: F.get_json_object(text, f"$.{field.name}").isNotNull() & F.col(f"document.{field.name}").isNull()
        for field in DOCUMENT
    }
    for column in COLUMNS:
        path = f"$.rows.{column.name}"
        written = F.from_json(F.get_json_object(text, path), ArrayType(column.type), _OPTIONS)
        wrong[f"rows.{column.name}"] = F.get_json_object(text, path).isNotNull() & written.isNull()
    return (
        F.when(json.isNull(), F.lit("is not JSON"))
        .when(version.isNull(), F.lit("is not a document: it has no v"))
        .when(version != str(VERSION), _unknown(version))
        .otherwise(_listing("has values of another type in ", wrong))
    )


def _unknown(version: Column) -> Column:
    said = f" is not known: this Sluice reads {VERSION}; take the Sluice that wrote it, or a newer one"
    return F.concat(F.lit("version "), version, F.lit(said))


def _below() -> dict[str, Column]:
    return {
        f"rows.{column.name}": F.array_min(_array(column.name)) < column.least
        for column in COLUMNS
        if column.least is not None
    }


def _lengths() -> Column:
    """Return ``listener 3, user 4 …`` of all arrays that are there."""
    said = [F.concat(F.lit(f"{column.name} "), _size(column.name).cast("string")) for column in COLUMNS]
    return F.concat_ws(", ", *said)


def _listing(said: str, names: dict[str, Column]) -> Column:
    listed = F.concat_ws(", ", *(F.when(is_so, F.lit(name)) for name, is_so in names.items()))
    return F.concat(F.lit(said), listed)


def _array(name: str) -> Column:
    return F.col(f"document.rows.{name}")


def _size(name: str) -> Column:
    """Return the length of an array; null of one that is not there."""
    return F.array_size(_array(name))


def _any(conditions: Iterable[Column]) -> Column:
    """Whether any is true; one that is null is not."""
    return F.coalesce(reduce(or_, conditions), F.lit(False))
