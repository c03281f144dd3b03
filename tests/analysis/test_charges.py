"""Which kinds of quotas gold looks for in the files of rows."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.charges import KINDS, present_in
from analysis.ingest.decoding import file_of
from analysis.ingest.documents import read
from quotas.kinds import QuotaKind
from tests.analysis.records import document, row


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("column", ["used", "throttled", "throttle_ms", "muted_ms"])
def test_kind_with_a_single_figure_above_zero_is_found(kind: QuotaKind, column: str) -> None:
    figure = getattr(kind.row.columns, column)
    written = file_of([read(json.dumps(document(0, [row(), {**row(), figure: 5}])).encode())])
    columns = pq.read_schema(pa.BufferReader(written)).names
    assert figure in columns
    assert (kind, "quota") in present_in(columns)
