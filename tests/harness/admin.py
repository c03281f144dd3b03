"""Administration of the brokers themselves, around the proxy: what a test sets up and looks up.

kafka-python does what it can do (it starts at once), kafka-configs the quotas.
"""

import struct
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import LeaderNotAvailableError, NotLeaderForPartitionError, UnknownTopicOrPartitionError

from tests.harness.jars import classpath
from tests.harness.polling import wait_until
from tests.harness.wire import Address, Connection, frame

TIMEOUT_S: Final = 30.0
PREFERRED: Final = 0
ALTER_CLIENT_QUOTAS: Final = 49
LATEST: Final = -1


class AdminError(Exception):
    """The cluster did not come to the state asked for."""


@dataclass(frozen=True, slots=True)
class Entity:
    """A quota entity as kafka-configs names it; "" is the default entity, None leaves the part out."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def arguments(self) -> list[str]:
        parts = (("users", self.user), ("clients", self.client_id), ("ips", self.ip))
        return [
            word
            for kind, name in parts
            if name is not None
            for word in ("--entity-type", kind, *(["--entity-name", name] if name else ["--entity-default"]))
        ]


class BrokerAdmin:
    """A connection for administration, as a context manager."""

    def __init__(self, bootstrap: str) -> None:
        self._client: Any = KafkaAdminClient(bootstrap_servers=bootstrap.split(","), client_id="harness-admin")

    def wait_for_brokers(self, node_ids: Iterable[int]) -> None:
        wanted = set(node_ids)

        def are_there() -> bool:
            return {broker["broker_id"] for broker in self._client.describe_cluster()["brokers"]} == wanted

        wait_until(are_there, f"brokers {sorted(wanted)} registered")

    def create_topic(self, name: str, *, partitions: int, replicas: int, configs: Mapping[str, str]) -> None:
        options = {"num_partitions": partitions, "replication_factor": replicas, "configs": dict(configs)}
        self._create(name, range(partitions), options)

    def create_assigned(self, name: str, replicas: Mapping[int, Sequence[int]], configs: Mapping[str, str]) -> None:
        """Create a topic whose partitions have the given replicas, the preferred leader first."""
        self._create(name, replicas, {"assignments": dict(replicas), "configs": dict(configs)})

    def delete_topics(self, names: Sequence[str]) -> None:
        self._client.delete_topics(list(names))

    def topics(self) -> list[str]:
        """The names of all of them."""
        return [each["name"] if isinstance(each, dict) else each for each in self._client.list_topics()]

    def leader(self, topic: str, partition: int) -> int:
        return int(self._partition(topic, partition)["leader_id"])

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        where = TopicPartition(topic, partition)
        replicas: list[int] = list(self._partition(topic, partition)["replica_nodes"])
        if to not in replicas:
            raise AdminError(f"broker {to} holds no replica of {topic}-{partition}, only {replicas}")
        order = [to, *(each for each in replicas if each != to)]
        self._client.alter_partition_reassignments({where: order})
        wait_until(lambda: not self._client.list_partition_reassignments({topic: [partition]}), f"{topic} reassigned")
        wait_until(lambda: to in self._partition(topic, partition)["isr_nodes"], f"broker {to} in sync for {topic}")
        self._client.elect_leaders(PREFERRED, {topic: [partition]})
        wait_until(lambda: self.leader(topic, partition), f"broker {to} leading {topic}-{partition}", equals=to)

    def end_offset(self, topic: str, partition: int = 0) -> int:
        where = TopicPartition(topic, partition)
        return int(self._client.list_partition_offsets({where: LATEST})[where].offset)

    def close(self) -> None:
        self._client.close()

    def _create(self, name: str, partitions: Iterable[int], options: dict[str, Any]) -> None:
        """Metadata says who leads before the leader itself knows; until then it refuses what is produced by hand."""
        self._client.create_topics({name: options}, wait_for_metadata=True)
        latest = {TopicPartition(name, partition): LATEST for partition in partitions}

        def is_led() -> bool:
            try:
                self._client.list_partition_offsets(latest)
            except (NotLeaderForPartitionError, UnknownTopicOrPartitionError, LeaderNotAvailableError):
                return False
            return True

        wait_until(is_led, f"{name} led by those that metadata names")

    def _partition(self, topic: str, partition: int) -> dict[str, Any]:
        described = self._client.describe_topics([topic])[0]
        found: dict[str, Any] = next(p for p in described["partitions"] if p["partition_index"] == partition)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def set_broker_quota(version: str, bootstrap: str, entity: Entity, quotas: Mapping[str, float | None]) -> None:
    """kafka-configs --alter; returns when the broker has them."""
    added = ",".join(f"{kind}={value}" for kind, value in quotas.items() if value is not None)
    deleted = ",".join(kind for kind, value in quotas.items() if value is None)
    command = [
        *("java", "-XX:TieredStopAtLevel=1", "-cp", classpath(f"kafka-{version}"), "kafka.admin.ConfigCommand"),
        *("--bootstrap-server", bootstrap, "--alter", *entity.arguments()),
        *(["--add-config", added] if added else []),
        *(["--delete-config", deleted] if deleted else []),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0 or "Completed updating" not in done.stdout:
        raise AdminError(f"kafka-configs {' '.join(command[5:])} failed:\n{done.stdout}{done.stderr}")


def set_client_quotas(broker: Address, quota: str, limits: Mapping[str, float | None]) -> None:
    """One quota of many client-ids at once (None: removed), by AlterClientQuotas v0; a tool would take seconds each."""
    entries = b"".join(
        struct.pack(">i", 1)
        + _string("client-id")
        + _string(client_id)
        + struct.pack(">i", 1)
        + _string(quota)
        + struct.pack(">d?", limit or 0.0, limit is None)
        for client_id, limit in limits.items()
    )
    with Connection(broker, TIMEOUT_S) as connection:
        body = struct.pack(">i", len(limits)) + entries + b"\0"  # not only validated
        response = connection.exchange(frame(ALTER_CLIENT_QUOTAS, 0, 1, "harness-admin", body))
    (answered,) = struct.unpack_from(">i", response, 12)
    (error_code,) = struct.unpack_from(">h", response, 16)
    if answered != len(limits) or error_code:
        raise AdminError(f"AlterClientQuotas was answered with error {error_code}")


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()
