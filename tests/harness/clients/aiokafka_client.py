"""aiokafka at work. It reports no throttle time: it neither acts on one nor measures it."""

import asyncio
from collections.abc import Collection
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.helpers import create_ssl_context

from tests.harness.clients.program import Ending, Tally, bearer_token, due_indexes, emit, is_aborted, run
from tests.harness.clients.tasks import Administer, Consume, Produce, Task, payload


async def produce(task: Produce) -> None:
    producer = AIOKafkaProducer(
        **_common(task),
        acks="all" if task.acks == -1 or task.idempotent or task.transactional_id else task.acks,
        enable_idempotence=task.idempotent or bool(task.transactional_id),
        transactional_id=task.transactional_id or None,
        max_batch_size=task.batch_bytes,
    )
    tally = Tally()
    await producer.start()
    if task.transactional_id:
        await _produce_transactions(producer, task, tally)
    else:
        for index, wait_s in due_indexes(task):
            await asyncio.sleep(wait_s)
            sent = await producer.send(task.topic, payload(index, task.record_bytes), partition=task.partition)
            sent.add_done_callback(partial(_acknowledge, tally, index, task.record_bytes))
        await producer.flush()
        await asyncio.sleep(0)  # the last callbacks
    await producer.stop()
    tally.done()


async def consume(task: Consume) -> None:
    consumer = AIOKafkaConsumer(
        **_common(task),
        group_id=task.group or None,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=task.partition_fetch_bytes,
        fetch_max_wait_ms=task.fetch_wait_ms,
        isolation_level="read_committed" if task.committed_only else "read_uncommitted",
    )
    if task.group:
        consumer.subscribe([task.topic], listener=_Assignments())
    else:
        consumer.assign([TopicPartition(task.topic, partition) for partition in range(task.partitions)])
    tally = Tally()
    ending = Ending(task)
    await consumer.start()
    while not ending.has_come(tally):
        for records in (await consumer.getmany(timeout_ms=200)).values():
            for record in records:
                tally.receive(record.value)
    await consumer.stop()
    tally.done()


async def administer(task: Administer) -> None:
    admin = AIOKafkaAdminClient(**_common(task))
    await admin.start()
    cluster = await admin.describe_cluster()
    await admin.create_topics([NewTopic(task.topic, num_partitions=1, replication_factor=1)])
    topics = await admin.list_topics()
    while task.topic not in topics:  # created is not yet known everywhere
        await asyncio.sleep(0.1)
        topics = await admin.list_topics()
    brokers = {str(broker["node_id"]): f"{broker['host']}:{broker['port']}" for broker in cluster["brokers"]}
    emit("admin", brokers=brokers, topics=sorted(topics))
    await admin.close()


def _common(task: Task) -> dict[str, Any]:
    security = task.security
    given = {
        "bootstrap_servers": task.bootstrap,
        "client_id": task.client_id,
        "security_protocol": security.protocol,
        "sasl_mechanism": security.mechanism or "PLAIN",
    }
    if security.ca:
        files = {"cafile": security.ca, "certfile": security.certificate or None, "keyfile": security.key or None}
        given["ssl_context"] = create_ssl_context(**files)
    if security.mechanism == "OAUTHBEARER":
        return given | {"sasl_oauth_token_provider": _Token(bearer_token(security))}
    return given | {"sasl_plain_username": security.username, "sasl_plain_password": security.password}


class _Token(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka is untyped
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


async def _produce_transactions(producer: AIOKafkaProducer, task: Produce, tally: Tally) -> None:
    indexes = [index for index, _ in due_indexes(task)]
    for transaction, first in enumerate(range(0, len(indexes), task.transaction_records)):
        chosen = indexes[first : first + task.transaction_records]
        await producer.begin_transaction()
        for index in chosen:
            await producer.send(task.topic, payload(index, task.record_bytes), partition=task.partition)
        if is_aborted(transaction):
            await producer.flush()
            await producer.abort_transaction()
            continue
        await producer.commit_transaction()
        for index in chosen:
            tally.add(index, task.record_bytes)


def _acknowledge(tally: Tally, index: int, size: int, sent: "asyncio.Future[Any]") -> None:
    error = sent.exception()
    if error is None:
        tally.add(index, size)
    else:
        tally.errors.append(repr(error))


class _Assignments(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        emit("revoked", partitions=sorted(each.partition for each in revoked))

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        emit("assigned", partitions=sorted(each.partition for each in assigned))


if __name__ == "__main__":
    run(
        lambda task: asyncio.run(produce(task)),
        lambda task: asyncio.run(consume(task)),
        lambda task: asyncio.run(administer(task)),
    )
