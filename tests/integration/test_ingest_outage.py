"""``sluice analyze ingest --every`` while brokers hang, crash and come back; its end, and a second one beside it."""

import asyncio
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import orjson
import pytest
from aiokafka import AIOKafkaProducer

from tests.analysis.records import document, row
from tests.harness.jars import SPARK_KAFKA, jar_dir, java_cache
from tests.harness.kafka import KafkaCluster
from tests.harness.process import Program
from tests.integration.test_ingest import TIMEOUT_S, stored

pytestmark = [pytest.mark.matrix, pytest.mark.spark, pytest.mark.timeout(1500)]

SESSION: Final = ("--master", "local[2]", "--conf", "spark.driver.memory=1g", *java_cache())
"""What is logged is as it is for everybody."""
TOPIC: Final = "usage"
ROWS: Final = [row("alice", bytes_in=1)]


async def send(bootstrap: str, first: int, count: int) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for seq in range(first, first + count):
            await producer.send_and_wait(TOPIC, orjson.dumps(document(seq, ROWS)))


@pytest.fixture
def broker() -> Iterator[KafkaCluster]:
    """One node, which is stopped and crashes: nobody else's."""
    with KafkaCluster(node_ids=(1,)) as running:
        running.create_topic(TOPIC)
        asyncio.run(send(running.bootstrap, 0, 10))
        yield running


class Ingest(Program):
    """``sluice analyze ingest --every 1s``."""

    def __init__(self, name: str, broker: KafkaCluster, folder: Path, options: Sequence[str]) -> None:
        sluice = str(Path(sys.executable).parent / "sluice")
        place = ("--warehouse", str(folder / "warehouse"), "--bootstrap", broker.bootstrap, "--topic", TOPIC)
        command = [sluice, "analyze", "ingest", *place, "--every", "1s", *SESSION, *options]
        super().__init__(name, command, folder / f"{name}.log")

    def wait_for(self, said: str, times: int = 1) -> None:
        self.wait_until(lambda: self.output().count(said) >= times, f"{said!r}, {times} times", TIMEOUT_S)

    def wait_for_documents(self, number: int) -> None:
        """However many batches they come in."""
        told = re.compile(r"^batch \d+: (\d+) documents", re.MULTILINE)
        self.wait_until(lambda: sum(map(int, told.findall(self.output()))) >= number, f"{number} documents", TIMEOUT_S)


def jars() -> tuple[str, ...]:
    found = ",".join(map(str, sorted(jar_dir(SPARK_KAFKA.name).glob("*.jar"))))
    return ("--source", "jvm", "--conf", f"spark.jars={found}")


@pytest.mark.parametrize("source", ["python", "jvm"])
def test_brokers_that_are_away_are_waited_for(broker: KafkaCluster, tmp_path: Path, source: str) -> None:
    options = jars() if source == "jvm" else ("--source", "python")
    with (ingest := Ingest("ingest", broker, tmp_path, options)):
        ingest.wait_for_documents(10)
        broker.brokers[1].signal(signal.SIGSTOP)
        ingest.wait_for("brokers are away, waiting for them: ")
        broker.brokers[1].signal(signal.SIGCONT)
        ingest.wait_for("brokers answer again, after ")
        asyncio.run(send(broker.bootstrap, 10, 10))
        ingest.wait_for_documents(20)
        broker.stop_broker(1, crash=True)
        ingest.wait_for("brokers are away, waiting for them: ", 2)
        broker.start_broker(1)
        ingest.wait_for("brokers answer again, after ", 2)
        asyncio.run(send(broker.bootstrap, 20, 10))
        ingest.wait_for_documents(30)
        broker.stop_broker(1, crash=True)
        ingest.wait_for("brokers are away, waiting for them: ", 3)
        assert ingest.stop(60) == 0
    assert "Traceback" not in ingest.output()
    assert "30 documents, 30 rows\n" in ingest.output().splitlines(keepends=True)[-1]
    assert stored(tmp_path / "warehouse") == {"edge-1": (30, 30, 30)}


def test_the_second_ends_and_says_so_and_a_kill_leaves_nothing_behind(broker: KafkaCluster, tmp_path: Path) -> None:
    options = ("--source", "python")
    with (first := Ingest("first", broker, tmp_path, options)):
        first.wait_for_documents(10)
        with (second := Ingest("second", broker, tmp_path, options)):
            assert second.wait(TIMEOUT_S) == 1
        assert f"error: another ingest (process {first.pid}) is at work on checkpoint " in second.output()
        assert "Traceback" not in second.output()
        first.kill()
    asyncio.run(send(broker.bootstrap, 10, 10))
    with (third := Ingest("third", broker, tmp_path, options)):
        third.wait_for_documents(10)
        assert third.stop(60) == 0
    assert stored(tmp_path / "warehouse") == {"edge-1": (20, 20, 20)}
