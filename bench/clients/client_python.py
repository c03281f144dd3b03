"""Python's clients: `client_python.py bootstrap scenario topic count library`."""

import asyncio
import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

LATEST_S: Final = 40.0
BATCH_BYTES: Final = 16_384
GROUPS: Final = {"group": "classic", "group848": "consumer"}
"""The group's protocol, by scenario."""


def value(index: int) -> bytes:
    """What all clients send: the index, as 1,000 digits."""
    return b"%01000d" % index


def name_of(error: Exception) -> str:
    code: Any = error.args[0] if error.args else None
    return str(code.name()) if hasattr(code, "name") else type(error).__name__


def steps(calls: Mapping[str, Callable[[], object]]) -> dict[str, str]:
    """Each by itself: `ok`, or the name of its error."""
    said = {}
    for name, call in calls.items():
        try:
            call()
            said[name] = "ok"
        except Exception as error:  # noqa: BLE001  whatever a library raises is its answer
            said[name] = name_of(error)
    return said


def administer(admin: Any, types: Any, topic: str, run: Callable[[Any], object]) -> dict[str, str]:
    """With the names of kafka-python 3, 2 and aiokafka; `run` is for what is to be awaited."""
    made = f"{topic}-made"

    def call(names: str, *words: object) -> Callable[[], object]:
        return lambda: run(next(getattr(admin, name) for name in names.split() if hasattr(admin, name))(*words))

    calls = {
        "create_topic": call("create_topics", [types.NewTopic(made, 1, 1)]),
        "list_topics": call("list_topics"),
        "describe_topic": call("describe_topics", [topic]),
        "describe_cluster": call("describe_cluster"),
        "describe_configs": call("describe_configs", [types.ConfigResource(types.ConfigResourceType.TOPIC, topic)]),
        "list_groups": call("list_groups list_consumer_groups"),
        "describe_group": call("describe_groups describe_consumer_groups", [topic]),
        "offsets": call("list_group_offsets list_consumer_group_offsets", topic),
        "delete_group": call("delete_groups delete_consumer_groups", [topic]),
        "delete_topic": call("delete_topics", [made]),
    }
    return steps(calls)


def in_transactions(count: int, producer: Any, send: Callable[[bytes], object]) -> int:
    """The first is committed, the second aborted."""
    producer.init_transactions()
    for first, end in ((0, producer.commit_transaction), (count, producer.abort_transaction)):
        producer.begin_transaction()
        for index in range(first, first + count):
            send(value(index))
        producer.flush()
        end()
    return count


def read(count: int, poll: Callable[[], int]) -> int:
    seen, end_s = 0, time.monotonic() + LATEST_S
    while seen < count and time.monotonic() < end_s:
        seen += poll()
    return seen


class KafkaPython:
    """2 and 3."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.kafka: Any = importlib.import_module("kafka")
        self.topic = topic
        self.common = {"bootstrap_servers": bootstrap, "client_id": topic}

    def produce(self, count: int) -> int:
        producer = self.kafka.KafkaProducer(**self.common, acks="all", retries=20, batch_size=BATCH_BYTES)
        sent = [producer.send(self.topic, value(index)) for index in range(count)]
        producer.flush(timeout=LATEST_S)
        return sum(each.succeeded() for each in sent)

    def transaction(self, count: int) -> int:
        producer = self.kafka.KafkaProducer(**self.common, transactional_id=self.topic)
        return in_transactions(count, producer, lambda record: producer.send(self.topic, record))

    def consume(self, count: int, protocol: str | None) -> int:
        group = {"group_id": self.topic if protocol else None, "enable_auto_commit": False}
        consumer = self.kafka.KafkaConsumer(self.topic, **self.common, **group, auto_offset_reset="earliest")
        seen = read(count, lambda: sum(map(len, consumer.poll(timeout_ms=3000).values())))
        if protocol:
            consumer.commit()
        consumer.close()
        return seen

    def admin(self) -> dict[str, str]:
        types = importlib.import_module("kafka.admin")
        return administer(types.KafkaAdminClient(**self.common), types, self.topic, lambda answer: answer)


class Confluent:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self.kafka: Any = importlib.import_module("confluent_kafka")
        self.topic = topic
        self.common = {"bootstrap.servers": bootstrap, "client.id": topic}

    def produce(self, count: int) -> int:
        producer = self.kafka.Producer({**self.common, "batch.size": BATCH_BYTES})
        errors: list[object] = []
        for index in range(count):
            producer.produce(self.topic, value(index), on_delivery=lambda error, _: errors.append(error))
        producer.flush(LATEST_S)
        return errors.count(None)

    def transaction(self, count: int) -> int:
        producer = self.kafka.Producer({**self.common, "transactional.id": self.topic})
        return in_transactions(count, producer, lambda record: producer.produce(self.topic, record))

    def consume(self, count: int, protocol: str | None) -> int:
        group = {"group.id": self.topic, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        if protocol == "consumer":
            group["group.protocol"] = protocol
        consumer = self.kafka.Consumer({**self.common, **group})
        if protocol:
            consumer.subscribe([self.topic])
        else:
            consumer.assign([self.kafka.TopicPartition(self.topic, 0, 0)])
        seen = read(count, lambda: _without_errors(consumer.consume(100, 1.0)))
        if protocol:
            consumer.commit(asynchronous=False)
        consumer.close()
        return seen

    def share(self, count: int) -> int:
        consumer = self.kafka.ShareConsumer({**self.common, "group.id": self.topic})
        consumer.subscribe([self.topic])
        seen = read(count, lambda: _without_errors(consumer.poll(1.0)))
        consumer.close()
        return seen

    def admin(self) -> dict[str, str]:
        types = importlib.import_module("confluent_kafka.admin")
        admin, made = types.AdminClient(self.common), f"{self.topic}-made"

        def call(method: str, *words: object) -> Callable[[], object]:
            def wait() -> object:
                answer = getattr(admin, method)(*words)
                return next(iter(answer.values())).result() if isinstance(answer, dict) else answer

            return wait

        topics, groups = self.kafka.TopicCollection([self.topic]), [self.kafka.ConsumerGroupTopicPartitions(self.topic)]
        calls = {
            "create_topic": call("create_topics", [types.NewTopic(made, 1, 1)]),
            "list_topics": call("list_topics"),
            "describe_topic": call("describe_topics", topics),
            "describe_cluster": lambda: admin.describe_cluster().result(),
            "describe_configs": call(
                "describe_configs", [types.ConfigResource(types.ConfigResource.Type.TOPIC, self.topic)]
            ),
            "list_groups": lambda: admin.list_consumer_groups().result(),
            "describe_group": call("describe_consumer_groups", [self.topic]),
            "offsets": call("list_consumer_group_offsets", groups),
            "delete_group": call("delete_consumer_groups", [self.topic]),
            "delete_topic": call("delete_topics", [made]),
        }
        return steps(calls)


class Aiokafka:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self.kafka: Any = importlib.import_module("aiokafka")
        self.topic = topic
        self.common = {"bootstrap_servers": bootstrap, "client_id": topic}

    async def produce(self, count: int) -> int:
        async with self.kafka.AIOKafkaProducer(**self.common, acks="all") as producer:
            sent = [await producer.send(self.topic, value(index)) for index in range(count)]
            done = await asyncio.gather(*sent, return_exceptions=True)
            return sum(not isinstance(each, BaseException) for each in done)

    async def transaction(self, count: int) -> int:
        async with self.kafka.AIOKafkaProducer(**self.common, transactional_id=self.topic) as producer:
            for first, end in ((0, producer.commit_transaction), (count, producer.abort_transaction)):
                await producer.begin_transaction()
                for index in range(first, first + count):
                    await producer.send(self.topic, value(index))
                await producer.flush()
                await end()
        return count

    async def consume(self, count: int, protocol: str | None) -> int:
        group = {"group_id": self.topic if protocol else None, "enable_auto_commit": False}
        seen, end_s = 0, time.monotonic() + LATEST_S
        consumer = self.kafka.AIOKafkaConsumer(self.topic, **self.common, **group, auto_offset_reset="earliest")
        async with consumer:
            while seen < count and time.monotonic() < end_s:
                seen += sum(map(len, (await consumer.getmany(timeout_ms=1000)).values()))
            if protocol:
                await consumer.commit()
        return seen

    def admin(self) -> dict[str, str]:
        types: Any = importlib.import_module("aiokafka.admin")
        resources = importlib.import_module("aiokafka.admin.config_resource")
        types.ConfigResource, types.ConfigResourceType = resources.ConfigResource, resources.ConfigResourceType
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        admin = types.AIOKafkaAdminClient(**self.common)
        loop.run_until_complete(admin.start())
        return administer(admin, types, self.topic, loop.run_until_complete)


class FastStream:
    """A subscriber whose answers go to the copy, until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic

    async def streams(self, _: int) -> None:
        library: Any = importlib.import_module("faststream.kafka")
        broker = library.KafkaBroker(self.bootstrap.split(","), client_id=self.topic)

        async def copy(body: bytes) -> bytes:
            return body

        subscriber = broker.subscriber(self.topic, group_id=self.topic, auto_offset_reset="earliest")
        broker.publisher(f"copy.{self.topic}")(subscriber(copy))
        await importlib.import_module("faststream").FastStream(broker).run()


class Spark:
    """Structured Streaming, from topic to topic, until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic

    def streams(self, _: int) -> None:
        sql: Any = importlib.import_module("pyspark.sql")
        builder = sql.SparkSession.builder.master("local[1]").config(
            "spark.jars", ",".join(map(str, Path(os.environ["SPARK_JARS"]).iterdir()))
        )
        session = builder.config("spark.ui.enabled", "false").config("spark.driver.memory", "600m").getOrCreate()
        brokers = {"kafka.bootstrap.servers": self.bootstrap, "kafka.client.id": self.topic}
        wanted = {"subscribe": self.topic, "startingOffsets": "earliest"}
        read = session.readStream.format("kafka").options(**brokers, **wanted).load().select("value")
        output = {"topic": f"copy.{self.topic}", "checkpointLocation": tempfile.mkdtemp()}
        read.writeStream.format("kafka").options(**brokers, **output).start().awaitTermination()


LIBRARIES: Final[Mapping[str, Any]] = {
    "kafka-python": KafkaPython,
    "confluent-kafka": Confluent,
    "aiokafka": Aiokafka,
    "FastStream": FastStream,
    "Spark": Spark,
}


def _without_errors(messages: Any) -> int:
    return sum(message.error() is None for message in messages or ())


async def main(bootstrap: str, scenario: str, topic: str, count: int, library: str) -> dict[str, object]:
    """In a loop, which aiokafka wants."""
    client = LIBRARIES[library](bootstrap, topic)
    if scenario in {"consume", *GROUPS}:
        done = client.consume(count, GROUPS.get(scenario))
    else:
        done = getattr(client, scenario)(count)
    records = await done if asyncio.iscoroutine(done) else done
    return {"records": records}


if __name__ == "__main__":
    words, library = sys.argv[1:4], sys.argv[5]
    try:
        if words[1] == "admin":
            said: dict[str, object] = {"steps": LIBRARIES[library](words[0], words[2]).admin()}
        else:
            said = asyncio.run(main(words[0], words[1], words[2], int(sys.argv[4]), library))
    except Exception as error:  # noqa: BLE001
        said = {"error": name_of(error)}
    print(json.dumps(said), flush=True)
    os._exit(0)  # some libraries leave threads behind that wait
