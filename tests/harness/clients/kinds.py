"""Every client there is, and what it can do."""

from dataclasses import dataclass
from typing import Final

from tests.harness.clients.java import java_command
from tests.harness.clients.process import ClientProcess, python_command
from tests.harness.clients.tasks import Group, Task

BY_PASSWORD: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
ALL_MECHANISMS: Final = (*BY_PASSWORD, "OAUTHBEARER")


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
    mechanisms: tuple[str, ...] = ALL_MECHANISMS
    has_signed_tokens: bool = True
    """Whether it can be handed a token of OAUTHBEARER, instead of making an unsecured one."""
    has_delegation_tokens: bool = False
    reauthenticates: bool = False
    """Whether it knows KIP-368."""

    def run(self, task: Task) -> ClientProcess:
        """A group is a program of its own, which confluent-kafka and Java 4 have."""
        if isinstance(task, Group):
            command = (
                python_command("confluent_group")
                if self.module
                else java_command(self.java_version, "GroupOfConsumers")
            )
        else:
            command = python_command(self.module) if self.module else java_command(self.java_version)
        return ClientProcess(command, task)


def _java(version: str, mechanisms: tuple[str, ...], *, signed: bool, reauthenticates: bool) -> ClientKind:
    return ClientKind(
        f"java-{version}",
        java_version=version,
        has_consumer_protocol=version.startswith("4."),
        mechanisms=mechanisms,
        has_signed_tokens=signed,
        has_delegation_tokens=not version.startswith("0."),
        reauthenticates=reauthenticates,
    )


KAFKA_PYTHON: Final = ClientKind("kafka-python", module="kafka_python_client", reauthenticates=True)
AIOKAFKA: Final = ClientKind("aiokafka", module="aiokafka_client", reports_throttle=False)
CONFLUENT: Final = ClientKind(
    "confluent-kafka", module="confluent_client", has_consumer_protocol=True, reauthenticates=True
)
JAVA_0: Final = _java("0.11.0.3", BY_PASSWORD, signed=False, reauthenticates=False)
"""Logs in with SaslHandshake v0 and raw frames, as everything did before Kafka 1.0; too old for some operations."""
JAVA_1: Final = _java("1.1.1", BY_PASSWORD, signed=False, reauthenticates=False)
JAVA_2: Final = _java("2.3.1", ALL_MECHANISMS, signed=False, reauthenticates=True)
JAVA_3: Final = _java("3.9.2", ALL_MECHANISMS, signed=True, reauthenticates=True)
JAVA_4: Final = _java("4.4.0", ALL_MECHANISMS, signed=True, reauthenticates=True)
KINDS: Final = (KAFKA_PYTHON, AIOKAFKA, CONFLUENT, JAVA_1, JAVA_2, JAVA_3, JAVA_4)
SECURE_KINDS: Final = (JAVA_0, *KINDS)
"""Those that log in."""
