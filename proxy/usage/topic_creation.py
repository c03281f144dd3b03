"""The topic of usage records: looked for, and made where it is not there.

By the proxy's own requests: the admin client of aiokafka cannot leave the number of replicas to the brokers (KIP-464).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from config.units import Address
from protocol.answers import read_versions
from protocol.messages import Message
from protocol.probes import CREATE_TOPICS, METADATA, create_topic_with, describe_topic, read
from protocol.requests import WHICH_VERSIONS, Request
from proxy.brokers.connection import BrokerConnection
from proxy.usage.shipping import SinkError
from proxy.usage.topic_login import Brokers

log = structlog.get_logger("sluice.usage")

_UNKNOWN_TOPIC, _EXISTS = 3, 36
_ADVICE: Final[Mapping[int, str]] = {
    29: "the proxy's user may not use it: allow that user WRITE on the topic, and CREATE to have it made",
    31: "it is not there, and the proxy's user may not make it: allow that user CREATE, or make it yourself",
    38: "it cannot be made with so many replicas: there are fewer brokers than usage.topic.replication_factor",
    44: "it is not there, and a policy of the brokers forbids to make it as usage.topic says: make it yourself",
}
_LEAST_VERSION, _REPLICAS_LEFT_OPEN = 2, 4
"""Versions of CreateTopics: the lowest one spoken, and the first that accepts -1 replicas (brokers of 2.4 or newer)."""
_CREATE_TOPICS: Final = CREATE_TOPICS >> 16


@dataclass(frozen=True, slots=True)
class Topic:
    """The topic, and how it is made if it is not there. ``replication_factor`` -1: as the brokers have it."""

    name: str
    partitions: int
    replication_factor: int
    retention_ms: int


async def ensure(topic: Topic, brokers: Brokers) -> None:
    """Make the topic if it is not there. Raises SinkError, also where no broker can be used."""
    newest, metadata = await brokers.ask(partial(_look_for, topic))
    error_code = metadata["topics"][0]["error_code"]
    if error_code == _UNKNOWN_TOPIC:
        places = {each["node_id"]: Address(each["host"], each["port"]) for each in metadata["brokers"]}
        controller = places.get(metadata["controller_id"])  # with ZooKeeper nobody else makes topics
        created = await brokers.ask(partial(_create, _creation(topic, newest)), at=controller)
        if (error_code := created["error_code"]) not in {0, _EXISTS}:
            said = _ADVICE.get(error_code) or f"cannot be made: {created['error_message']} ({error_code})"
            raise SinkError(f"topic {topic.name}: {said}")
        log.info("topic created", topic=topic.name, partitions=topic.partitions)
    elif error_code in _ADVICE:
        raise SinkError(f"topic {topic.name}: {_ADVICE[error_code]}")


async def _look_for(topic: Topic, connection: BrokerConnection) -> tuple[int, Message]:
    """Return the newest CreateTopics of a broker, and what it says of the topic."""
    _, newest = read_versions(await connection.ask(WHICH_VERSIONS)).get(_CREATE_TOPICS, (0, 0))
    return newest, read(METADATA, await connection.ask(describe_topic(topic.name)))


def _creation(topic: Topic, newest: int) -> Request:
    version = _REPLICAS_LEFT_OPEN if topic.replication_factor < 0 else _LEAST_VERSION
    if version > newest:
        raise SinkError(
            f"topic {topic.name}: brokers older than 2.4 do not choose its number of replicas: set "
            "usage.topic.replication_factor, or make the topic yourself"
        )
    configs = {"cleanup.policy": "delete", "retention.ms": str(topic.retention_ms)}
    return create_topic_with(topic.name, topic.partitions, topic.replication_factor, configs, version)


async def _create(request: Request, connection: BrokerConnection) -> Message:
    created: Message = read(CREATE_TOPICS, await connection.ask(request))["topics"][0]
    return created
