"""Python's clients: `client_python.py bootstrap scenario topic count library`."""

import asyncio
import contextlib
import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

LATEST_S: Final = 40.0
PAUSE_S: Final = 0.01
BATCH_BYTES: Final = 16_384


def value(index: int) -> bytes:
    """What all clients send: the index, as 1,000 digits."""
    return b"%01000d" % index


def name_of(error: Exception) -> str:
    code = error.args[0] if error.args else None
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
        time.sleep(0.5)  # a topic is made on all brokers a moment later
    return said


class KafkaPython:
    """2 and 3."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.kafka: Any = importlib.import_module("kafka")
        self.topic = topic
        self.common = {"bootstrap_servers": bootstrap, "client_id": topic}

    def produce(self, count: int, pause_s: float) -> int:
        producer = self.kafka.KafkaProducer(**self.common, acks="all", retries=20, batch_size=BATCH_BYTES)
        sent = []
        for index in range(count):
            sent.append(producer.send(self.topic, value(index)))
            time.sleep(pause_s)
        producer.flush(timeout=LATEST_S)
        return sum(each.succeeded() for each in sent)

    def transaction(self, count: int) -> int:
        producer = self.kafka.KafkaProducer(**self.common, transactional_id=self.topic)
        producer.init_transactions()
        for first, end in ((0, producer.commit_transaction), (count, producer.abort_transaction)):
            producer.begin_transaction()
            for index in range(count):
                producer.send(self.topic, value(first + index))
            producer.flush()
            end()
        return count

    def consume(self, count: int, protocol: str | None) -> int:
        group = {"group_id": self.topic if protocol else None, "enable_auto_commit": False}
        consumer = self.kafka.KafkaConsumer(self.topic, **self.common, **group, auto_offset_reset="earliest")
        seen, end_s = 0, time.monotonic() + LATEST_S
        while seen < count and time.monotonic() < end_s:
            seen += sum(map(len, consumer.poll(timeout_ms=3000).values()))
        if protocol:
            consumer.commit()
        consumer.close()
        return seen

    def admin(self) -> dict[str, str]:
        types = importlib.import_module("kafka.admin")
        admin, made = types.KafkaAdminClient(**self.common), f"{self.topic}-made"

        def call(*names: str) -> Any:
            return next(getattr(admin, name) for name in names if hasattr(admin, name))

        resource = types.ConfigResource(types.ConfigResourceType.TOPIC, self.topic)
        return steps(
            {
                "create_topic": lambda: admin.create_topics([types.NewTopic(made, 1, 1)]),
                "list_topics": admin.list_topics,
                "describe_topic": lambda: admin.describe_topics([made]),
                "describe_cluster": admin.describe_cluster,
                "describe_configs": lambda: admin.describe_configs([resource]),
                "list_groups": call("list_groups", "list_consumer_groups"),
                "describe_group": lambda: call("describe_groups", "describe_consumer_groups")([self.topic]),
                "offsets": lambda: call("list_group_offsets", "list_consumer_group_offsets")(self.topic),
                "delete_group": lambda: call("delete_groups", "delete_consumer_groups")([self.topic]),
                "delete_topic": lambda: admin.delete_topics([made]),
            }
        )


class Confluent:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self.kafka: Any = importlib.import_module("confluent_kafka")
        self.topic = topic
        self.common = {"bootstrap.servers": bootstrap, "client.id": topic}

    def produce(self, count: int, pause_s: float) -> int:
        producer = self.kafka.Producer({**self.common, "batch.size": BATCH_BYTES})
        acknowledged = []

        def delivered(error: object, _: object) -> None:
            if error is None:
                acknowledged.append(1)

        for index in range(count):
            producer.produce(self.topic, value(index), on_delivery=delivered)
            producer.poll(pause_s)
            time.sleep(pause_s)
        producer.flush(LATEST_S)
        return len(acknowledged)

    def transaction(self, count: int) -> int:
        producer = self.kafka.Producer({**self.common, "transactional.id": self.topic})
        producer.init_transactions()
        for first, end in ((0, producer.commit_transaction), (count, producer.abort_transaction)):
            producer.begin_transaction()
            for index in range(count):
                producer.produce(self.topic, value(first + index))
            producer.flush()
            end()
        return count

    def consume(self, count: int, protocol: str | None) -> int:
        group = {"group.id": self.topic, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        if protocol == "consumer":
            group["group.protocol"] = protocol
        consumer = self.kafka.Consumer({**self.common, **group})
        if protocol:
            consumer.subscribe([self.topic])
        else:
            consumer.assign([self.kafka.TopicPartition(self.topic, 0, 0)])
        seen, end_s = 0, time.monotonic() + LATEST_S
        while seen < count and time.monotonic() < end_s:
            seen += _without_errors(consumer.consume(count - seen, 1.0))
        if protocol:
            consumer.commit(asynchronous=False)
        consumer.close()
        return seen

    def share(self, count: int) -> int:
        consumer = self.kafka.ShareConsumer({**self.common, "group.id": self.topic})
        consumer.subscribe([self.topic])
        seen, end_s = 0, time.monotonic() + LATEST_S
        while seen < count and time.monotonic() < end_s:
            seen += _without_errors(consumer.poll(1.0))
        consumer.close()
        return seen

    def admin(self) -> dict[str, str]:
        types = importlib.import_module("confluent_kafka.admin")
        admin, made = types.AdminClient(self.common), f"{self.topic}-made"

        def first(futures: Mapping[object, Any]) -> Callable[[], object]:
            return next(iter(futures.values())).result()

        resource = types.ConfigResource(types.ConfigResource.Type.TOPIC, self.topic)
        group = [self.kafka.ConsumerGroupTopicPartitions(self.topic)]
        return steps(
            {
                "create_topic": lambda: first(admin.create_topics([types.NewTopic(made, 1, 1)])),
                "list_topics": lambda: admin.list_topics(timeout=10),
                "describe_topic": lambda: first(admin.describe_topics(self.kafka.TopicCollection([made]))),
                "describe_cluster": lambda: admin.describe_cluster().result(),
                "describe_configs": lambda: first(admin.describe_configs([resource])),
                "list_groups": lambda: admin.list_consumer_groups().result(),
                "describe_group": lambda: first(admin.describe_consumer_groups([self.topic])),
                "offsets": lambda: first(admin.list_consumer_group_offsets(group)),
                "delete_group": lambda: first(admin.delete_consumer_groups([self.topic])),
                "delete_topic": lambda: first(admin.delete_topics([made])),
            }
        )


class Aiokafka:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self.kafka: Any = importlib.import_module("aiokafka")
        self.topic = topic
        self.common = {"bootstrap_servers": bootstrap, "client_id": topic}

    async def produce(self, count: int, pause_s: float) -> int:
        async with self.kafka.AIOKafkaProducer(**self.common, acks="all") as producer:
            sent = []
            for index in range(count):
                sent.append(await producer.send(self.topic, value(index)))
                await asyncio.sleep(pause_s)
            done = await asyncio.gather(*sent, return_exceptions=True)
            return sum(not isinstance(each, BaseException) for each in done)

    async def transaction(self, count: int) -> int:
        async with self.kafka.AIOKafkaProducer(**self.common, transactional_id=self.topic) as producer:
            for first, end in ((0, producer.commit_transaction), (count, producer.abort_transaction)):
                await producer.begin_transaction()
                for index in range(count):
                    await producer.send(self.topic, value(first + index))
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

    async def admin(self) -> dict[str, str]:
        types = importlib.import_module("aiokafka.admin")
        made = f"{self.topic}-made"
        admin = types.AIOKafkaAdminClient(**self.common)
        await admin.start()
        resource = importlib.import_module("aiokafka.admin.config_resource")
        config = resource.ConfigResource(resource.ConfigResourceType.TOPIC, self.topic)
        calls: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
            "create_topic": lambda: admin.create_topics([types.NewTopic(made, 1, 1)]),
            "list_topics": admin.list_topics,
            "describe_topic": lambda: admin.describe_topics([made]),
            "describe_cluster": admin.describe_cluster,
            "describe_configs": lambda: admin.describe_configs([config]),
            "list_groups": admin.list_consumer_groups,
            "describe_group": lambda: admin.describe_consumer_groups([self.topic]),
            "offsets": lambda: admin.list_consumer_group_offsets(self.topic),
            "delete_topic": lambda: admin.delete_topics([made]),
        }
        said = {}
        for name, call in calls.items():
            try:
                await call()
                said[name] = "ok"
            except Exception as error:  # noqa: BLE001
                said[name] = name_of(error)
            await asyncio.sleep(0.5)
        await admin.close()
        return said


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
        builder = sql.SparkSession.builder.master("local[1]").config("spark.jars", ",".join(map(str, Path(os.environ["SPARK_JARS"]).iterdir())))
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


def main(bootstrap: str, scenario: str, topic: str, count: int, library: str) -> dict[str, object]:
    client = LIBRARIES[library](bootstrap, topic)
    calls: dict[str, Callable[[], Any]] = {
        "produce": lambda: client.produce(count, 0),
        "quota": lambda: client.produce(count, 0),
        "leader": lambda: client.produce(count, PAUSE_S),
        "consume": lambda: client.consume(count, None),
        "group": lambda: client.consume(count, "classic"),
        "group848": lambda: client.consume(count, "consumer"),
        "share": lambda: client.share(count),
        "transaction": lambda: client.transaction(count),
        "streams": lambda: client.streams(count),
        "admin": lambda: client.admin(),
    }
    begin_s = time.monotonic()
    done = calls[scenario]()
    if asyncio.iscoroutine(done):

        async def awaited() -> object:
            return await done  # the client is made outside of a loop

        done = asyncio.run(awaited())
    seconds = round(time.monotonic() - begin_s, 3)
    return {"steps": done} if scenario == "admin" else {"records": done, "seconds": seconds}


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        try:
            said = main(*sys.argv[1:4], int(sys.argv[4]), sys.argv[5])
        except Exception as error:  # noqa: BLE001
            said = {"error": name_of(error)}
        print(json.dumps(said), flush=True)
        os._exit(0)  # some libraries leave threads behind that wait
