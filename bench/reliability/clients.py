"""Client libraries at work: a program a family, which writes in several modes, and consumers that read all there is."""

import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench.reliability.ledger import Account, Log, Mode, Stored
from bench.reliability.writer import END_S, FAMILIES, PARTITIONS
from tests.harness.clients.java import java_command
from tests.harness.jars import CLIENT_VERSIONS
from tests.harness.process import ProcessError, Program

ALL_FAMILIES: Final = ("java", *FAMILIES)
HERE: Final = Path(__file__).parent
READ_S: Final = 120.0
Topics = Mapping[Mode, str]
Ways = Mapping[str, tuple[str, Mapping[str, str]]]
"""Family → its bootstrap addresses and environment."""


class Writers:
    """All modes of these families, a program a family, as a context manager."""

    def __init__(self, ways: Ways, topics: Topics, rate: float, folder: Path) -> None:
        self.files = {(family, mode): folder / f"{family}-{mode}" for family in ways for mode in topics}
        self.programs: list[Program] = []
        self._stop = folder / "stop"
        for at, (family, (bootstrap, environment)) in enumerate(ways.items()):
            # producers that are opened again take the next numbers
            shares = [f"{mode}:{topic}:{(at * 10 + of) * 100_000}" for of, (mode, topic) in enumerate(topics.items())]
            command = [*_program(family), bootstrap, str(folder), str(rate), *shares]
            log = folder / f"{family}.log"
            self.programs.append(Program(f"writer {family}", command, log, environment=environment))

    def acked(self) -> dict[tuple[str, Mode], int]:
        """How many records each has had acknowledged so far, by family and mode."""
        return {key: file.read_bytes().count(b"acked ") if file.exists() else 0 for key, file in self.files.items()}

    def finish(self) -> list[str]:
        """Each flushes and ends; the names of those that do not, or fail."""
        self._stop.touch()
        failed = []
        for program in self.programs:
            try:
                status = program.wait(END_S)
            except ProcessError:
                status = program.kill()
            if status != 0:
                failed.append(f"{program.name} with status {status}")
        return failed

    def account(self, mode: Mode) -> Account:
        return Account.read(file for (_, of), file in self.files.items() if of is mode)

    def __enter__(self) -> "Writers":
        return self

    def __exit__(self, *_: object) -> None:
        for program in self.programs:
            program.kill()


class Reader:
    """A read_committed consumer (librdkafka) of whole topics, from its making until `finish`."""

    def __init__(self, bootstrap: str, topics: Topics) -> None:
        from confluent_kafka import Consumer, TopicPartition

        settings = {
            "bootstrap.servers": bootstrap,
            "client.id": "reader",
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "reconnect.backoff.max.ms": 1000,
            "log_level": 0,
        }
        self._consumer: Any = Consumer(settings)
        self._topics = topics
        self._values: dict[str, dict[int, list[tuple[int, bytes]]]] = {
            topic: {partition: [] for partition in range(PARTITIONS)} for topic in topics.values()
        }
        self._ends: dict[tuple[str, int], int] = {}
        """Where each partition was at its end, for now."""
        self._until: Mapping[tuple[str, int], int] | None = None
        self._gave_up_s = float("inf")
        self._consumer.assign(
            [TopicPartition(topic, partition, 0) for topic in topics.values() for partition in range(PARTITIONS)]
        )
        self._thread = threading.Thread(target=self._read, name="reader")
        self._thread.start()

    def finish(self, ends: Mapping[tuple[str, int], int]) -> dict[Mode, Log]:
        """The records up to these offsets, by mode; TimeoutError when they are not reached."""
        self._gave_up_s = time.monotonic() + READ_S
        self._until = ends
        self._thread.join()
        short = {
            where: (self._ends.get(where, 0), end) for where, end in ends.items() if self._ends.get(where, 0) < end
        }
        if short:
            raise TimeoutError(f"not read to the end within {READ_S:g} s: {short} (partition: reached, end)")
        return {
            mode: {
                partition: [Stored.decode(offset, partition, value) for offset, value in values]
                for partition, values in self._values[topic].items()
            }
            for mode, topic in self._topics.items()
        }

    def close(self) -> None:
        """End it, read or not."""
        self._gave_up_s = 0.0
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        from confluent_kafka import KafkaError

        while time.monotonic() < self._gave_up_s and not self._has_all():
            for message in self._consumer.consume(1000, timeout=0.2):
                where = (message.topic(), message.partition())
                if message.error() is None:
                    self._values[where[0]][where[1]].append((message.offset(), message.value()))
                elif message.error().code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  librdkafka's names of its own errors
                    self._ends[where] = message.offset()

    def _has_all(self) -> bool:
        until = self._until
        return until is not None and all(self._ends.get(where, 0) >= end for where, end in until.items())


def _program(family: str) -> list[str]:
    if family == "java":
        return java_command(CLIENT_VERSIONS[-1], "Writer", HERE)
    return [sys.executable, "-m", "bench.reliability.writer", family]
