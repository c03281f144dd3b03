"""Runs the cells: real brokers, Sluice as in deploy/sluice.yaml, each client at both; reads what came of it itself."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError

from bench.clients.cells import Cell, Outcome, Scenario
from bench.clients.client_python import value
from bench.clients.software import HERE, Software
from tests.harness.admin import AdminError
from tests.harness.clients.java import ToolError, run_tool
from tests.harness.guarded import Guarded, guarded_sluice
from tests.harness.kafka import KafkaCluster
from tests.harness.polling import wait_until
from tests.harness.process import ProcessError, Program

NODE_IDS: Final = (1, 2, 3)
DIRECT, THROUGH = "direct", "sluice"
COUNT, LIMITED_COUNT = 300, 4_000  # of the latter, half passes at once
QUOTA: Final = "producer_byte_rate"
LIMIT_BYTES_PER_S: Final = 200_000
TIMEOUT_S, READ_S = 120.0, 15.0
AT_A_TIME: Final = 4
LIMITED: Final = {Scenario.QUOTA, Scenario.LEADER}  # to the programs they are `produce`
IN_A_GROUP: Final = {Scenario.GROUP, Scenario.GROUP848}
FILLED: Final = IN_A_GROUP | {Scenario.CONSUME, Scenario.SHARE, Scenario.STREAMS, Scenario.ADMIN}
WRITTEN: Final = LIMITED | {Scenario.PRODUCE, Scenario.TRANSACTION, Scenario.STREAMS}
Runnable = tuple[Sequence[str], Mapping[str, str]]  # a command and its environment
FAULTS: Final = (ProcessError, KafkaError, AdminError, ToolError, TimeoutError)


def run(broker: str, software: Sequence[Software], scenarios: set[Scenario]) -> Iterator[Cell]:
    """Each cell when it is done. Raises BenchError first, if something cannot be built."""
    programs = [(each, each.built()) for each in software]
    jobs = [(*each, scenario) for each in programs for scenario in each[0].scenarios if scenario in scenarios]
    direct, through = ([each.topic(it, way) for each in software for it in LIMITED] for way in (DIRECT, THROUGH))
    quotas = [{"entity": {"client-id": name}, QUOTA: LIMIT_BYTES_PER_S} for name in through]
    with (
        TemporaryDirectory(prefix="sluice-clients-") as folder,
        KafkaCluster(version=broker, node_ids=NODE_IDS) as cluster,
        guarded_sluice(cluster, quotas=yaml.safe_dump({"quotas": quotas}), settings=_example()) as guarded,
        ThreadPoolExecutor(AT_A_TIME) as threads,
    ):
        cluster.set_client_quotas(QUOTA, dict.fromkeys(direct, LIMIT_BYTES_PER_S))
        stage = Stage(guarded, Path(folder))
        for cell in as_completed([threads.submit(stage.cell, *job) for job in jobs]):
            yield cell.result()


def _example() -> dict[str, Any]:
    """The example's settings, but for addresses."""
    settings: dict[str, Any] = yaml.safe_load((HERE.parents[1] / "deploy" / "sluice.yaml").read_text("utf-8"))
    return {name: section for name, section in settings.items() if name not in {"cluster", "listeners", "admin"}}


@dataclass(frozen=True, slots=True)
class Stage:
    guarded: Guarded
    folder: Path

    def cell(self, software: Software, program: Runnable, scenario: Scenario) -> Cell:
        outcomes = []
        for way in (DIRECT, THROUGH):
            topic = software.topic(scenario, way)
            try:
                self._prepare(scenario, topic)
                outcomes.append(self._outcome(software, program, scenario, way))
            except FAULTS as error:
                outcomes.append({"error": type(error).__name__})
        return Cell(software.name, software.version, self.guarded.cluster.version, scenario, *outcomes)

    def _prepare(self, scenario: Scenario, topic: str) -> None:
        cluster = self.guarded.cluster
        partitions = 3 if scenario in IN_A_GROUP | {Scenario.SHARE} else 1
        leader, replicas = (NODE_IDS[0], 2) if scenario is Scenario.LEADER else (None, 1)
        cluster.create_topic(topic, partitions=partitions, leader=leader, replicas=replicas)
        if scenario is Scenario.STREAMS:
            cluster.create_topic(f"copy.{topic}")
        if scenario is Scenario.SHARE:
            whom = ("--bootstrap-server", cluster.bootstrap, "--entity-type", "groups", "--entity-name", topic)
            run_tool("kafka.admin.ConfigCommand", *whom, "--alter", "--add-config", "share.auto.offset.reset=earliest")
        if scenario in FILLED:
            producer = KafkaProducer(bootstrap_servers=cluster.bootstrap.split(","))
            for index in range(COUNT):
                producer.send(topic, value(index), partition=index % partitions)
            producer.close()
        if scenario is Scenario.ADMIN:
            with closing(self._consumer(group_id=topic)) as consumer:
                consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(COUNT, "", -1)})

    def _outcome(self, software: Software, program: Runnable, scenario: Scenario, way: str) -> Outcome:
        topic, count = software.topic(scenario, way), LIMITED_COUNT if scenario in LIMITED else COUNT
        asked = Scenario.PRODUCE if scenario in LIMITED else scenario
        bootstrap = self.guarded.cluster.bootstrap if way == DIRECT else self.guarded.sluice.bootstrap
        words = [*program[0], bootstrap, asked, topic, str(count), software.name]
        begin_s = time.monotonic()
        with Program(topic, words, self.folder / f"{topic}.log", environment=program[1]) as running:
            if scenario is Scenario.LEADER:
                self._move_leader(topic)
            if software.runs_on:
                said = self._when_done(scenario, topic, running)
            else:
                running.wait(TIMEOUT_S)
                seconds = time.monotonic() - begin_s
                said = _said(running.output()) | self._came_of(scenario, topic)
        if scenario is Scenario.QUOTA and said.get("records"):
            said["bytes_per_s"] = round(said["records"] * len(value(0)) / seconds)
        if any(topic in escape.command for escape in self.guarded.watch.escapes):
            said["escaped"] = True
        return said

    def _move_leader(self, topic: str) -> None:
        """After the first records, while others come."""
        with self.guarded.cluster.admin() as admin:
            wait_until(lambda: admin.end_offset(topic) > 0, f"records in {topic}", timeout_s=READ_S)
        self.guarded.cluster.move_leader(topic, 0, NODE_IDS[1])

    def _when_done(self, scenario: Scenario, topic: str, running: Program) -> dict[str, Any]:
        """Return the results of a program that runs until it is stopped."""
        found, end_s = self._came_of(scenario, topic), time.monotonic() + TIMEOUT_S
        while min(found.values()) < COUNT and running.is_running and time.monotonic() < end_s:
            time.sleep(1.0)
            found = self._came_of(scenario, topic)
        return found

    def _came_of(self, scenario: Scenario, topic: str) -> dict[str, Any]:
        if scenario in WRITTEN:
            return {"readable": len(self._readable(f"copy.{topic}" if scenario is Scenario.STREAMS else topic))}
        return {"committed": self._committed(topic)} if scenario in IN_A_GROUP else {}

    def _readable(self, topic: str) -> set[bytes]:
        """The different values of committed records, from the brokers themselves."""
        consumer = self._consumer(isolation_level="read_committed", auto_offset_reset="earliest")
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        end, end_s = consumer.end_offsets([partition])[partition], time.monotonic() + READ_S
        found: set[bytes] = set()
        while consumer.position(partition) < end and time.monotonic() < end_s:
            for records in consumer.poll(timeout_ms=1000).values():
                found |= {record.value for record in records}
        consumer.close()
        return found

    def _committed(self, topic: str) -> int:
        with closing(self._consumer(group_id=topic)) as consumer:
            return sum(consumer.committed(TopicPartition(topic, partition)) or 0 for partition in range(3))

    def _consumer(self, **settings: Any) -> Any:
        brokers = self.guarded.cluster.bootstrap.split(",")
        return KafkaConsumer(bootstrap_servers=brokers, enable_auto_commit=False, **settings)


def _said(output: str) -> dict[str, Any]:
    """The last line of JSON; a program that crashed has none."""
    found: list[dict[str, Any]] = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return found[-1] if found else {"error": "ended without a word"}
