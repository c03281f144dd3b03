"""``sluice analyze ingest``."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from analysis import options
from analysis.spark import session
from analysis.spark.progress import to_stderr
from analysis.spark.session import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from analysis.ingest.kafka import Topic

_EVERY_S: Final = 60
_DOCUMENTS: Final = 10_000
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
    running = session.start("ingest", spark)

    from analysis.gold.build import make
    from analysis.ingest.files import source as of_files
    from analysis.ingest.job import Ingestion
    from analysis.ingest.running import run

    before: Callable[[], None] = lambda: None  # noqa: E731
    if read is None:
        source, name = of_files(running, str(files), max_documents), "files"
    else:
        id_ = read.ask(running)
        source = read.source(running, max_documents, accept_loss=accept_loss)
        name = f"kafka-{topic}-{id_}".rstrip("-")
        before = partial(read.require, running, id_)
        _tell_of_another(running, checkpoint or f"{warehouse.rstrip('/')}/checkpoints", name, topic)
    at = f"{(checkpoint or warehouse + '/checkpoints').rstrip('/')}/{name}"
    made_s = time.monotonic()  # noqa: TID251  how long ago gold was made

    def make_gold() -> None:
        nonlocal made_s
        if gold:
            make(running, warehouse)
        made_s = time.monotonic()  # noqa: TID251  as above

    def after() -> None:
        if not once and time.monotonic() - made_s >= _GOLD_EVERY_S:  # noqa: TID251  as above
            make_gold()

    ingestion = Ingestion(source, warehouse, to_stderr, before=before, after=after)
    try:
        if not run(ingestion, at, None if once else every_s or _EVERY_S):
            make_gold()
    finally:
        click.echo(f"{warehouse}: {ingestion.total}")


def _tell_of_another(running: "SparkSession", checkpoints: str, name: str, topic: str) -> None:
    from analysis.spark.folder import Folder

    others = set(Folder(running, checkpoints).names(f"kafka-{topic}-" + "?" * 22)) - {name}
    if others and not Folder(running, checkpoints).exists(name):
        to_stderr(
            f"topic {topic} was deleted and recreated since the last run: it is read from its beginning; "
            "documents of the old one that had not been read are missing"
        )
