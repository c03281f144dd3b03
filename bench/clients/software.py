"""The software of the matrix: versions, where each comes from (registries' own clients), and what it can do."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.clients.cells import Scenario
from tests.harness.clients.java import OPTIONS
from tests.harness.jars import CLIENT_VERSIONS, LOGGING, SPARK_KAFKA, JarSet, cache_dir, fetch, missing

HERE: Final = Path(__file__).parent
BUILD_TIMEOUT_S: Final = 900
FOLDER: Final = "{folder}"
RUNS_ON: Final = "…"
BASIC: Final = "produce consume group admin quota leader"
Command = tuple[str, ...]


class BuildError(Exception):
    """What a registry's client or a compiler said."""


@dataclass(frozen=True, slots=True)
class Software:
    """`command` and `environment` may name `{folder}`, where `commands` were run beside copies of `sources`."""

    name: str
    version: str
    can: str
    """Scenarios; those that it has no calls for are left out. With `…`, it runs until it is stopped."""
    command: Command
    sources: tuple[str, ...] = ()
    commands: tuple[Command, ...] = ()
    jars: tuple[JarSet, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        return tuple(Scenario(word) for word in self.can.removesuffix(RUNS_ON).split())

    @property
    def runs_on(self) -> bool:
        return self.can.endswith(RUNS_ON)

    def topic(self, scenario: Scenario, way: str) -> str:
        """And its client-id, group and transactional id."""
        return f"{self.name}-{self.version}-{scenario}-{way}".lower().replace(" ", "-")

    def build(self) -> tuple[Command, dict[str, str]]:
        """Its command and environment, once all is in the user's cache."""
        if wanted := missing(self.jars):
            fetch(wanted)
        text = [repr(self.commands), *(HERE.joinpath(source).read_text("utf-8") for source in self.sources)]
        folder = cache_dir() / "clients" / hashlib.sha256("".join(text).encode()).hexdigest()[:16]
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
                self._build_in(Path(scratch, "built"))
                Path(scratch, "built").rename(folder)
        environment = {key: said.replace(FOLDER, str(folder)) for key, said in self.environment.items()}
        return tuple(word.replace(FOLDER, str(folder)) for word in self.command), environment

    def _build_in(self, folder: Path) -> None:
        folder.mkdir()
        for source in self.sources:
            shutil.copy(HERE / source, folder)
        for command in self.commands:
            done = subprocess.run(
                command,
                cwd=folder,
                env={**os.environ, "GOBIN": str(folder)},
                capture_output=True,
                text=True,
                timeout=BUILD_TIMEOUT_S,
                check=False,
            )
            if done.returncode != 0:
                raise BuildError(f"{self.name} {self.version}: {' '.join(command)}\n{done.stdout}{done.stderr}")


def _python(name: str, version: str, can: str, *packages: str) -> Software:
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--target", ".", *packages)
    command = (sys.executable, str(HERE / "client_python.py"))
    return Software(name, version, can, command, commands=(pip,), environment={"PYTHONPATH": "{folder}"})


def _jars(name: str, *artifacts: str) -> JarSet:
    return JarSet(name, (*artifacts, LOGGING))


def _classes(*jars: JarSet) -> str:
    return ":".join(f"{cache_dir()}/jars/{each.name}/*" for each in jars)


def _java(name: str, version: str, program: str, jars: JarSet, *options: str) -> Software:
    """A program of one file, compiled against the jars that it runs with."""
    compiler: Command = ("javac", "-nowarn", "-cp", _classes(jars), "-d", ".", f"{program}.java")
    command: Command = ("java", *OPTIONS, QUIET, *options, "-cp", "{folder}:" + _classes(jars), program)
    return Software(name, version, f"streams {RUNS_ON}", command, (f"{program}.java",), (compiler,), (jars,))


def _java_client(version: str, can: str) -> Software:
    """Client.java compiled against the oldest, the rest against the newest: a call that is not there is an error."""
    oldest, own, newest = (
        _jars(f"kafka-clients-{each}", f"{KAFKA}:kafka-clients:{each}")
        for each in (CLIENT_VERSIONS[0], version, CLIENT_VERSIONS[-1])
    )
    compilers: tuple[Command, ...] = (
        ("javac", "-nowarn", "-cp", _classes(oldest), "-d", ".", "Client.java"),
        ("javac", "-nowarn", "-cp", ".:" + _classes(newest), "-d", ".", "NewClient.java"),
    )
    command: Command = ("java", *OPTIONS, QUIET, "-cp", "{folder}:" + _classes(own), "Client")
    return Software("Java", version, can, command, ("Client.java", "NewClient.java"), compilers, (oldest, own, newest))


def _tool(name: str, version: str, can: str, *jars: JarSet) -> Software:
    command = (sys.executable, str(HERE / "client_tools.py"))
    return Software(
        name,
        version,
        can,
        command,
        jars=jars,
        environment={"CLASSES": _classes(*jars), "PYTHONPATH": str(HERE.parents[1])},
    )


def _connect(version: str) -> JarSet:
    return _jars(
        f"kafka-connect-{version}", *(f"{KAFKA}:connect-{part}:{version}" for part in ("runtime", "file", "mirror"))
    )


def _go(name: str, version: str, can: str) -> Software:
    """All libraries are in one program."""
    install = (("go", "mod", "init", "clients"), ("go", "get", *GO_MODULES), ("go", "build", "-o", "client", "."))
    return Software(name, version, can, ("{folder}/client",), ("client.go",), install)


QUIET: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
KAFKA: Final = "org.apache.kafka"
STREAMS_VERSIONS: Final = CLIENT_VERSIONS[3:]
FRANZ, SARAMA, KAFKA_GO = "1.22.3", "1.61.1", "0.4.51"
GO_MODULES: Final = (
    f"github.com/twmb/franz-go@v{FRANZ}",
    "github.com/twmb/franz-go/pkg/kadm@v1.20.0",
    f"github.com/IBM/sarama@v{SARAMA}",
    f"github.com/segmentio/kafka-go@v{KAFKA_GO}",
)
ALL: Final = (
    *(_java_client(version, f"{BASIC} transaction") for version in CLIENT_VERSIONS[:3]),
    *(_java_client(version, f"{BASIC} transaction group848 share") for version in CLIENT_VERSIONS[3:]),
    _python("kafka-python", "2.0.6", BASIC, "kafka-python==2.0.6"),
    _python("kafka-python", "3.0.12", f"{BASIC} transaction", "kafka-python==3.0.12"),
    _python("aiokafka", "0.14.0", f"{BASIC} transaction", "aiokafka==0.14.0"),
    _python("confluent-kafka", "2.5.3", f"{BASIC} transaction", "confluent-kafka==2.5.3"),
    _python("confluent-kafka", "2.16.1", f"{BASIC} transaction group848 share", "confluent-kafka==2.16.1"),
    _python("FastStream", "0.7.8", f"streams {RUNS_ON}", "faststream[kafka]==0.7.8"),
    _go("franz-go", FRANZ, f"{BASIC} transaction group848"),
    _go("Sarama", SARAMA, f"{BASIC} transaction"),
    _go("kafka-go", KAFKA_GO, BASIC),
    Software(
        "KafkaJS",
        "2.2.4",
        "produce group admin quota leader transaction",
        ("node", "{folder}/client.mjs"),
        ("client.mjs",),
        (("npm", "install", "--silent", "kafkajs@2.2.4"),),
    ),
    Software(
        "rskafka",
        "0.6.0",
        "produce consume admin quota leader",
        ("{folder}/target/release/client",),
        ("client.rs",),
        (
            ("cargo", "init", "--quiet", "--name", "client"),
            ("cargo", "add", "--quiet", "rskafka@0.6.0", "chrono@0.4"),
            ("cargo", "add", "--quiet", "tokio@1", "--features", "rt-multi-thread,macros,time"),
            ("cargo", "build", "--quiet", "--release"),
        ),
    ),
    _tool("kcat", "1.7.1", BASIC),
    *(_tool("Kafka Connect", version, f"produce group {RUNS_ON}", _connect(version)) for version in ("3.9.2", "4.3.1")),
    *(_tool("MirrorMaker 2", version, f"streams {RUNS_ON}", _connect(version)) for version in ("3.9.2", "4.3.1")),
    *(
        _java(
            "Kafka Streams", version, "Streams", _jars(f"kafka-streams-{version}", f"{KAFKA}:kafka-streams:{version}")
        )
        for version in STREAMS_VERSIONS
    ),
    _java("Spring", "4.0.0", "Spring", _jars("spring-kafka-4.0.0", "org.springframework.kafka:spring-kafka:4.0.0")),
    _java(
        "Camel",
        "4.14.0",
        "Camel",
        _jars("camel-4.14.0", *(f"org.apache.camel:camel-{part}:4.14.0" for part in ("main", "kafka"))),
    ),
    _java(
        "Flink",
        "2.0.0",
        "Flink",
        _jars(
            "flink-2.0.0",
            *(f"org.apache.flink:flink-{part}:2.0.0" for part in ("streaming-java", "clients", "connector-base")),
            "org.apache.flink:flink-connector-kafka:4.0.1-2.0",
        ),
        "--add-opens=java.base/java.util=ALL-UNNAMED",
        "--add-opens=java.base/java.lang=ALL-UNNAMED",
    ),
    Software(
        "Spark",
        "4.2.1",
        f"streams {RUNS_ON}",
        (sys.executable, str(HERE / "client_python.py")),
        jars=(SPARK_KAFKA,),
        environment={"SPARK_JARS": f"{cache_dir()}/jars/{SPARK_KAFKA.name}"},
    ),
)
