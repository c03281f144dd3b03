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
GROUPS: Final = {"group": "classic", "group848": "consumer"}  # the group's protocol, by scenario


def value(index: int) -> bytes:
    """Return the value of a record: its index, as 1,000 digits."""
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


def in_transactions(count: int, producer: Any, send: Callable[[bytes], object]) -> int:
    """The first is committed, the second aborted."""
    if hasattr(producer, "init_transactions"):
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

    library, prefix, resources = "kafka", "Kafka", "kafka.admin"
    producing: Mapping[str, object] = {"acks": "all", "retries": 20}

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.common = {"bootstrap_servers": bootstrap, "client_id": topic}

    def open(self, kind: str, *words: object, **settings: object) -> Any:
        where = importlib.import_module(f"{self.library}.admin" if kind == "AdminClient" else self.library)
        return getattr(where, self.prefix + kind)(*words, **self.common, **settings)

    def produce(self, count: int) -> int:
        producer = self.open("Producer", **self.producing)
        sent = [producer.send(self.topic, value(index)) for index in range(count)]
        producer.flush()
        return sum(each.succeeded() if hasattr(each, "succeeded") else not each.exception() for each in sent)

    def transaction(self, count: int) -> int:
        producer = self.open("Producer", transactional_id=self.topic)
        return in_transactions(count, producer, lambda record: producer.send(self.topic, record))

    def consume(self, count: int, protocol: str | None) -> int:
        group = {"group_id": self.topic if protocol else None, "enable_auto_commit": False}
        consumer = self.open("Consumer", self.topic, auto_offset_reset="earliest", **group)
        poll = consumer.getmany if self.library == "aiokafka" else consumer.poll
        seen = read(count, lambda: sum(map(len, poll(timeout_ms=3000).values())))
        if protocol:
            consumer.commit()
        return seen

    def admin(self) -> dict[str, str]:
        """With the names of kafka-python 3, 2 and aiokafka."""
        admin, made = self.open("AdminClient"), f"{self.topic}-made"
        types, new = importlib.import_module(self.resources), importlib.import_module(f"{self.library}.admin").NewTopic
        resource = types.ConfigResource(types.ConfigResourceType.TOPIC, self.topic)

        def call(names: str, *words: object) -> Callable[[], object]:
            return lambda: next(getattr(admin, name) for name in names.split() if hasattr(admin, name))(*words)

        calls = {
            "create_topic": call("create_topics", [new(made, 1, 1)]),
            "list_topics": call("list_topics"),
            "describe_topic": call("describe_topics", [self.topic]),
            "describe_cluster": call("describe_cluster"),
            "describe_configs": call("describe_configs", [resource]),
            "list_groups": call("list_groups list_consumer_groups"),
            "describe_group": call("describe_groups describe_consumer_groups", [self.topic]),
            "offsets": call("list_group_offsets list_consumer_group_offsets", self.topic),
            "delete_group": call("delete_groups delete_consumer_groups", [self.topic]),
            "delete_topic": call("delete_topics", [made]),
        }
        return steps(calls)


class Waiting:
    """An object of aiokafka whose calls wait for what they begin."""

    def __init__(self, make: Callable[[], Any]) -> None:
        async def started() -> Any:
            made = make()  # which wants a loop
            await made.start()
            return made

        self._loop = asyncio.new_event_loop()
        self._inner = self._loop.run_until_complete(started())

    def __getattr__(self, name: str) -> Callable[..., Any]:
        found = getattr(self._inner, name)

        def call(*words: object, **settings: object) -> Any:
            answer = found(*words, **settings)
            return self._loop.run_until_complete(answer) if asyncio.iscoroutine(answer) else answer

        return call


class Aiokafka(KafkaPython):
    library, prefix, resources = "aiokafka", "AIOKafka", "aiokafka.admin.config_resource"
    producing: Mapping[str, object] = {"acks": "all"}

    def open(self, kind: str, *words: object, **settings: object) -> Any:
        return Waiting(lambda: KafkaPython.open(self, kind, *words, **settings))


class Confluent:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self.kafka: Any = importlib.import_module("confluent_kafka")
        self.topic = topic
        self.common = {"bootstrap.servers": bootstrap, "client.id": topic}

    def produce(self, count: int) -> int:
        producer = self.kafka.Producer({**self.common, "batch.size": 16_384})
        errors: list[object] = []
        for index in range(count):
            producer.produce(self.topic, value(index), on_delivery=lambda error, _: errors.append(error))
        producer.flush(LATEST_S)
        return errors.count(None)

    def transaction(self, count: int) -> int:
        producer = self.kafka.Producer({**self.common, "transactional.id": self.topic})
        return in_transactions(count, producer, lambda record: producer.produce(self.topic, record))

    def consume(self, count: int, protocol: str | None) -> int:
        group = {"group.id": self.topic, "group.protocol": protocol or "classic", "auto.offset.reset": "earliest"}
        consumer = self.kafka.Consumer({**self.common, **group, "enable.auto.commit": False})
        first = [self.kafka.TopicPartition(self.topic, 0, 0)]
        consumer.subscribe([self.topic]) if protocol else consumer.assign(first)
        seen = read(count, lambda: sum(message.error() is None for message in consumer.consume(100, 1.0)))
        if protocol:
            consumer.commit(asynchronous=False)
        consumer.close()
        return seen

    def share(self, count: int) -> int:
        consumer = self.kafka.ShareConsumer({**self.common, "group.id": self.topic})
        consumer.subscribe([self.topic])
        seen = read(count, lambda: sum(message.error() is None for message in consumer.poll(1.0)))
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
        resource = types.ConfigResource(types.ConfigResource.Type.TOPIC, self.topic)
        calls = {
            "create_topic": call("create_topics", [types.NewTopic(made, 1, 1)]),
            "list_topics": call("list_topics"),
            "describe_topic": call("describe_topics", topics),
            "describe_cluster": lambda: admin.describe_cluster().result(),
            "describe_configs": call("describe_configs", [resource]),
            "list_groups": lambda: admin.list_consumer_groups().result(),
            "describe_group": call("describe_consumer_groups", [self.topic]),
            "offsets": call("list_consumer_group_offsets", groups),
            "delete_group": call("delete_consumer_groups", [self.topic]),
            "delete_topic": call("delete_topics", [made]),
        }
        return steps(calls)


def fast_stream(bootstrap: str, topic: str) -> None:
    """A subscriber whose answers go to the copy, until it is stopped."""
    library: Any = importlib.import_module("faststream.kafka")
    broker = library.KafkaBroker(bootstrap.split(","), client_id=topic)

    async def copy(body: bytes) -> bytes:
        return body

    subscriber = broker.subscriber(topic, group_id=topic, auto_offset_reset="earliest")
    broker.publisher(f"copy.{topic}")(subscriber(copy))
    asyncio.run(importlib.import_module("faststream").FastStream(broker).run())


def spark(bootstrap: str, topic: str) -> None:
    """Structured Streaming, from topic to topic, until it is stopped."""
    sql: Any = importlib.import_module("pyspark.sql")
    jars = ",".join(map(str, Path(os.environ["SPARK_JARS"]).iterdir()))
    builder = sql.SparkSession.builder.master("local[1]").config("spark.jars", jars)
    session = builder.config("spark.ui.enabled", "false").config("spark.driver.memory", "600m").getOrCreate()
    brokers = {"kafka.bootstrap.servers": bootstrap, "kafka.client.id": topic}
    wanted = {"subscribe": topic, "startingOffsets": "earliest"}
    records = session.readStream.format("kafka").options(**brokers, **wanted).load().select("value")
    output = {"topic": f"copy.{topic}", "checkpointLocation": tempfile.mkdtemp()}
    records.writeStream.format("kafka").options(**brokers, **output).start().awaitTermination()


LIBRARIES: Final = {"kafka-python": KafkaPython, "aiokafka": Aiokafka, "confluent-kafka": Confluent}


def main(bootstrap: str, scenario: str, topic: str, count: str, library: str) -> dict[str, object]:
    if library not in LIBRARIES:
        return {"records": {"FastStream": fast_stream, "Spark": spark}[library](bootstrap, topic)}
    client: Any = LIBRARIES[library](bootstrap, topic)
    if scenario == "admin":
        return {"steps": client.admin()}
    if scenario in {"consume", *GROUPS}:
        return {"records": client.consume(int(count), GROUPS.get(scenario))}
    return {"records": getattr(client, scenario)(int(count))}


if __name__ == "__main__":
    try:
        said = main(*sys.argv[1:6])
    except Exception as error:  # noqa: BLE001
        said = {"error": name_of(error)}
    print(json.dumps(said), flush=True)
    os._exit(0)  # some libraries leave threads behind that wait
