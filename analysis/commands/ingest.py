"""``sluice analyze ingest``."""

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from analysis import options
from analysis.errors import AnalysisError, RunError
from analysis.spark import session
from analysis.spark.progress import to_stderr
from analysis.spark.session import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from analysis.ingest.kafka import Topic

_EVERY_S: Final = 60
_DOCUMENTS: Final = 10_000
_FEW_BYTES: Final = 8 * 2**20
"""About 70,000 rows in JSON. With less, Java's second compiler costs more than it saves."""
_GOLD_EVERY_S: Final = 300
"""The shortest time between two makings of gold in a continuous run."""


def _period_s(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    if not (period_s := options.seconds(context, option, value)):
        raise click.BadParameter("a batch needs some time: 10s, 5m, 1h", param=option)
    return period_s


@click.command()
@options.warehouse_option
@click.option("--bootstrap", metavar="HOST:PORT", help="Brokers of the cluster with the topic; several with commas.")
@click.option("--topic", default="sluice-usage", show_default=True, metavar="NAME", help="The topic of usage records.")
@click.option(
    "--kafka-config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A client.properties of Kafka's own tools: security.protocol, sasl.jaas.config, ssl.truststore ...",
)
@click.option(
    "--jars",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    envvar="SLUICE_SPARK_JARS",
    metavar="DIR",
    help="A folder with the jars of Spark's Kafka source; without it Spark fetches them (spark.jars.packages).",
)
@click.option("--files", metavar="DIR", help="Read files of usage records (*.jsonl) instead of a topic.")
@click.option("--once", is_flag=True, help="Ingest all available records, and exit.")
@click.option(
    "--every",
    "every_s",
    callback=_period_s,
    metavar="TIME",
    help="Run continuously, with a batch every 10s, 5m, 1h; default: 1m.",
)
@click.option("--checkpoint", metavar="DIR", help="The folder of the progress; default: in the warehouse.")
@click.option(
    "--max-documents",
    type=click.IntRange(1),
    default=_DOCUMENTS,
    show_default=True,
    metavar="N",
    help="The most documents in a batch, of up to 1,000 rows each.",
)
@click.option("--accept-loss", is_flag=True, help="Continue after the topic's retention has deleted unread records.")
@click.option("--gold/--no-gold", "gold", default=True, help="Make gold, the tables of reports, or not in this run.")
@options.spark_options
def command(
    warehouse: str,
    bootstrap: str | None,
    topic: str,
    kafka_config: Path | None,
    jars: Path | None,
    files: str | None,
    every_s: int | None,
    checkpoint: str | None,
    max_documents: int,
    spark: SparkSettings,
    *,
    once: bool,
    accept_loss: bool,
    gold: bool,
) -> None:
    """Read usage records from a topic or from files into the warehouse, exactly once, and make gold from them.

    A run may be killed at any moment; the next one continues.
    """
    if (bootstrap is None) == (files is None):
        raise click.UsageError("give either --bootstrap, for a topic, or --files")
    if once and every_s is not None:
        raise click.UsageError("give either --once or --every")
    read: Topic | None = None
    if bootstrap is not None:
        from analysis.ingest import kafka

        read = kafka.Topic.load(topic, bootstrap, kafka_config)
        read.reach()
        spark = session.with_jars(spark, jars)
    running = session.start("ingest", replace(spark, by_rows=gold and not (once and _are_few(files))))

    from analysis.ingest.files import source as of_files
    from analysis.ingest.job import Ingestion
    from analysis.ingest.running import held, run

    before: Callable[[], None] = lambda: None  # noqa: E731
    if read is None:
        source, name = of_files(running, str(files), max_documents), "files"
    else:
        id_ = read.ask(running)
        source = read.source(running, max_documents, accept_loss=accept_loss)
        name = f"kafka-{topic}-{id_}".rstrip("-")
        before = _same_topic(running, read, id_)
        _tell_of_another(running, checkpoint or f"{warehouse.rstrip('/')}/checkpoints", name, topic)
    at = f"{(checkpoint or warehouse + '/checkpoints').rstrip('/')}/{name}"
    making = _Gold(running, warehouse) if gold else None
    with held(at):
        after = making.now_and_then if making is not None and not once else lambda: None
        ingestion = Ingestion(source, warehouse, to_stderr, before=before, after=after)
        try:
            stopped = run(ingestion, at, None if once else every_s or _EVERY_S)
        except KeyboardInterrupt:
            click.echo(f"{warehouse}: {ingestion.total}")
            raise
        if making is not None and not stopped:
            making.make()
    click.echo(f"{warehouse}: {ingestion.total}")


def _are_few(files: str | None) -> bool:
    """Whether a directory on a disk has no more than _FEW_BYTES of documents."""
    if files is None or not Path(files).is_dir():
        return False
    try:
        return all(
            total <= _FEW_BYTES for total in accumulate(path.stat().st_size for path in Path(files).rglob("*.jsonl"))
        )
    except OSError:  # Spark says what it cannot read
        return False


def _same_topic(running: "SparkSession", topic: "Topic", id_: str) -> Callable[[], None]:
    """Return a check that the topic is still the one of the checkpoint. The next run reads the new one."""

    def check() -> None:
        if topic.ask(running) != id_:
            raise RunError(
                f"topic {topic.name} was deleted and recreated: the next run reads the new one from its beginning"
            )

    return check


def _tell_of_another(running: "SparkSession", checkpoints: str, name: str, topic: str) -> None:
    from analysis.spark.folder import Folder

    others = set(Folder(running, checkpoints).names(f"kafka-{topic}-" + "?" * 22)) - {name}
    if others and not Folder(running, checkpoints).exists(name):
        to_stderr(
            f"topic {topic} was deleted and recreated since the last run: it is read from its beginning; "
            "documents of the old one that had not been read are missing"
        )


class _Gold:
    """Makes gold in the session that ingests."""

    def __init__(self, running: "SparkSession", warehouse: str) -> None:
        self._running = running
        self._warehouse = warehouse
        self._made_s = time.monotonic()  # noqa: TID251  how long ago

    def now_and_then(self) -> None:
        """Make gold, unless that was done less than _GOLD_EVERY_S ago."""
        if time.monotonic() - self._made_s >= _GOLD_EVERY_S:  # noqa: TID251  as above
            self.make()

    def make(self) -> None:
        """Make gold. If another program has the lock, leave it to the next run."""
        from analysis.gold.build import make
        from analysis.spark.folder import Folder
        from analysis.upkeep.compaction import recover
        from analysis.upkeep.lock import Lock

        folder = Folder(self._running, self._warehouse)
        if not folder.names("usage/date=*"):
            return
        lock = Lock(Folder(self._running, f"{self._warehouse.rstrip('/')}/usage"), "ingest", time.time)  # noqa: TID251
        try:
            with lock:
                recover(folder)
                make(self._running, self._warehouse, to_stderr)
        except RunError:
            raise
        except AnalysisError as error:
            to_stderr(f"gold is left to the next run: {error}")
        self._made_s = time.monotonic()  # noqa: TID251  as above
