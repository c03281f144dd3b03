"""The Spark session: on all local cores by default, or as spark-submit says."""

import logging
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from analysis.errors import AnalysisError
from analysis.spark import interrupt, workers
from analysis.spark.progress import to_stderr

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
_OLDEST_JAVA: Final = 17
_SECRETS: Final = r"(?i)secret|password|token|access[.]?key|jaas|ssl\.key|keystore"
"""Options that plans must not show (``spark.redaction.regex``): Spark's own, and those of Kafka's clients."""

# Settings that results depend on, on any cluster.
_ALWAYS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Whole files go to workers: batches by size, not by number.
    "spark.sql.execution.arrow.maxBytesPerBatch": "8388608",
    # Times in the same format as Arrow's.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Only what has been counted is sent to all: the sizes of compressed files say little of their rows.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.autoBroadcastJoinThreshold": "10m",
}
UI: Final = {"spark.ui.enabled": "true"}
_PACKAGES: Final = "spark.jars.packages"
_SOURCE: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13"
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_FIRST_COMPILER: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
"""Java's first compiler alone: the second costs more than it saves in a minute. By default there is room for 48 MB of
code, which the queries of gold fill."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """``master`` and ``conf`` of spark-submit; Sluice or the cluster choose the rest."""

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)


def with_jars(settings: SparkSettings, folder: Path | None) -> SparkSettings:
    """Add Spark's Kafka source to settings: the jars of a folder, or those that Spark fetches.

    Jars in ``conf``, and under spark-submit its own (--packages, --jars), take precedence.
    """
    _need_pyspark()
    import pyspark

    if folder is None:
        if under_spark_submit() or settings.conf.keys() & {"spark.jars", _PACKAGES}:
            return settings
        jars = {_PACKAGES: f"{_SOURCE}:{pyspark.__version__}"}
    else:
        found = ",".join(str(jar) for jar in sorted(folder.resolve().glob("*.jar")))
        if not found:
            raise AnalysisError(f"{folder}: there are no jars in it; --jars is a folder with Spark's Kafka source")
        jars = {"spark.jars": found}
    return replace(settings, conf={**jars, **settings.conf})


def start(name: str, settings: SparkSettings = SparkSettings()) -> "SparkSession":
    """Return the session, started if there is none. Raises AnalysisError."""
    _need_pyspark()
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    conf = chosen(settings)
    app = f"sluice {name}"
    builder = SparkSession.builder.appName(app)
    for key, value in conf.items():
        builder = builder.config(key, value)
    if "spark.master" in conf:
        _java()
    _quiet()
    try:
        interrupt.start(lambda: SparkContext.getOrCreate(SparkConf().setAppName(app).setAll(list(conf.items()))))
        session = builder.getOrCreate()
    except PySparkRuntimeError as error:
        older = _older(conf.get(_PACKAGES, ""))
        if older is None or "JAVA_GATEWAY_EXITED" not in str(error):
            raise AnalysisError(_not_started(str(error), conf)) from error
        to_stderr(f"Spark did not start with {conf[_PACKAGES]}: the next try is with {older}")
        return start(name, replace(settings, conf={**settings.conf, _PACKAGES: older}))
    if (url := session.sparkContext.uiWebUrl) is not None:
        to_stderr(f"Spark's pages: {url}")
    workers.equip(session)
    for key, value in _ALWAYS.items():
        session.conf.set(key, value)
    return session


def _older(package: str) -> str | None:
    """Return Spark's Kafka source of the patch release before: it is not published with each release of pyspark."""
    source, _, version = package.rpartition(":")
    minor, _, patch = version.rpartition(".")
    return f"{source}:{minor}.{int(patch) - 1}" if source == _SOURCE and patch.isdecimal() and int(patch) else None


def chosen(settings: SparkSettings) -> dict[str, str]:
    """Return Spark's settings: those of the user take precedence over Sluice's."""
    return {**_defaults(settings), **_ALWAYS, **settings.conf}


def under_spark_submit() -> bool:
    """Whether spark-submit started this program, and has chosen master and memory."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _defaults(settings: SparkSettings) -> dict[str, str]:
    """Return Sluice's settings. Local Python workers must be this Python, with its packages."""
    defaults = {
        # The places in Sluice's source where columns are used: five calls to Java for each.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.redaction.regex": _SECRETS,
        "spark.sql.redaction.options.regex": f"{_SECRETS}|url",
        # A worker's working directory is no place to import from (docs/decisions/0018).
        "spark.executorEnv.PYTHONSAFEPATH": "1",
    }
    if under_spark_submit():
        return defaults if settings.master is None else {**defaults, "spark.master": settings.master}
    master = settings.master or "local[*]"
    defaults["spark.master"] = master
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if sys.platform == "linux":
            # Arrow's default allocator does not return memory: 0.1 GiB for each worker.
            os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")
        defaults |= _local(os.cpu_count() or 1)
    return defaults


def _local(cores: int) -> dict[str, str]:
    """Return settings for one machine: Spark's defaults are for a cluster."""
    return {
        "spark.driver.memory": f"{_heap_mib()}m",
        # G1's threads, and its growing metaspace, cost a fifth of a short program.
        _JAVA_OPTIONS: (
            f"{_FIRST_COMPILER} -XX:+UseSerialGC -XX:MetaspaceSize=256m "
            f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"
        ),
        # Each task passes on sums of all its clients: many small tasks would repeat them.
        "spark.sql.files.maxPartitionBytes": "512m",
        "spark.sql.shuffle.partitions": str(max(8, 2 * cores)),
        # By default Spark merges shuffle partitions until there are as few as cores; their sorts then spill.
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "8m",
        # Aggregate lists by hash: by default, Spark sorts all rows beyond 128 groups.
        "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "1000000",
        **dict.fromkeys(UI, "false"),
        "spark.ui.showConsoleProgress": "false",
    }


def _heap_mib() -> int:
    """Return a quarter of the memory, between 1 and 8 GiB: Python workers need memory too."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return min(max(total // 4, 1024), 8192)


def _need_pyspark() -> None:
    try:
        import pyspark
    except ImportError:
        raise AnalysisError("pyspark is not installed: pip install 'kafka-sluice[analysis]'") from None
    release = tuple(map(int, pyspark.__version__.split(".")[:2]))
    if not (4, 2) <= release < (4, 4):
        raise AnalysisError(
            f"pyspark {pyspark.__version__} is not supported: pip install 'kafka-sluice[analysis]' (4.2 or 4.3)"
        )


def _java() -> Path:
    """Return the Java that Spark will run. Raises AnalysisError if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else None
    if java is not None and not java.exists():
        raise AnalysisError(f"JAVA_HOME is {home}, and there is no bin/java: set it to a Java {_OLDEST_JAVA} or newer")
    if java is None and (found := shutil.which("java")) is not None:
        java = Path(found)
    if java is None:
        raise AnalysisError(
            f"there is no Java: install {_OLDEST_JAVA} or newer (Debian: apt-get install openjdk-17-jre-headless)"
        )
    return java


def _quiet() -> None:
    """Keep PySpark from logging, as pages of JSON, errors that it also raises."""
    from pyspark import accumulators
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    # Its only error is that Java has ended, which the next call to Java reports in one line.
    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.root.addFilter(_is_of_others)


def _is_of_others(record: logging.LogRecord) -> bool:
    """Whether a record of the root logger is not py4j's, which logs some errors there."""
    return record.module != "java_gateway"


def _not_started(said: str, conf: Mapping[str, str]) -> str:
    if "JAVA_GATEWAY_EXITED" in said:
        jars = "; without Maven Central, give the jars of Spark's Kafka source by --jars DIR"
        fetched = jars if _PACKAGES in conf else ""
        return f"Java did not start Spark: its reason is above; Java {_OLDEST_JAVA} or newer is needed{fetched}"
    return f"Spark did not start: {said.strip().splitlines()[0]}"
