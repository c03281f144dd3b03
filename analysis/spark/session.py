"""The Spark session: here on all cores where nobody says otherwise, and unchanged wherever spark-submit puts it."""

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

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
_OLDEST_JAVA: Final = 17
_SECRETS: Final = r"(?i)secret|password|token|access[.]?key|jaas|ssl\.key|keystore"
"""Options that no plan may show (``spark.redaction.regex``): Spark's own, and where Kafka's clients put secrets."""

# Whatever the cluster: what the answers rest on.
_ALWAYS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Whole files go to workers: by their size, not by their number.
    "spark.sql.execution.arrow.maxBytesPerBatch": "8388608",
    # Times as Arrow writes them, whoever writes a table.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_FIRST_COMPILER: Final = "-XX:TieredStopAtLevel=1"
"""Enough where most of the work is Python's: the second costs more than it brings."""
_SECOND_COMPILER: Final = "-XX:-DontCompileHugeMethods"
"""Spark makes a method of a query, and Java would interpret it, row by row, if it is long."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """``master`` and ``conf`` as spark-submit takes them; the rest is Sluice's choice, or the cluster's."""

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    by_rows: bool = False
    """Whether Spark itself goes through rows, and not Python."""


def with_jars(settings: SparkSettings, folder: Path | None) -> SparkSettings:
    """Return settings with Spark's Kafka source: the jars of a folder, or those that Spark fetches by its version.

    What was said goes before, and spark-submit has its own (--packages, --jars).
    """
    _need_pyspark()
    import pyspark

    if folder is None:
        if under_spark_submit() or settings.conf.keys() & {"spark.jars", "spark.jars.packages"}:
            return settings
        jars = {"spark.jars.packages": f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"}
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
        raise AnalysisError(_not_started(str(error))) from error
    workers.equip(session)
    for key, value in _ALWAYS.items():
        session.conf.set(key, value)
    return session


def chosen(settings: SparkSettings) -> dict[str, str]:
    """Return Spark's settings as they are asked for: what is said goes before what Sluice would choose."""
    return {**_defaults(settings), **_ALWAYS, **settings.conf}


def under_spark_submit() -> bool:
    """Whether spark-submit started this program, and so has chosen master and memory."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _defaults(settings: SparkSettings) -> dict[str, str]:
    """Return what nobody but us would choose. Python workers must be this Python, with the packages that it has."""
    defaults = {
        # Where in Sluice a column was named helps nobody, and asking costs five calls to Java for one.
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
            # Arrow's own choice keeps the most memory that a worker has had: 0.1 GiB each.
            os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")
        defaults |= _local(os.cpu_count() or 1, by_rows=settings.by_rows)
    return defaults


def _local(cores: int, *, by_rows: bool) -> dict[str, str]:
    """Return what suits one machine: 200 shuffle partitions, Spark's default, are for a cluster."""
    return {
        "spark.driver.memory": f"{_heap_mib()}m",
        # G1's threads of its own, and its looks at classes as they come, cost a fifth of a short program.
        _JAVA_OPTIONS: (
            f"{_SECOND_COMPILER if by_rows else _FIRST_COMPILER} -XX:+UseSerialGC -XX:MetaspaceSize=256m "
            f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"
        ),
        # A task hands on the sums of every client that it met: many small ones would say the same again and again.
        "spark.sql.files.maxPartitionBytes": "512m",
        "spark.sql.shuffle.partitions": str(max(8, 2 * cores)),
        # Lists of each counter are made in a table of hashes; by default, of more than 128 all is sorted.
        "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "1000000",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def _heap_mib() -> int:
    """Return a quarter of the memory, between 1 and 8 GiB: Python workers need theirs beside it."""
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
    """Return the Java that Spark will run. Raises AnalysisError where there is none."""
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
    """Keep PySpark from logging, as pages of JSON, what it raises as well."""
    from pyspark import accumulators
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    # What it could tell of is that Java has ended, and whoever asks Java next says so in a line.
    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.root.addFilter(_is_of_others)


def _is_of_others(record: logging.LogRecord) -> bool:
    """Whether a line to the root logger is of anybody but py4j, which has no better place for some."""
    return record.module != "java_gateway"


def _not_started(said: str) -> str:
    if "JAVA_GATEWAY_EXITED" in said:
        return f"Java did not start Spark: its reason is above; Java {_OLDEST_JAVA} or newer is needed"
    return f"Spark did not start: {said.strip().splitlines()[0]}"
