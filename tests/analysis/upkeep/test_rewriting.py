"""Files made of files: sizes, order, and what is proved of them. No Spark."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.errors import AnalysisError
from analysis.table.parquet import encode
from analysis.table.schema import FILE
from analysis.upkeep import rewriting
from analysis.upkeep.proof import Proof
from analysis.upkeep.rewriting import columns_of, proof_of, rewrite
from tests.analysis.records import document, in_order, row, stored

DOCUMENTS = [
    document(seq, [row("alice", bytes_in=seq), row("bob", produce_limit=10.5, ip="10.0.0.1" if seq == 3 else None)])
    for seq in range(6)
]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    found = [tmp_path / f"{number}.parquet" for number in range(len(DOCUMENTS))]
    for file, each in zip(found, DOCUMENTS, strict=True):
        file.write_bytes(encode(pa.Table.from_pylist(stored([each]), FILE)))
    return found


class Made:
    """Files as they were handed over."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: list[Path] = []

    def __call__(self, file: Path) -> None:
        self.files.append(self.folder / f"made-{len(self.files)}.parquet")
        self.files[-1].write_bytes(file.read_bytes())


def test_one_file_of_many_by_client(files: list[Path], tmp_path: Path) -> None:
    made = Made(tmp_path)
    columns = columns_of(files)
    assert "ip" in columns
    assert "exempt" not in columns
    before = rewrite(files, columns, 10**8, made)
    (one,) = made.files
    rows = pq.read_table(one).to_pylist()
    assert [each["user"] for each in rows] == ["alice"] * 6 + ["bob"] * 6
    assert [each["seq"] for each in rows] == [*range(6), *range(6)]
    assert proof_of(made.files, columns) == before == proof_of(files, columns)
    known = pq.read_schema(files[0]).names
    assert [{name: each[name] for name in known} for each in in_order(rows_of(one))] == [
        {name: each[name] for name in known} for each in in_order(stored(DOCUMENTS))
    ]


def rows_of(file: Path) -> list[dict[str, object]]:
    defaults = {field.name: None for field in FILE}
    return [{**defaults, **each} for each in pq.read_table(file).to_pylist()]


def test_a_file_ends_where_it_is_large_enough(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriting, "_GROUP_ROWS", 4)
    made = Made(tmp_path)
    before = rewrite(files, columns_of(files), 1, made)
    assert [pq.read_metadata(file).num_rows for file in made.files] == [4, 4, 4]
    assert proof_of(made.files, columns_of(files)) == before


def test_a_column_that_is_not_known_is_not_lost(files: list[Path]) -> None:
    pq.write_table(pq.read_table(files[0]).append_column("later", pa.array([1, 2])), files[0])
    with pytest.raises(AnalysisError, match=r"columns that this Sluice does not know \(later\)"):
        columns_of(files)


TABLE = pa.Table.from_pylist(stored(DOCUMENTS), FILE)


def test_the_order_of_rows_proves_nothing() -> None:
    assert Proof.of(TABLE.take([*range(5, 12), *range(5)])) == Proof.of(TABLE)
    assert Proof.of(TABLE.slice(0, 5)) + Proof.of(TABLE.slice(5)) == Proof.of(TABLE)


def test_a_column_that_says_nothing_proves_nothing() -> None:
    assert Proof.of(TABLE.drop_columns(["exempt"])) == Proof.of(TABLE)


def test_every_value_counts() -> None:
    """One that changes, and two rows that exchange theirs; of each column."""
    for name in FILE.names:
        kind = FILE.field(name).type
        values = TABLE[name].to_pylist()
        other = {pa.string(): "other", pa.float64(): 0.5, pa.bool_(): True}.get(kind, 7)
        values[0] = values[-1].replace(year=2027) if name == "time" else other
        few = pa.table({"listener": [str(number) for number in range(len(values))]})
        proofs = [Proof.of(few.append_column(f"{name} ", TABLE[name]))]
        for _ in range(2):
            proofs.append(Proof.of(few.append_column(f"{name} ", pa.array(values, kind))))
            values[0], values[1] = values[1], values[0]
        assert len(set(proofs)) == 3, name


def test_nothing_is_not_zero() -> None:
    limits = [Proof.of(pa.table({"produce_limit": pa.array([value], pa.float64())})) for value in (None, 0.0, 1.0)]
    assert len(set(limits)) == 3
