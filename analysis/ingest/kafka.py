"""The source of a topic: Spark's own Kafka source, and checks of brokers and login before, by the same Java client.

Spark would take minutes, and a page of Java, to report a wrong address or login.
"""

import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.errors import AnalysisError, RunError
from analysis.ingest.source import KEPT_BYTES, Origin, Source, Text
from analysis.schema import MOST_DOCUMENT_BYTES
from config.client_properties import parse_properties

TIMEOUT_S: Final = 5.0
_TIMEOUT_MS: Final = 15_000
_PATIENCE: Final = {"request.timeout.ms": str(_TIMEOUT_MS), "default.api.timeout.ms": "20000"}
_LOG_APPEND_TIME: Final = 1
_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""The topic id that clients show for brokers before 2.8, which have none."""
# Sluice or Spark set these.
_NOT_TAKEN: Final = (
    *("bootstrap.servers", "group.id", "client.id", "isolation.level", "auto.offset.reset", "enable.auto.commit"),
    *("key.deserializer", "value.deserializer", "interceptor.classes"),
)
_ADVICE: Final = {
    "SaslAuthenticationException": "the brokers refuse the login: see sasl.mechanism and sasl.jaas.config",
    "SslAuthenticationException": "TLS fails: see security.protocol and ssl.truststore.location",
    "UnsupportedSaslMechanismException": "the brokers do not offer it: see sasl.mechanism",
    "IllegalSaslStateException": "that is no listener for a login: see security.protocol",
    "TopicAuthorizationException": "this login may not read it: it needs READ and DESCRIBE",
    "UnknownTopicOrPartitionException": (
        "it is not there, or this login may not see it: --topic is usage.topic.name of sluice.yaml, "
        "and the proxy makes it"
    ),
    "TimeoutException": "no answer: does that listener want another security.protocol, or a login? see --kafka-config",
    "InvalidTopicException": "that is no name of a topic: --topic is usage.topic.name of sluice.yaml",
}
"""Advice by the class of Kafka's exception."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, with its brokers and the client's properties, whose values are never shown."""

    name: str
    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def load(cls, name: str, bootstrap: str, path: Path | None) -> "Topic":
        """Read client properties from a file, if there is one. Raises AnalysisError."""
        if path is None:
            return cls(name, bootstrap)
        try:
            properties = parse_properties(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise AnalysisError(
                f"{path}: {str(error.strerror).lower()}; --kafka-config is a client.properties"
            ) from None
        except UnicodeDecodeError:
            raise AnalysisError(f"{path} is not UTF-8: --kafka-config is a client.properties") from None
        return cls(name, bootstrap, {key: value for key, value in properties.items() if key not in _NOT_TAKEN})

    def reach(self) -> None:
        """Check that a broker can be reached, before Spark is started. Raises AnalysisError."""
        addresses = [_address(each) for each in self.bootstrap.split(",") if each.strip()]
        if not addresses:
            raise AnalysisError("--bootstrap names no broker: give host:port, several with commas")
        failures = []
        for host, port in addresses:
            try:
                socket.create_connection((host, port), TIMEOUT_S).close()
            except socket.gaierror:
                failures.append(f"{host} is no known host")
            except OSError as error:
                failures.append(f"{host}:{port}: {(error.strerror or str(error)).lower()}")
            else:
                return
        raise RunError(f"no broker can be reached: {'; '.join(failures)}: check --bootstrap")

    def ask(self, spark: SparkSession) -> str:
        """Return the topic's id, which changes when it is deleted and created again; "" for brokers without ids.

        Raises AnalysisError if brokers refuse, and RunError if they do not answer.
        """
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001  the only way to Kafka's client
        properties = jvm.java.util.Properties()
        for key, value in {**_PATIENCE, **self.properties, "bootstrap.servers": self.bootstrap}.items():
            properties.setProperty(key, value)
        client = None
        try:
            client = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
            asked = client.describeTopics(jvm.java.util.List.of(self.name)).allTopicNames()
            id_ = (
                asked.get(_TIMEOUT_MS, jvm.java.util.concurrent.TimeUnit.MILLISECONDS)
                .get(self.name)
                .topicId()
                .toString()
            )
        except Py4JJavaError as error:
            raise self._refused(error) from None
        except (Py4JError, TypeError):
            raise AnalysisError(
                "Spark's Kafka source is not there: give --jars with a folder of its jars, or "
                "--conf spark.jars.packages=…"
            ) from None
        finally:
            if client is not None:
                client.close(jvm.java.time.Duration.ZERO)
        return "" if id_ == _NO_ID else str(id_)

    def require(self, spark: SparkSession, id_: str) -> None:
        """Raise RunError if this is no longer the topic with an id. The next run reads the new one."""
        if self.ask(spark) != id_:
            raise RunError(
                f"topic {self.name} was deleted and recreated: the next run reads the new one from its beginning"
            )

    def _refused(self, error: Py4JJavaError) -> AnalysisError:
        raised: Any = error.java_exception
        chain = []
        while raised is not None:
            chain.append((str(raised.getClass().getSimpleName()), str(raised.getMessage())))
            raised = raised.getCause()
        name, said = next((each for each in chain if each[0] in _ADVICE), chain[-1])
        if name not in _ADVICE:
            return AnalysisError(f"{self.bootstrap}: {said.splitlines()[0]} (--kafka-config)")
        kind = RunError if name == "TimeoutException" else AnalysisError
        return kind(f"{self.bootstrap}, topic {self.name}: {_ADVICE[name]} ({said.splitlines()[0]})")

    def source(self, spark: SparkSession, documents: int, *, accept_loss: bool) -> Source:
        """Return a stream with at most ``documents`` per batch."""
        options = {f"kafka.{key}": value for key, value in {**_PATIENCE, **self.properties}.items()}
        read = (
            spark.readStream.format("kafka")
            .options(**options)
            .options(
                **{
                    "kafka.bootstrap.servers": self.bootstrap,
                    "kafka.isolation.level": "read_committed",
                    "kafka.max.poll.records": "1",
                },
                subscribe=self.name,
                startingOffsets="earliest",
                maxOffsetsPerTrigger=str(documents),
                minPartitions=str(2 * spark.sparkContext.defaultParallelism),
                failOnDataLoss=str(not accept_loss).lower(),
            )
            .load()
        )
        size = F.octet_length("value")
        kept = F.when(size <= MOST_DOCUMENT_BYTES, F.col("value")).otherwise(F.substring("value", 1, KEPT_BYTES))
        stream = read.select(
            F.coalesce(kept, F.lit(b"")).alias("value"),
            F.coalesce(size, F.lit(0)).cast("long").alias("size"),
            F.when(F.col("timestampType") == _LOG_APPEND_TIME, F.expr("unix_millis(timestamp)")).alias("stamped_ms"),
            *("topic", "partition", "offset"),
        )
        return Source(stream, _texts)


def _texts(records: pa.RecordBatch) -> Iterator[Text]:
    for value, size, stamped_ms, *place in zip(*(column.to_pylist() for column in records.columns), strict=True):
        yield Text(value, size, Origin(*place), stamped_ms)


def _address(written: str) -> tuple[str, int]:
    host, _, port = written.strip().rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise AnalysisError(f"--bootstrap: {written.strip()!r} is not host:port")
    return host.strip("[]"), int(port)
