"""``sluice analyze ingest``."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from analysis import options
from analysis.spark import session
from analysis.spark.progress import to_stderr
from analysis.spark.session import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from analysis.ingest.outage import Outage, Signals
    from analysis.sources.connection import Connection

_EVERY_S: Final = 60
_DOCUMENTS: Final = 10_000


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
    help="A client.properties as Kafka's own tools take it: security.protocol, sasl.jaas.config, ssl.truststore ...",
)
@click.option(
    "--source",
    type=click.Choice(["auto", "jvm", "python"]),
    default="auto",
    show_default=True,
    help="Who reads the topic: Spark's connector where its jars are, else Python.",
)
@click.option("--files", metavar="DIR", help="Read files of usage records (*.jsonl) instead of a topic.")
@click.option("--once", is_flag=True, help="Take in what there is, and end.")
@click.option(
    "--every", "every_s", callback=_period_s, metavar="TIME", help="Go on, a batch every 10s, 5m, 1h; 1m if not said."
)
@click.option("--checkpoint", metavar="DIR", help="Where progress is kept: in the warehouse, a place for each source.")
@click.option(
    "--max-documents",
    type=click.IntRange(1),
    default=_DOCUMENTS,
    show_default=True,
    metavar="N",
    help="How many documents a batch takes, of up to 1,000 rows each.",
)
@click.option("--accept-loss", is_flag=True, help="Go on where the topic's retention has deleted what was not read.")
@options.spark_options
def command(
    warehouse: str,
    bootstrap: str | None,
    topic: str,
    kafka_config: Path | None,
    source: str,
    files: str | None,
    every_s: int | None,
    checkpoint: str | None,
    max_documents: int,
    spark: SparkSettings,
    *,
    once: bool,
    accept_loss: bool,
) -> None:
    """Take usage records into the warehouse, exactly once: from a topic, or from files.

    A run may be ended or killed at any moment; the next one goes on where it was.
    """
    if (bootstrap is None) == (files is None):
        raise click.UsageError("give either --bootstrap, for a topic, or --files")
    if once and every_s is not None:
        raise click.UsageError("give either --once or --every")
    from analysis.ingest.outage import Signals

    signals, outage = Signals(), None
    if bootstrap is None:
        running = session.start("ingest", spark)
        stream, name = _of_files(running, str(files), max_documents)
    else:
        from analysis.sources.connection import Connection

        connection = Connection.load(bootstrap, kafka_config)
        outage = _reached(connection, topic, signals, python=source == "python", waits=not once)
        signals.raise_interrupt()
        if signals.came:
            return
        running = session.start("ingest", spark)
        stream, name = _of_topic(running, connection, topic, source, max_documents, accept_loss=accept_loss)

    from analysis.ingest.alone import Company, held
    from analysis.ingest.job import Ingestion, run

    at = checkpoint or f"{warehouse.rstrip('/')}/checkpoints/{name}"
    with held(at):
        ingestion = Ingestion(running, warehouse, to_stderr, alone=Company(warehouse).alone)
        run(stream, ingestion, at, None if once else every_s or _EVERY_S, outage, signals)
    click.echo(f"{warehouse}: {ingestion.total}")
    signals.raise_interrupt()


def _reached(connection: "Connection", topic: str, signals: "Signals", *, python: bool, waits: bool) -> "Outage | None":
    """Ask the brokers, and return what waits for them; None: nothing does. Raises AnalysisError."""
    from analysis.errors import AwayError
    from analysis.ingest.outage import Outage
    from analysis.sources import preflight

    def probe() -> None:
        preflight.check(connection, topic, python=python)

    outage = Outage(signals, probe, to_stderr) if waits else None
    try:
        probe()
    except AwayError as error:
        if outage is None:
            raise
        with signals.heard():
            outage.wait(str(error))
        if not signals.came:
            outage.over()
    return outage


def _of_files(running: "SparkSession", directory: str, documents: int) -> "tuple[DataFrame, str]":
    from analysis.sources import files

    stream = files.stream(running, directory, documents)
    for path in files.passed_over(running, directory):
        to_stderr(
            f"passed over: {path} is larger than {files.MOST_FILE_BYTES} bytes, the most of a file that is on no disk"
        )
    return stream, "files"


def _of_topic(
    running: "SparkSession", connection: "Connection", topic: str, source: str, documents: int, *, accept_loss: bool
) -> "tuple[DataFrame, str]":
    from analysis.sources.python_kafka import Topic
    from analysis.sources.topic import Source, stream

    found, reader = stream(running, Topic(topic, connection, documents, accept_loss), Source(source))
    to_stderr(f"reading topic {topic} through {'Python' if reader is Source.PYTHON else 'the JVM connector'}")
    return found, f"{reader}-{topic}"
