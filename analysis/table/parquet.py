"""A file of usage rows, made and opened by Arrow: where rows are wanted as arrays, and not one by one."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analysis.table.schema import COLUMNS, FIELDS, FILE, OPTIONAL, TEXT

ROW_GROUP_ROWS: Final = 131_072
"""What is read at a time: half a million take 130 MB more of each worker, and a file is 1 to 4 % smaller."""
PART_ROWS: Final = 50_000
"""Of a row group, at most at a time: columns that a file has not take memory in what is opened."""
_TEXTS: Final = [field.name for field in FILE if field.type == TEXT]
_MISSING: Final = {column.name: column.missing for column in (*FIELDS, *COLUMNS)}


def encode(rows: pa.Table) -> bytes:
    """Return the file of rows (``schema.FILE``); texts may be dictionaries.

    Of OPTIONAL columns it has those that say anything: half of all columns, and a third of the time.
    """
    rows = rows.drop_columns([name for name in OPTIONAL if name in rows.column_names and not _says(rows[name])])
    file = pa.BufferOutputStream()
    with writer(file, rows.schema) as written:
        written.write_table(rows, ROW_GROUP_ROWS)
    return bytes(file.getvalue())


def writer(file: Any, schema: pa.Schema) -> pq.ParquetWriter:
    """Return what writes a file as the table has it, into a path or a stream of Arrow's."""
    # What the names are is the same in many rows; numbers seldom are, and trying costs more than it saves.
    return pq.ParquetWriter(
        file, schema, compression="zstd", use_dictionary=[name for name in _TEXTS if name in schema.names]
    )


def _says(column: pa.ChunkedArray) -> bool:
    """Return whether anything in an optional column is not what it would be without it: null, 0 or false."""
    if column.null_count == len(column):
        return False
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        return bool(pc.max(column).as_py())
    return True


def decode(
    content: pa.Buffer,
    columns: Collection[str],
    only: Mapping[str, Sequence[Any]] | None = None,
    times_us: tuple[int | None, int | None] = (None, None),
) -> Iterator[pa.Table]:
    """Yield some columns of ``schema.FILE``, a part of a row group at a time; texts are dictionaries.

    A column that a file has not is one that came later: it holds what it does in documents that have none of it.
    ``only``: rows that have one of these values in each of these columns; of row groups without any, nothing else is
    read. Row groups of which no row's ``time`` is within ``times_us`` (Unix time, from and until) are passed over.
    """
    reader = pa.BufferReader(content)
    metadata = pq.read_metadata(reader)
    there = [name for name in columns if name in metadata.schema.names]
    texts = [name for name in there if name in _TEXTS]
    file = pq.ParquetFile(reader, metadata=metadata, read_dictionary=texts)
    wanted = pa.schema([_read(FILE.field(name)) for name in columns])
    for group in range(file.num_row_groups):
        if not _may_be_within(file, group, times_us):
            continue
        mask = None if not only else _mask(file, group, only)
        if mask is not None and not pc.any(mask).as_py():
            continue
        rows = file.read_row_group(group, columns=there, use_threads=False)
        if mask is not None:
            rows = rows.filter(mask)
        for at in range(0, max(rows.num_rows, 1), PART_ROWS):
            table = rows.slice(at, PART_ROWS)
            for name in columns:
                if name not in there:
                    nothing = pa.repeat(pa.scalar(_MISSING[name], FILE.field(name).type), table.num_rows)
                    table = table.append_column(name, nothing)
            yield table.select(wanted.names).cast(wanted)


def _may_be_within(file: pq.ParquetFile, group: int, times_us: tuple[int | None, int | None]) -> bool:
    since, until = times_us
    if since is None and until is None:
        return True
    number = file.metadata.schema.names.index("time")
    statistics = file.metadata.row_group(group).column(number).statistics
    # Files of others may have other units, or none of that.
    is_known = "microseconds" in str(file.metadata.schema.column(number).logical_type)
    if statistics is None or not statistics.has_min_max or not is_known:
        return True
    return (since is None or statistics.max_raw >= since) and (until is None or statistics.min_raw < until)


def _mask(file: pq.ParquetFile, group: int, only: Mapping[str, Sequence[Any]]) -> pa.Array:
    """Return which rows of a row group are wanted; of length 0 where its statistics, or a missing column, say none."""
    names = file.metadata.schema.names
    for name, values in only.items():
        if name not in names:
            return pa.array([], pa.bool_())
        statistics = file.metadata.row_group(group).column(names.index(name)).statistics
        if statistics is not None and statistics.has_min_max:
            least, most = statistics.min, statistics.max
            if not any(least <= value <= most for value in values):
                return pa.array([], pa.bool_())
    table = file.read_row_group(group, columns=[*only], use_threads=False)
    parts = (
        pc.is_in(table[name].cast(FILE.field(name).type), value_set=pa.array(values, FILE.field(name).type))
        for name, values in only.items()
    )
    return reduce(pc.and_, parts).combine_chunks()


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Return tables of one schema as one, with one chunk, and so one dictionary, for each column."""
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def plain(table: pa.Table) -> pa.Table:
    """Return texts as they are, not as dictionaries."""
    return table.cast(pa.schema([field.with_type(TEXT) if _is_dictionary(field) else field for field in table.schema]))


def encoded(table: pa.Table) -> pa.Table:
    """Return texts as dictionaries."""
    return table.cast(pa.schema([_read(field) for field in table.schema]))


def grouped(table: pa.Table, keys: Sequence[str], aggregates: Sequence[tuple[str, str]]) -> pa.Table:
    """Return what ``table.group_by(keys).aggregate(aggregates)`` does, in a third of the time where keys are texts.

    The table is a ``joined`` one: texts are compared by their numbers in its dictionaries.
    """
    dictionaries = {}
    for index, field in enumerate(table.schema):
        if field.name in keys and _is_dictionary(field) and table.num_rows:
            column = table.column(index).chunk(0)
            dictionaries[field.name] = column.dictionary
            table = table.set_column(index, field.name, column.indices)
    found = table.group_by(list(keys), use_threads=False).aggregate(list(aggregates))
    for name, dictionary in dictionaries.items():
        index = found.schema.get_field_index(name)
        codes = _harmless(found.column(index).combine_chunks())
        found = found.set_column(index, name, pa.DictionaryArray.from_arrays(codes, dictionary))
    return found


def _harmless(codes: pa.Array) -> pa.Array:
    """Return the same with 0 beneath each null: grouping leaves anything there, and Arrow looks it up nevertheless."""
    if not codes.null_count:
        return codes
    return pa.array(codes.fill_null(0).to_numpy(), mask=codes.is_null().to_numpy(zero_copy_only=False))


def _read(field: pa.Field) -> pa.Field:
    return pa.field(field.name, pa.dictionary(pa.int32(), TEXT)) if field.type == TEXT else field


def _is_dictionary(field: pa.Field) -> bool:
    return bool(pa.types.is_dictionary(field.type))
