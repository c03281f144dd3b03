"""The jar cache: Apache Kafka's brokers, tools and clients, fetched once through Maven.

A set is a directory `<cache>/kafka-sluice/jars/<name>/` that exists only when it is complete: it is filled beside its
place and renamed. Maven compares each file with the checksum that is published for it.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

FETCH_TIMEOUT_S: Final = 600
# slf4j-simple and not slf4j-nop: a broker that does not start says why on stderr, which the harness quotes.
LOGGING: Final = "org.slf4j:slf4j-simple:1.7.36"


class JarError(Exception):
    """A jar set that is not in the cache, or cannot be fetched; says which, and what to type."""


@dataclass(frozen=True, slots=True)
class JarSet:
    name: str
    artifacts: tuple[str, ...]
    """Maven coordinates, `group:artifact:version`."""
    alone: bool = False
    """Without what these depend on."""


def _broker(version: str) -> JarSet:
    kafka = "org.apache.kafka"
    return JarSet(f"kafka-{version}", (f"{kafka}:kafka_2.13:{version}", f"{kafka}:kafka-tools:{version}", LOGGING))


def _clients(version: str) -> JarSet:
    return JarSet(f"kafka-clients-{version}", (f"org.apache.kafka:kafka-clients:{version}", LOGGING))


NEWEST_BROKER: Final = "4.3.1"
LAST_ON_ZOOKEEPER: Final = "3.9.1"
BROKER_VERSIONS: Final = (NEWEST_BROKER, LAST_ON_ZOOKEEPER)
# The last whose kafka-configs writes quotas to ZooKeeper itself (--zookeeper).
ZOOKEEPER_TOOLS: Final = "2.8.2"
OLD_TOOLS: Final = JarSet(f"kafka-{ZOOKEEPER_TOOLS}", (f"org.apache.kafka:kafka_2.13:{ZOOKEEPER_TOOLS}", LOGGING))
# 0.11 is the last that logs in with SaslHandshake v0 and raw frames.
CLIENT_VERSIONS: Final = ("0.11.0.3", "1.1.1", "2.3.1", "3.9.2", "4.4.0")
# What kafka-clients expects beside it, for tokens of OAUTHBEARER, and 0.11 from a Java before 11, for SCRAM.
CLIENT_EXTRAS: Final = JarSet(
    "kafka-clients-extras",
    (
        "com.fasterxml.jackson.core:jackson-databind:2.21.2",
        "org.bitbucket.b_c:jose4j:0.9.6",
        "javax.xml.bind:jaxb-api:2.3.1",
        LOGGING,
    ),
)
# Spark's connector for Kafka. The versions differ because no newer ones are published together; they work with Spark
# 4.2. What else they depend on stands among Spark's own jars.
SPARK_KAFKA: Final = JarSet(
    "spark-kafka-4.2.0",
    (
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.13.1",
    ),
    alone=True,
)
# What Spark 4.2 (Hadoop 3.5.0) needs for s3a://. With hadoop-aws users get the SDK as one bundle of 690 MB; these are
# the parts of it that are used, 15 MB.
HADOOP_S3: Final = JarSet(
    "hadoop-aws-3.5.0",
    (
        "org.apache.hadoop:hadoop-aws:3.5.0",
        "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
    ),
    alone=True,
)
AWS_SDK: Final = JarSet(
    "aws-sdk-2.35.4",
    tuple(f"software.amazon.awssdk:{module}:2.35.4" for module in ("s3", "s3-transfer-manager", "sts")),
)
DEMO_SETS: Final = (_broker(NEWEST_BROKER), SPARK_KAFKA)
ALL_SETS: Final = (
    *map(_broker, BROKER_VERSIONS),
    OLD_TOOLS,
    *map(_clients, CLIENT_VERSIONS),
    CLIENT_EXTRAS,
    SPARK_KAFKA,
    HADOOP_S3,
    AWS_SDK,
)


def cache_dir() -> Path:
    """`${XDG_CACHE_HOME:-~/.cache}/kafka-sluice`."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kafka-sluice"


def jar_dir(name: str) -> Path:
    """Where the set `name` (for example `kafka-clients-3.9.2`) is; JarError when it has not been fetched."""
    directory = _place_of(name)
    if not directory.is_dir():
        raise JarError(f"jar set {name} is not in {directory.parent}: run `make setup`")
    return directory


def classpath(name: str) -> str:
    """What `java -cp` takes."""
    return f"{jar_dir(name)}/*"


def missing(sets: tuple[JarSet, ...]) -> list[JarSet]:
    return [wanted for wanted in sets if not _place_of(wanted.name).is_dir()]


def fetch(sets: Sequence[JarSet]) -> None:
    """Put sets into the cache, each in one rename; a set that another process put there meanwhile is as good.

    One run of Maven for all: starting it takes longer than most downloads.
    """
    jars = cache_dir() / "jars"
    jars.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=jars) as scratch:
        _copy_dependencies(sets, Path(scratch))
        for wanted in sets:
            try:
                Path(scratch, wanted.name, "jars").rename(_place_of(wanted.name))
            except OSError:
                if not _place_of(wanted.name).is_dir():
                    raise


def _place_of(name: str) -> Path:
    return cache_dir() / "jars" / name


def _copy_dependencies(sets: Sequence[JarSet], folder: Path) -> None:
    """Fill `<name>/jars` of the folder for each set."""
    names = ", ".join(wanted.name for wanted in sets)
    maven = shutil.which("mvn")
    if maven is None:
        raise JarError(f"cannot fetch {names}: Maven (mvn) is not installed: run `make setup`")
    modules = "".join(f"<module>{escape(wanted.name)}</module>" for wanted in sets)
    _write_pom(folder, "all", f"<modules>{modules}</modules>")
    for wanted in sets:
        dependencies = "".join(_dependency(artifact, alone=wanted.alone) for artifact in wanted.artifacts)
        where = "<properties><outputDirectory>${project.basedir}/jars</outputDirectory></properties>"
        _write_pom(folder / wanted.name, wanted.name, f"{where}<dependencies>{dependencies}</dependencies>")
    # Of its own: Java knows no HOME, so the usual one would be the machine's even where the cache is not.
    repository = f"-Dmaven.repo.local={cache_dir() / 'maven'}"
    options = ("--quiet", "--batch-mode", "--strict-checksums", "--threads", "4", repository)
    command = [maven, *options, "--file", str(folder / "pom.xml"), "dependency:copy-dependencies"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    if done.returncode != 0 or not all(any((folder / wanted.name / "jars").glob("*.jar")) for wanted in sets):
        said = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise JarError(f"cannot fetch {names} through Maven:\n{said}")


def _write_pom(folder: Path, name: str, content: str) -> None:
    folder.mkdir(exist_ok=True)
    folder.joinpath("pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"<groupId>sluice</groupId><artifactId>{escape(name)}</artifactId><version>1</version>"
        f"<packaging>pom</packaging>{content}</project>",
        encoding="utf-8",
    )


def _dependency(artifact: str, *, alone: bool) -> str:
    group, name, version = map(escape, artifact.split(":"))
    # Kafka 3.9 brings a logging binding of its own; two bindings make slf4j choose by chance.
    without = ("*", "*") if alone else ("org.slf4j", "slf4j-reload4j")
    exclusion = "<exclusion><groupId>{}</groupId><artifactId>{}</artifactId></exclusion>".format(*without)
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        f"<exclusions>{exclusion}</exclusions></dependency>"
    )
