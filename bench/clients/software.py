"""The software of the matrix: versions, where each comes from (registries' own clients), and what it can do."""

import hashlib
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.clients.cells import Scenario
from bench.errors import BenchError
from tests.harness.clients.java import OPTIONS
from tests.harness.jars import CLIENT_VERSIONS, LOGGING, SPARK_KAFKA, JarSet, cache_dir, fetch, missing

HERE: Final = Path(__file__).parent
BUILD_TIMEOUT_S: Final = 900
COPIES: Final = "streams"
CONNECTS: Final = "produce group"
BASIC: Final = "produce consume group admin quota leader"
TRANSACTIONS: Final = f"{BASIC} transaction"
JAVA: Final = " ".join(("java -Dorg.slf4j.simpleLogger.defaultLogLevel=error", *OPTIONS))
PYTHON: Final = f"{shlex.quote(sys.executable)} {shlex.quote(str(HERE))}"
KAFKA: Final = "org.apache.kafka"


@dataclass(frozen=True, slots=True)
class Software:
    name: str
    version: str
    can: str
    """Scenarios; those that it has no calls for are left out."""
    command: str
    """It and `environment` may name `{folder}`, where the script `build` was run beside copies of `sources`."""
    build: str = ":"
    sources: str = ""
    jars: tuple[JarSet, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def scenarios(self) -> list[Scenario]:
        return [Scenario(word) for word in self.can.split()]

    @property
    def runs_on(self) -> bool:
        """Whether it goes on until it is stopped."""
        return self.can in {COPIES, CONNECTS}

    def topic(self, scenario: Scenario, way: str) -> str:
        """And its client-id, group and transactional id."""
        return f"{self.name}-{self.version}-{scenario}-{way}".lower().replace(" ", "-")

    def built(self) -> tuple[list[str], dict[str, str]]:
        """Its command and environment, once all is in the user's cache."""
        if wanted := missing(self.jars):
            fetch(wanted)
        sources = [HERE / source for source in self.sources.split()]
        text = self.build + "".join(source.read_text("utf-8") for source in sources)
        folder = cache_dir() / "clients" / hashlib.sha256(text.encode()).hexdigest()[:16]
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
                for source in sources:
                    shutil.copy(source, scratch)
                self._build_in(scratch)
                shutil.copytree(scratch, folder, symlinks=True)
        environment = {key: said.format(folder=folder) for key, said in self.environment.items()}
        return shlex.split(self.command.format(folder=folder)), environment

    def _build_in(self, folder: str) -> None:
        script = ["sh", "-ec", self.build]
        with subprocess.Popen(script, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as it:
            said, _ = it.communicate(timeout=BUILD_TIMEOUT_S)
        if it.returncode != 0:
            raise BenchError(f"{self.name} {self.version}:\n{said.decode()}")


def _python(name: str, version: str, can: str, package: str) -> Software:
    install = f"{shlex.quote(sys.executable)} -m pip install --quiet --target . {package}=={version}"
    return Software(name, version, can, f"{PYTHON}/client_python.py", install, environment={"PYTHONPATH": "{folder}"})


def _jars(*artifacts: str) -> JarSet:
    """The set has the name of the first."""
    _, name, version = artifacts[0].split(":")
    return JarSet(f"{name}-{version}", (*artifacts, LOGGING))


def _classes(jars: JarSet) -> str:
    return f"'{cache_dir()}/jars/{jars.name}/*'"


def _java(
    name: str, version: str, can: str, jars: JarSet, against: JarSet | None = None, options: str = ""
) -> Software:
    """A program of one file, compiled against the jars that it runs with, or others."""
    program, compiled = "Client" if name == "Java" else name.rsplit(maxsplit=1)[-1], against or jars
    command = f"{JAVA} {options} -cp {{folder}}:{_classes(jars)} {program}"
    build = f"javac -nowarn -cp {_classes(compiled)} *.java"
    return Software(name, version, can, command, build, f"{program}.java", (jars, compiled))


def _java_client(version: str, can: str) -> Software:
    newest, own = (_jars(f"{KAFKA}:kafka-clients:{it}") for it in (CLIENT_VERSIONS[-1], version))
    return _java("Java", version, can, own, newest)


def _of_kafka(name: str, version: str, can: str) -> Software:
    """A program of Connect's jars."""
    jars = _jars(*(f"{KAFKA}:connect-{part}:{version}" for part in ("runtime", "file", "mirror")))
    environment = {"CLASSES": _classes(jars).strip("'"), "PYTHONPATH": str(HERE.parents[1])}
    return Software(name, version, can, f"{PYTHON}/client_tools.py", jars=(jars,), environment=environment)


def _go(name: str, can: str) -> Software:
    """All libraries are in one program."""
    modules = " ".join(f"{module}@v{version}" for module, version in GO_MODULES.values())
    build = f"go mod init clients; go get {modules} github.com/twmb/franz-go/pkg/kadm@v1.20.0; go build -o client ."
    return Software(name, GO_MODULES[name][1], can, "{folder}/client", build, "client.go")


GO_MODULES: Final = {
    "franz-go": ("github.com/twmb/franz-go", "1.22.3"),
    "Sarama": ("github.com/IBM/sarama", "1.61.1"),
    "kafka-go": ("github.com/segmentio/kafka-go", "0.4.51"),
}
KAFKA_JS: Final = TRANSACTIONS.replace("consume ", "")
RUST_BUILD: Final = """
cargo init --quiet --name client
cargo add --quiet rskafka@0.6.0 chrono@0.4
cargo add --quiet tokio@1 --features rt-multi-thread,macros
cargo build --quiet --release
mv target/release/client rskafka
rm -r target
"""
FLINK: Final = _jars(
    *(f"org.apache.flink:flink-{name}:2.0.0" for name in ("clients", "streaming-java", "connector-base")),
    "org.apache.flink:flink-connector-kafka:4.0.1-2.0",
)
OPEN: Final = "--add-opens=java.base/java.util=ALL-UNNAMED --add-opens=java.base/java.lang=ALL-UNNAMED"
SPARK: Final = {"SPARK_JARS": f"{cache_dir()}/jars/{SPARK_KAFKA.name}"}
ALL: Final = (
    *(_java_client(version, TRANSACTIONS) for version in CLIENT_VERSIONS[:3]),
    *(_java_client(version, f"{TRANSACTIONS} group848 share") for version in CLIENT_VERSIONS[3:]),
    _python("kafka-python", "2.0.6", BASIC, "kafka-python"),
    _python("kafka-python", "3.0.12", TRANSACTIONS, "kafka-python"),
    _python("aiokafka", "0.14.0", TRANSACTIONS, "aiokafka"),
    _python("confluent-kafka", "2.5.3", TRANSACTIONS, "confluent-kafka"),
    _python("confluent-kafka", "2.16.1", f"{TRANSACTIONS} group848 share", "confluent-kafka"),
    _python("FastStream", "0.7.8", COPIES, "'faststream[kafka]'"),
    _go("franz-go", f"{TRANSACTIONS} group848"),
    _go("Sarama", TRANSACTIONS),
    _go("kafka-go", BASIC),
    Software("KafkaJS", "2.2.4", KAFKA_JS, "node {folder}/client.mjs", "npm i kafkajs@2.2.4", "client.mjs"),
    Software("rskafka", "0.6.0", BASIC.replace("group ", ""), "{folder}/rskafka", RUST_BUILD, "client.rs"),
    Software("kcat", "1.7.1", BASIC, f"{PYTHON}/client_tools.py", environment={"PYTHONPATH": str(HERE.parents[1])}),
    *(_of_kafka("Kafka Connect", version, CONNECTS) for version in ("3.9.2", "4.3.1")),
    *(_of_kafka("MirrorMaker 2", version, COPIES) for version in ("3.9.2", "4.3.1")),
    *(_java("Kafka Streams", it, COPIES, _jars(f"{KAFKA}:kafka-streams:{it}")) for it in CLIENT_VERSIONS[3:]),
    _java("Spring", "4.0.0", COPIES, _jars("org.springframework.kafka:spring-kafka:4.0.0")),
    _java(
        "Camel", "4.14.0", COPIES, _jars("org.apache.camel:camel-kafka:4.14.0", "org.apache.camel:camel-main:4.14.0")
    ),
    _java("Flink", "2.0.0", COPIES, FLINK, options=OPEN),
    Software("Spark", "4.2.1", COPIES, f"{PYTHON}/client_python.py", jars=(SPARK_KAFKA,), environment=SPARK),
)
