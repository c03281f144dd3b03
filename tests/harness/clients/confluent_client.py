"""confluent-kafka (librdkafka) at work. Its throttle times come from librdkafka's throttle callback."""

import time
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # it does export it

from tests.harness.clients.program import Ending, Tally, bearer_token, due_indexes, emit, is_aborted, run
from tests.harness.clients.tasks import Administer, Consume, Produce, Task, payload
from tests.harness.tokens import LIFETIME_S

TIMEOUT_S = 30.0


def produce(task: Produce) -> None:
    tally = Tally()
    settings: dict[str, Any] = {
        **_common(task, tally),
        "acks": -1 if task.idempotent or task.transactional_id else task.acks,
        "enable.idempotence": task.idempotent or bool(task.transactional_id),
        "batch.size": task.batch_bytes,
        # The queue is what a greedy client has in hand when it ends: kept small, or its flush outlives the test.
        "queue.buffering.max.kbytes": 1024,
    }
    if task.transactional_id:
        settings["transactional.id"] = task.transactional_id
    producer = Producer(settings)
    if task.transactional_id:
        producer.init_transactions(TIMEOUT_S)
        _produce_transactions(producer, task, tally)
    else:
        for index, wait_s in due_indexes(task):
            producer.poll(wait_s)
            _send(producer, task, index, partial(_acknowledge, tally, index, task.record_bytes))
        producer.flush(TIMEOUT_S)
    tally.done()


def consume(task: Consume) -> None:
    tally = Tally()
    consumer = Consumer(
        {
            **_common(task, tally),
            "group.id": task.group
            or "unused",  # librdkafka demands one, and uses it for subscriptions and commits only
            "group.protocol": task.protocol,
            "auto.offset.reset": "earliest",
            "max.partition.fetch.bytes": task.partition_fetch_bytes,
            "fetch.wait.max.ms": task.fetch_wait_ms,
            "isolation.level": "read_committed" if task.committed_only else "read_uncommitted",
            "enable.auto.commit": bool(task.group),
        }
    )
    if task.group:
        consumer.subscribe([task.topic], on_assign=_on_assign, on_revoke=_on_revoke)
    else:
        consumer.assign([TopicPartition(task.topic, partition, 0) for partition in range(task.partitions)])
    ending = Ending(task)
    while not ending.has_come(tally):
        for message in consumer.consume(500, 0.2):
            error = message.error()
            if error is None:
                tally.receive(message.value() or b"")
            else:
                tally.errors.append(str(error))
    consumer.close()
    tally.done()


def administer(task: Administer) -> None:
    admin = AdminClient(_common(task, Tally()))
    admin.poll(0)  # asks for the token of OAUTHBEARER, where there is to be one
    described: Any = admin.describe_cluster(request_timeout=TIMEOUT_S).result(TIMEOUT_S)
    admin.create_topics([NewTopic(task.topic, 1, 1)])[task.topic].result(TIMEOUT_S)
    while task.topic not in (topics := admin.list_topics(timeout=TIMEOUT_S).topics):
        pass  # created is not yet known everywhere
    brokers = {str(node.id): f"{node.host}:{node.port}" for node in described.nodes}
    emit("admin", brokers=brokers, topics=sorted(topics))


def _common(task: Task, tally: Tally) -> dict[str, Any]:
    security = task.security
    given = {
        "bootstrap.servers": task.bootstrap,
        "client.id": task.client_id,
        "throttle_cb": lambda event: tally.throttle_ms.append(event.throttle_time * 1000),
        "security.protocol": security.protocol,
        "sasl.mechanisms": security.mechanism,
        "sasl.username": security.username,
        "sasl.password": security.password,
        "ssl.ca.location": security.ca,
        "ssl.certificate.location": security.certificate,
        "ssl.key.location": security.key,
    }
    if security.mechanism == "OAUTHBEARER":
        given["oauth_cb"] = lambda _: (bearer_token(security), time.time() + LIFETIME_S)
    return {name: value for name, value in given.items() if value != ""}


def _produce_transactions(producer: Producer, task: Produce, tally: Tally) -> None:
    indexes = [index for index, _ in due_indexes(task)]
    for transaction, first in enumerate(range(0, len(indexes), task.transaction_records)):
        chosen = indexes[first : first + task.transaction_records]
        producer.begin_transaction()
        for index in chosen:
            _send(producer, task, index, None)
        if is_aborted(transaction):
            producer.flush(TIMEOUT_S)
            producer.abort_transaction(TIMEOUT_S)
            continue
        producer.commit_transaction(TIMEOUT_S)
        for index in chosen:
            tally.add(index, task.record_bytes)


def _send(producer: Producer, task: Produce, index: int, on_delivery: Any) -> None:
    while True:
        try:
            value = payload(index, task.record_bytes)
            producer.produce(task.topic, value, partition=task.partition, on_delivery=on_delivery)
        except BufferError:  # the queue is full: let some go
            producer.poll(0.1)
        else:
            return


def _acknowledge(tally: Tally, index: int, size: int, error: KafkaError | None, _: Message) -> None:
    if error is None:
        tally.add(index, size)
    else:
        tally.errors.append(str(error))


def _on_assign(_: Consumer, partitions: list[TopicPartition]) -> None:
    emit("assigned", partitions=sorted(each.partition for each in partitions))


def _on_revoke(_: Consumer, partitions: list[TopicPartition]) -> None:
    emit("revoked", partitions=sorted(each.partition for each in partitions))


if __name__ == "__main__":
    run(produce, consume, administer)
