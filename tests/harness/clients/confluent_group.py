"""Many consumers of confluent-kafka (librdkafka) in one program, each with a thread that polls it."""

import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from tests.harness.clients.program import emit, run_group
from tests.harness.clients.tasks import Group

REPORT_S: Final = 1.0


@dataclass(slots=True)
class Member:
    """What one of them has seen so far."""

    number: int
    useful_bytes: int = 0
    wire_bytes: int = 0
    disconnects: int = 0
    timeouts: int = 0
    throttle_ms: list[float] = field(default_factory=list)

    def consume(self, task: Group, end: threading.Event) -> None:
        consumer = Consumer(self._settings(task))
        if task.group:
            consumer.subscribe([task.topic], on_assign=self._assigned, on_revoke=self._revoked)
        else:
            consumer.assign([TopicPartition(task.topic, self.number, 0)])
        while not end.is_set():
            for message in consumer.consume(500, 0.2):
                error = message.error()
                if error is None:
                    self.useful_bytes += len(message.value() or b"")
                else:
                    self._trouble(error)
        consumer.close()

    def _settings(self, task: Group) -> dict[str, Any]:
        return {
            "bootstrap.servers": task.bootstrap,
            "client.id": task.client_id,
            "group.id": task.group or "unused",
            "group.protocol": task.protocol,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": task.fetch_wait_ms,
            "statistics.interval.ms": int(REPORT_S * 1000),
            "stats_cb": self._statistics,
            "throttle_cb": lambda event: self.throttle_ms.append(event.throttle_time * 1000),
            "error_cb": self._trouble,
        }

    def _statistics(self, text: str) -> None:
        brokers = json.loads(text)["brokers"].values()
        self.wire_bytes = sum(each["rxbytes"] for each in brokers)
        self.disconnects = sum(each["disconnects"] for each in brokers)
        self.timeouts = sum(each["req_timeouts"] for each in brokers)

    def _trouble(self, error: object) -> None:
        emit("trouble", member=self.number, text=str(error))

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        emit("assigned", member=self.number, partitions=sorted(each.partition for each in partitions))

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        emit("revoked", member=self.number, partitions=sorted(each.partition for each in partitions))


def consume(task: Group) -> None:
    members = [Member(number) for number in range(task.members)]
    end = threading.Event()
    threads = [threading.Thread(target=member.consume, args=(task, end)) for member in members]
    for thread in threads:
        thread.start()
    until_s = time.monotonic() + task.duration_s
    while time.monotonic() < until_s:
        time.sleep(REPORT_S)
        emit("progress", bytes=sum(member.wire_bytes for member in members), useful=_useful(members))
    told = [each for member in members for each in member.throttle_ms if each > 0]
    emit(
        "closing",
        useful=_useful(members),
        disconnects=sum(member.disconnects for member in members),
        timeouts=sum(member.timeouts for member in members),
        told_mean_ms=sum(told) / max(1, len(told)),
        told_most_ms=max(told, default=0.0),
    )
    end.set()
    for thread in threads:
        thread.join()


def _useful(members: list[Member]) -> list[int]:
    return [member.useful_bytes for member in members]


if __name__ == "__main__":
    run_group(consume)
