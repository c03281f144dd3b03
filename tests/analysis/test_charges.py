"""Which kinds of quotas gold looks for in the files of rows."""

import json

import pytest

from analysis.charges import KINDS, present_in
from analysis.ingest.decoding import without_defaults
from analysis.ingest.documents import read, table
from analysis.ingest.keys import split
from quotas.kinds import QuotaKind
from tests.analysis.records import document, row


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("column", ["used", "throttled", "throttle_ms", "muted_ms"])
def test_kind_with_a_single_figure_above_zero_is_found(kind: QuotaKind, column: str) -> None:
    figure = getattr(kind.row.columns, column)
    rows, _ = split(table([read(json.dumps(document(0, [row(), {**row(), figure: 5}])).encode())]))
    columns = without_defaults(rows).column_names
    assert figure in columns
    assert (kind, "quota") in present_in(columns)
