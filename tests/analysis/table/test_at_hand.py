"""Small periods are found and worked on in the driver; ``test_job`` has what comes of it."""

import pytest
from pyspark.sql import SparkSession

from analysis.table import at_hand
from analysis.table import warehouse as tables
from tests.analysis.records import document, in_order, row, rows_of, stored, usage_frame
from tests.analysis.table.test_warehouse import store

pytestmark = pytest.mark.spark


def test_what_is_small(spark: SparkSession, warehouse: str, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [document(seq, [row("alice"), row("bob")], second=3600 * seq) for seq in range(3)]
    store(usage_frame(spark, documents), warehouse)
    small = tables.usage(spark, warehouse)
    assert small.at_hand is not None
    assert rows_of(small) == in_order(stored(documents))
    for limit, most in (("FEW_FILES", 2), ("FEW_BYTES", 100), ("FEW_ROWS", 5)):
        with monkeypatch.context() as patched:
            patched.setattr(at_hand, limit, most)
            large = tables.usage(spark, warehouse)
        assert large.at_hand is None
        assert large.spark is spark
        assert rows_of(large) == rows_of(small)
