"""Every client there is, and what it can do."""

from dataclasses import dataclass
from typing import Final

from tests.harness.clients.java import java_command
from tests.harness.clients.process import ClientProcess, python_command
from tests.harness.clients.tasks import Task


@dataclass(frozen=True, slots=True)
class ClientKind:
    """One client library of one version."""

    name: str
    module: str = ""
    """The Python program; empty for Java."""
    java_version: str = ""
    has_consumer_protocol: bool = False
    """Whether it speaks KIP-848."""
    reports_throttle: bool = True

    def run(self, task: Task) -> ClientProcess:
        command = python_command(self.module) if self.module else java_command(self.java_version)
        return ClientProcess(command, task)


KAFKA_PYTHON: Final = ClientKind("kafka-python", module="kafka_python_client")
AIOKAFKA: Final = ClientKind("aiokafka", module="aiokafka_client", reports_throttle=False)
CONFLUENT: Final = ClientKind("confluent-kafka", module="confluent_client", has_consumer_protocol=True)
JAVA_1: Final = ClientKind("java-1.1.1", java_version="1.1.1")
JAVA_2: Final = ClientKind("java-2.3.1", java_version="2.3.1")
JAVA_3: Final = ClientKind("java-3.9.2", java_version="3.9.2")
JAVA_4: Final = ClientKind("java-4.4.0", java_version="4.4.0", has_consumer_protocol=True)
KINDS: Final = (KAFKA_PYTHON, AIOKAFKA, CONFLUENT, JAVA_1, JAVA_2, JAVA_3, JAVA_4)
