"""kafka-python 3 at work."""

import os
import time
from collections.abc import Collection
from threading import BoundedSemaphore
from typing import Any, Final

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.harness.clients.program import Ending, Tally, bearer_token, due_indexes, emit, is_aborted, run
from tests.harness.clients.tasks import Administer, Consume, Produce, Task, payload

# kafka-python 3 has no buffer limit of its own: what a greedy client has in hand when it ends must be bounded here.
IN_HAND_BYTES: Final = 1 << 20
# Longer than a rebalance on a busy machine: a poll of 3.0.12 that ends within one loses its assignment for good.
POLL_MS: Final = 3_000


def produce(task: Produce) -> None:
    os.nice(task.niceness)
    transactional = {"transactional_id": task.transactional_id} if task.transactional_id else {}
    producer: Any = KafkaProducer(
        **_common(task),
        acks="all" if task.acks == -1 or task.idempotent or transactional else task.acks,
        enable_idempotence=task.idempotent or bool(transactional),
        batch_size=task.batch_bytes,
        metrics_enabled=True,
        **transactional,
    )
    tally = Tally()
    room = BoundedSemaphore(max(1, IN_HAND_BYTES // task.record_bytes))
    if transactional:
        producer.init_transactions()
        _produce_transactions(producer, task, tally)
    else:
        for index, wait_s in due_indexes(task):
            _pause(wait_s)
            room.acquire()
            _send(producer, task, index, tally, room)
        producer.flush()
    tally.throttle_ms.append(_throttle_ms(producer))
    producer.close()
    tally.done()


def consume(task: Consume) -> None:
    consumer: Any = KafkaConsumer(
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
    while not ending.has_come(tally):
        for records in consumer.poll(timeout_ms=POLL_MS).values():
            for record in records:
                tally.receive(record.value)
    tally.throttle_ms.append(_throttle_ms(consumer))
    consumer.close()
    tally.done()


def administer(task: Administer) -> None:
    admin: Any = KafkaAdminClient(**_common(task))
    cluster = admin.describe_cluster()
    admin.create_topics({task.topic: {"num_partitions": 1, "replication_factor": 1}}, wait_for_metadata=True)
    emit(
        "admin",
        brokers={str(broker["broker_id"]): f"{broker['host']}:{broker['port']}" for broker in cluster["brokers"]},
        topics=sorted(topic["name"] if isinstance(topic, dict) else topic for topic in admin.list_topics()),
    )
    admin.close()


def _common(task: Task) -> dict[str, Any]:
    security = task.security
    given = {
        "bootstrap_servers": task.bootstrap.split(","),
        "client_id": task.client_id,
        "security_protocol": security.protocol,
        "sasl_mechanism": security.mechanism or None,
        "ssl_cafile": security.ca or None,
        "ssl_certfile": security.certificate or None,
        "ssl_keyfile": security.key or None,
    }
    if security.mechanism == "GSSAPI":
        os.environ["KRB5_CONFIG"] = security.krb5_conf
        os.environ["KRB5_CLIENT_KTNAME"] = security.keytab
        os.environ["KRB5CCNAME"] = "MEMORY:client"
        return given
    if security.mechanism == "OAUTHBEARER":
        return given | {"sasl_oauth_token_provider": _Token(bearer_token(security))}
    return given | {"sasl_plain_username": security.username, "sasl_plain_password": security.password}


class _Token(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python is untyped
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token


def _produce_transactions(producer: Any, task: Produce, tally: Tally) -> None:
    open_tally: list[int] = []
    transaction = 0
    for index, wait_s in due_indexes(task):
        _pause(wait_s)
        if not open_tally:
            producer.begin_transaction()
        producer.send(task.topic, payload(index, task.record_bytes), partition=task.partition)
        open_tally.append(index)
        if len(open_tally) == task.transaction_records:
            _end(producer, transaction, open_tally, task, tally)
            transaction += 1
    if open_tally:
        _end(producer, transaction, open_tally, task, tally)


def _end(producer: Any, transaction: int, open_tally: list[int], task: Produce, tally: Tally) -> None:
    producer.flush()
    if is_aborted(transaction):
        producer.abort_transaction()
    else:
        producer.commit_transaction()
        for index in open_tally:
            tally.add(index, task.record_bytes)
    open_tally.clear()


def _send(producer: Any, task: Produce, index: int, tally: Tally, room: BoundedSemaphore) -> None:
    def acknowledged(_: object) -> None:
        room.release()
        tally.add(index, task.record_bytes)

    def failed(error: object) -> None:
        room.release()
        tally.errors.append(repr(error))

    sent = producer.send(task.topic, payload(index, task.record_bytes), partition=task.partition)
    sent.add_callback(acknowledged)
    sent.add_errback(failed)


def _throttle_ms(client: Any) -> float:
    found = [
        value
        for group in client.metrics().values()
        for name, value in group.items()
        if name.endswith("throttle-time-max") and value > 0
    ]
    return max(found, default=0.0)


def _pause(wait_s: float) -> None:
    if wait_s > 0:
        time.sleep(wait_s)


class _Assignments(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python is untyped
    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        emit("revoked", partitions=sorted(each.partition for each in revoked))

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        emit("assigned", partitions=sorted(each.partition for each in assigned))


if __name__ == "__main__":
    run(produce, consume, administer)
