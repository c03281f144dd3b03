"""The performance tools of the distribution (kafka-producer-perf-test and kafka-consumer-perf-test)."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.errors import BenchError
from tests.harness.clients.java import tool_command
from tests.harness.jars import JarError
from tests.harness.ports import LOOPBACK
from tests.harness.process import ProcessError, Program

RECORD_BYTES: Final = 1000
CLIENT_ID: Final = "bench-000000"
"""The first client-id with a quota in Sluice."""
START_S: Final = 60.0
"""More than a JVM and a group need to start on a busy machine."""
SLOWEST_BYTES_PER_S: Final = 2e6

_PRODUCER: Final = "org.apache.kafka.tools.ProducerPerformance"
_CONSUMER: Final = "org.apache.kafka.tools.ConsumerPerformance"
_SENT: Final = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec .* 50th", re.MULTILINE)
_CONSUMED: Final = ("data.consumed.in.MB", "data.consumed.in.nMsg", "fetch.time.ms")


@dataclass(frozen=True, slots=True)
class Moved:
    """A tool's result: records, bytes of their values, and seconds."""

    records: int
    bytes: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Tools:
    """Runs the tools on one core, with logs in ``folder``.

    Raises BenchError, with the log, if one fails or takes too long.
    """

    core: int
    folder: Path

    def produce(
        self, port: int, topic: str, records: int, *, record_bytes: int = RECORD_BYTES, **settings: str
    ) -> Moved:
        """Produce ``records`` records as fast as possible; ``settings`` with _ for the dots of their names.

        All records are the same one from a file: generating each would cost more than sending it.
        """
        payload = self.folder / "payload"
        payload.write_text("x" * record_bytes, encoding="ascii")
        command = [
            *("--bootstrap-server", f"{LOOPBACK}:{port}", "--topic", topic, "--throughput", "-1"),
            *("--num-records", str(records), "--payload-file", str(payload), "--command-property"),
            *(f"{name.replace('_', '.')}={value}" for name, value in {**settings, "client_id": CLIENT_ID}.items()),
        ]
        said = self._run("producer", _PRODUCER, command, records * record_bytes)
        return _complete(read_sent(said, record_bytes), records, said)

    def consume(self, port: int, topic: str, records: int, group: str) -> Moved:
        """Consume at least ``records`` records from the beginning: a poll is never cut."""
        command = [
            *("--bootstrap-server", f"{LOOPBACK}:{port}", "--topic", topic, "--group", group),
            *("--num-records", str(records), "--command-property", f"client.id={CLIENT_ID}"),
        ]
        said = self._run("consumer", _CONSUMER, command, records * RECORD_BYTES)
        return _complete(read_consumed(said), records, said)

    def _run(self, name: str, main_class: str, arguments: list[str], size: int) -> str:
        try:
            command = ["taskset", "-c", str(self.core), *tool_command(main_class, *arguments)]
        except JarError as error:
            raise BenchError(str(error)) from None
        log = self.folder / f"{name}.log"
        log.unlink(missing_ok=True)
        with Program(f"the performance {name}", command, log) as tool:
            try:
                status = tool.wait(START_S + size / SLOWEST_BYTES_PER_S)
            except ProcessError as error:
                raise BenchError(str(error)) from None
            if status:
                raise BenchError(f"the performance {name} ended with status {status}\n{tool.tail()}")
            return tool.output()


def read_sent(said: str, record_bytes: int) -> Moved | None:
    """Parse the last line of kafka-producer-perf-test; None if there is none."""
    found = _SENT.search(said)
    if not found:
        return None
    records = int(found[1])
    return Moved(records, records * record_bytes, records / float(found[2]) if records else 0.0)


def read_consumed(said: str) -> Moved | None:
    """Parse the table of kafka-consumer-perf-test, a line of names and one of values; None if there is none.

    The client's own log is between the two.
    """
    lines = [[cell.strip() for cell in line.split(",")] for line in said.splitlines()]
    names = next((line for line in lines if set(_CONSUMED) <= set(line)), None)
    if names is None:
        return None
    rows = (line for line in lines if len(line) == len(names) and all(cell[:1].isdigit() for cell in line))
    for row in rows:
        mib, records, fetching_ms = (float(row[names.index(name)]) for name in _CONSUMED)
        return Moved(int(records), mib * 2**20, fetching_ms / 1000)
    return None


def _complete(moved: Moved | None, records: int, said: str) -> Moved:
    """Return the result if it is complete; errors of single records do not change the tools' exit status."""
    if moved is None or moved.records < records or not moved.seconds:
        end = "\n".join(said.splitlines()[-25:])
        done = moved.records if moved else "no"
        raise BenchError(f"a performance tool reported {done} of {records} records:\n{end}")
    return moved
