"""The topic of usage records: looked for, and made where it is not there.

Two things that the admin client of aiokafka cannot do: leave the number of replicas to the brokers, and look for a
topic without making it (where brokers have ``auto.create.topics.enable``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import structlog
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.admin import CreateTopicsRequest_v2, CreateTopicsRequest_v3, CreateTopicsResponse_v3
from aiokafka.protocol.api import Request, RequestStruct
from aiokafka.protocol.metadata import MetadataRequest

from proxy.usage.shipping import SinkError

log = structlog.get_logger("sluice.usage")

_TIMEOUT_MS: Final = 10_000
_NONE, _UNKNOWN_TOPIC, _EXISTS = 0, 3, 36
_ADVICE: Final[Mapping[int, str]] = {
    29: "the proxy's user may not use it: allow that user WRITE on the topic, and CREATE to have it made",
    31: "it is not there, and the proxy's user may not make it: allow that user CREATE, or make it yourself",
    38: "it cannot be made with so many replicas: there are fewer brokers than usage.topic.replication_factor",
    44: "it is not there, and a policy of the brokers forbids to make it as usage.topic says: make it yourself",
}


@dataclass(frozen=True, slots=True)
class Topic:
    """The topic, and how it is made if it is not there. ``replication_factor`` -1: as the brokers have it."""

    name: str
    partitions: int
    replication_factor: int
    retention_ms: int


async def ensure(topic: Topic, client: AIOKafkaClient) -> None:
    """Make the topic if it is not there. Raises SinkError, and KafkaError where the brokers cannot be asked."""
    question = MetadataRequest([topic.name], allow_auto_topic_creation=False)
    metadata = await client.send(client.get_random_node(), question)
    [(error_code, *_)] = metadata.topics
    if error_code == _UNKNOWN_TOPIC:
        answer = await client.send(metadata.controller_id, _CreateTopics(topic))
        [(_, error_code, said)] = answer.topic_errors
        if error_code not in {_NONE, _EXISTS}:
            raise SinkError(
                f"topic {topic.name}: {_ADVICE.get(error_code) or f'cannot be made: {said} ({error_code})'}"
            )
        log.info("topic created", topic=topic.name, partitions=topic.partitions)
    elif error_code in _ADVICE:
        raise SinkError(f"topic {topic.name}: {_ADVICE[error_code]}")


class _CreateTopicsAnswer(CreateTopicsResponse_v3):  # type: ignore[misc]  # aiokafka has no types
    API_VERSION = 4


class _CreateTopicsV4(RequestStruct):  # type: ignore[misc]  # aiokafka has no types
    """As v3, but the number of replicas may be left open (KIP-464)."""

    API_KEY = 19
    API_VERSION = 4
    RESPONSE_TYPE = _CreateTopicsAnswer
    SCHEMA = CreateTopicsRequest_v3.SCHEMA


class _CreateTopics(Request[CreateTopicsRequest_v2 | _CreateTopicsV4]):  # type: ignore[misc]  # aiokafka has no types
    API_KEY = 19

    def __init__(self, topic: Topic) -> None:
        self._topic = topic

    def build(self, request_struct_class: Any) -> Any:
        topic = self._topic
        if topic.replication_factor < 0 and request_struct_class.API_VERSION < _CreateTopicsV4.API_VERSION:
            raise SinkError(
                f"topic {topic.name}: brokers older than 2.4 do not choose its number of replicas: set "
                "usage.topic.replication_factor, or make the topic yourself"
            )
        configs = [("cleanup.policy", "delete"), ("retention.ms", str(topic.retention_ms))]
        assigned: list[object] = []
        wanted = (topic.name, topic.partitions, topic.replication_factor, assigned, configs)
        validate_only = False
        return request_struct_class([wanted], _TIMEOUT_MS, validate_only)
