"""Without quotas a client gets the broker's own bytes, but for addresses: recorded from both and compared.

The requests are kafka-python's encodings, in every version that broker, proxy and kafka-python have in common, with one
correlation id. The broker's answer is mapped (its hosts and ports, with all length prefixes, to the proxy's) and must
then be the proxy's answer, byte for byte. Not compared, because a broker never answers twice the same: InitProducerId,
JoinGroup, and what else draws ids or tells the time. What draws lots (KRaft brokers name any broker as the controller)
is asked for until the same lot is drawn. ApiVersions is meant to differ, and has a test of its own.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from kafka.admin import KafkaAdminClient
from kafka.protocol import admin, consumer, metadata, producer

from tests.harness.admin import Entity
from tests.harness.kafka import KafkaCluster
from tests.harness.load import record_batch
from tests.harness.polling import wait_until
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import API_VERSIONS, Address, Connection, frame
from tests.integration.conftest import fresh_name

pytestmark = pytest.mark.integration

NODE_ID, OTHER_ID = 1, 5
ADVERTISED = "kafka.example.org"  # of another length than the brokers' own host: prefixes and sizes must follow
DRAWS = 60
INTER_BROKER_APIS = {83, 84, 85, 86, 87}  # the state of share groups
# Versions compared, where not all that the broker names: it names Produce 0 for old librdkafka's sake and closes on
# what is below 3 (KAFKA-18659), OffsetFetch 1 has no "all topics", CreateTopics 7 answers with an id that is drawn.
LOWEST = {0: 3, 9: 2}
HIGHEST = {19: 6}
TIMES = {"timeout_ms": 30_000}


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: UUID


ADMINS = {"quotas": {"admins": ["ANONYMOUS"]}}
"""Of quotas the proxy answers itself: to whom may ask, as the broker does."""
QUOTA = 1_000_000
"""Of two users with the topics' names: one in the cluster, one in the proxy's quota file."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Two topics alike but for names and ids: what is produced directly goes to one, through the proxy to the other."""

    cluster: KafkaCluster
    sluice: SluiceProcess
    own: Topic
    proxied: Topic
    elsewhere: Topic
    versions: dict[int, tuple[int, int]]

    def expected(self, answer: bytes) -> bytes:
        """What a client of the proxy must get where the broker says `answer`."""
        for node_id, told in self.sluice.broker_addresses.items():
            own, proxied = self.cluster.direct(node_id), Address(ADVERTISED, told.port)
            answer = answer.replace(_node_endpoints(node_id, own), _node_endpoints(node_id, proxied))
            answer = answer.replace(_compact(own), _compact(proxied))
            answer = answer.replace(_classic(own), _classic(proxied))
        answer = answer.replace(self.own.name.encode(), self.proxied.name.encode())
        answer = answer.replace(self.own.topic_id.bytes, self.proxied.topic_id.bytes)
        return struct.pack(">i", len(answer) - 4) + answer[4:]


@pytest.fixture(scope="module")
def scene(cluster: KafkaCluster) -> Iterator[Scene]:
    name = fresh_name("transparent")
    names = [f"{name}-{suffix}" for suffix in ("aa", "bb", "elsewhere")]  # the first two alike in length
    for name, leader in zip(names, (NODE_ID, NODE_ID, OTHER_ID), strict=True):
        cluster.create_topic(name, leader=leader)
    topics = [Topic(name, topic_id(cluster, name)) for name in names]
    cluster.set_quota(Entity(user=names[0]), producer_byte_rate=QUOTA)
    quotas = f"quotas:\n  - {{entity: {{user: {names[1]}}}, producer_byte_rate: {QUOTA}}}\n"
    with (
        SluiceProcess(
            cluster.bootstrap, cluster.node_ids, advertise=ADVERTISED, settings=ADMINS, quotas=quotas
        ) as sluice,
        Connection(cluster.direct(NODE_ID)) as broker,
    ):
        _wait_for_coordinators(broker)
        own, proxied, elsewhere = topics
        yield Scene(cluster, sluice, own, proxied, elsewhere, _api_versions(broker))


def _requests(topic: Topic, elsewhere: Topic) -> list[Any]:
    """One of each kind, about a topic."""
    one = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1, "max_num_offsets": 1}
    offsets = consumer.ListOffsetsRequest.ListOffsetsTopic
    epochs = consumer.OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    new = admin.CreateTopicsRequest.CreatableTopic
    return [
        metadata.MetadataRequest(
            topics=[metadata.MetadataRequest.MetadataRequestTopic(name=topic.name)], allow_auto_topic_creation=False
        ),
        _coordinators(),
        admin.DescribeClusterRequest(include_cluster_authorized_operations=True),
        producer_request(topic),
        producer_request(elsewhere),
        fetch_request(topic),
        consumer.ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=[offsets(name=topic.name, partitions=[offsets.ListOffsetsPartition(**one)])],
            **TIMES,
        ),
        consumer.OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                epochs(
                    topic=topic.name,
                    partitions=[epochs.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)],
                )
            ],
        ),
        consumer.OffsetFetchRequest(
            group_id="group",
            topics=None,
            groups=[consumer.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="group", topics=None)],
        ),
        consumer.HeartbeatRequest(group_id="group", generation_id=1, member_id="nobody"),
        admin.ListGroupsRequest(),
        admin.DescribeGroupsRequest(groups=["group"]),
        admin.DescribeConfigsRequest(
            resources=[
                admin.DescribeConfigsRequest.DescribeConfigsResource(
                    resource_type=2, resource_name=topic.name, configuration_keys=None
                )
            ]
        ),
        admin.CreateTopicsRequest(
            topics=[new(name="never", num_partitions=1, replication_factor=1, assignments=[], configs=[])],
            validate_only=True,
            **TIMES,
        ),
        admin.ListPartitionReassignmentsRequest(topics=None, **TIMES),
        admin.DescribeClientQuotasRequest(
            components=[
                admin.DescribeClientQuotasRequest.ComponentData(entity_type="user", match_type=0, match=topic.name)
            ],
            strict=False,
        ),
        admin.DescribeUserScramCredentialsRequest(users=None),
        admin.ListTransactionsRequest(state_filters=[], producer_id_filters=[]),
    ]


def producer_request(topic: Topic) -> Any:
    partition = producer.ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=record_batch(1000))
    data = producer.ProduceRequest.TopicProduceData(
        name=topic.name, topic_id=topic.topic_id, partition_data=[partition]
    )
    return producer.ProduceRequest(transactional_id=None, acks=1, topic_data=[data], **TIMES)


def fetch_request(topic: Topic) -> Any:
    """From the beginning: what was produced in the first version compared is there, and the same in both topics."""
    of_topic = consumer.FetchRequest.FetchTopic
    partition = of_topic.FetchPartition(
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=0,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=100_000,
    )
    return consumer.FetchRequest(
        replica_id=-1,
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=1_000_000,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[of_topic(topic=topic.name, topic_id=topic.topic_id, partitions=[partition])],
    )


def test_answers_are_the_brokers_own_but_for_addresses(scene: Scene) -> None:
    compared: dict[str, int] = {}
    with (
        Connection(scene.cluster.direct(NODE_ID), timeout_s=15.0) as broker,
        Connection(scene.sluice.broker_addresses[NODE_ID], timeout_s=15.0) as sluice,
    ):
        pairs = zip(_requests(scene.own, scene.elsewhere), _requests(scene.proxied, scene.elsewhere), strict=True)
        for own, proxied in pairs:
            for version in _common_versions(scene, own):
                # Tests beside this one change what is listed: groups, transactions.
                wait_until(
                    lambda: _answers(scene, sluice, _encode(proxied, version), broker, _encode(own, version)),  # noqa: B023
                    f"{type(own).__name__} v{version}",
                    is_so=lambda answers: answers[0] == answers[1],
                )
                compared[type(own).__name__] = compared.get(type(own).__name__, 0) + 1
    assert sum(compared.values()) > 90
    assert compared["MetadataRequest"] >= 13


def test_addresses_are_the_proxys(scene: Scene) -> None:
    """What the comparison rests on: the answers do carry addresses, and a port of a broker's is told to nobody."""
    request = _encode(metadata.MetadataRequest(topics=[], allow_auto_topic_creation=False), 9)
    with Connection(scene.sluice.address) as sluice:
        answer = sluice.exchange(request)
    for node_id, told in scene.sluice.broker_addresses.items():
        assert _compact(Address(ADVERTISED, told.port)) in answer
        assert struct.pack(">i", scene.cluster.direct(node_id).port) not in answer


def test_api_versions_are_the_brokers_less_what_is_not_served(scene: Scene) -> None:
    with Connection(scene.sluice.broker_addresses[NODE_ID]) as sluice:
        told = _api_versions(sluice)
    own = scene.versions
    assert told == {key: versions for key, versions in own.items() if key not in INTER_BROKER_APIS}


def _answers(scene: Scene, sluice: Connection, proxied: bytes, broker: Connection, own: bytes) -> tuple[bytes, bytes]:
    """The proxy's answer; and the broker's, mapped, the one that was got if it is among those that the broker draws."""
    got = sluice.exchange(proxied)
    is_produce = own[4:6] == b"\x00\x00"
    for _ in range(1 if is_produce else DRAWS):
        wanted = scene.expected(broker.exchange(own))
        if wanted == got:
            break
    return got, wanted


def _wait_for_coordinators(broker: Connection) -> None:
    """A cluster of a few seconds has none yet: one answer would be from before, and the other one from after."""

    def known() -> bool:
        answer = broker.exchange(_encode(_coordinators(), 4))
        decoded = metadata.FindCoordinatorResponse.decode(answer[9:], version=4)  # size, correlation id, tags
        return all(each.error_code == 0 for each in decoded.coordinators)

    wait_until(known, "coordinators are known", 30.0)


def _coordinators() -> metadata.FindCoordinatorRequest:
    return metadata.FindCoordinatorRequest(key="group", key_type=0, coordinator_keys=["group", "other"])


def _common_versions(scene: Scene, request: Any) -> range:
    key: int = request.API_KEY
    lowest, highest = scene.versions.get(key, (0, -1))
    first = max(lowest, request.min_version, LOWEST.get(key, 0))
    return range(first, min(highest, request.max_version, HIGHEST.get(key, highest)) + 1)


def _encode(request: Any, version: int) -> bytes:
    request.API_VERSION = version
    request.with_header(7, "transparent")
    return bytes(request.encode(version=version, header=True, framed=True))


def _api_versions(connection: Connection) -> dict[int, tuple[int, int]]:
    """By api key; ApiVersions v0: error code, then an array of three int16."""
    answer = connection.exchange(frame(API_VERSIONS, 0, 7, "transparent", b""))
    (count,) = struct.unpack_from(">i", answer, 10)
    entries = [struct.unpack_from(">hhh", answer, 14 + 6 * position) for position in range(count)]
    return {key: (lowest, highest) for key, lowest, highest in entries}


def topic_id(cluster: KafkaCluster, name: str) -> UUID:
    client: Any = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    try:
        found = client.describe_topics([name])[0]["topic_id"]
    finally:
        client.close()
    return found if isinstance(found, UUID) else UUID(str(found))


def _classic(address: Address) -> bytes:
    host = address.host.encode()
    return struct.pack(">h", len(host)) + host + struct.pack(">i", address.port)


def _node_endpoints(node_id: int, address: Address) -> bytes:
    """KIP-951's tagged field 0 with one broker, of Produce since v10: its own size is in front."""
    field = b"\x02" + struct.pack(">i", node_id) + _compact(address) + b"\x00\x00"  # no rack, no tags
    return bytes([0, len(field)]) + field


def _compact(address: Address) -> bytes:
    """A length below 127 is one byte as a varint."""
    host = address.host.encode()
    return bytes([len(host) + 1]) + host + struct.pack(">i", address.port)
