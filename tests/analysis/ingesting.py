"""Documents taken into a warehouse as ``sluice analyze ingest --files --once`` does, in the session of the tests."""

from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from analysis.ingest import files
from analysis.ingest.job import Ingestion, Tally
from analysis.ingest.running import run
from tests.analysis.records import Document, write_jsonl


def ingest(
    spark: SparkSession,
    folder: Path,
    documents: Sequence[Document | str],
    name: str = "edge-1-boot-1-000000",
    tell: Callable[[str], None] = lambda _: None,
    max_documents: int = 1000,
) -> Tally:
    """Write a file into ``folder/documents``, and take in what is new there into ``folder/warehouse``."""
    (folder / "documents").mkdir(exist_ok=True)
    write_jsonl(folder / "documents" / f"{name}.jsonl", documents)
    source = files.source(spark, str(folder / "documents"), max_documents)
    ingestion = Ingestion(source, str(folder / "warehouse"), tell)
    run(ingestion, str(folder / "warehouse" / "checkpoints" / "files"), None)
    return ingestion.total
