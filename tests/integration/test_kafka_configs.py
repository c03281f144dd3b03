"""Kafka's own tools change the quotas of the proxy as they change those of a broker: the same words, and in force."""

import logging
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import pytest
from kafka.protocol.admin import client_quotas
from kazoo.client import KazooClient

from protocol.client_quotas import ALTER, DESCRIBE
from protocol.messages import write_message
from protocol.table import SPECS, key_version
from tests.harness.clients.java import tool_command
from tests.harness.configs import ConfigCommands, Ran
from tests.harness.jars import NEWEST_BROKER
from tests.harness.kafka import KafkaCluster
from tests.harness.load import produce_request
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Connection, frame
from tests.harness.zookeeper import ZooKeeper
from tests.integration.config_commands import DOCUMENTED, FOUR_TIMES_THREE, MANY, MISTAKES, Command
from tests.integration.conftest import fresh_name

pytestmark = [pytest.mark.slow, pytest.mark.integration]

LAST_WITH_ZOOKEEPER = "3.9.1"
REQUEST_BYTES = 150_000
LIMIT = 10_000
TOOL = "kafka.admin.ConfigCommand"
KINDS = ("user", "client-id", "ip")


class Both(NamedTuple):
    """A broker, and the proxy in front of it with quotas of its own."""

    cluster: KafkaCluster
    sluice: SluiceProcess
    tool: ConfigCommands

    def at_broker(self, command: Command) -> Ran:
        return self.tool.ask("--bootstrap-server", self.cluster.bootstrap, *command)

    def at_proxy(self, command: Command) -> Ran:
        ran = self.tool.ask("--bootstrap-server", self.sluice.bootstrap, *command)
        return Ran(ran.status, *(text.replace(self.sluice.bootstrap, self.cluster.bootstrap) for text in ran[1:]))

    def differences(self, commands: Sequence[Command]) -> list[Any]:
        """Run each at both; return those that did not come to the same lines, in any order."""
        seen = ((command, self.at_broker(command), self.at_proxy(command)) for command in commands)
        return [(command, *ran) for command, *ran in seen if in_any_order(ran[0]) != in_any_order(ran[1])]


def in_any_order(ran: Ran) -> Ran:
    return ran._replace(out="".join(sorted(ran.out.splitlines(keepends=True))))


@contextmanager
def both(version: str = NEWEST_BROKER, store: str = "file", quotas: str = "quotas: []\n") -> Iterator[Both]:
    with ExitStack() as stack:
        section: dict[str, Any] = {"admins": ["ANONYMOUS"]}
        if store == "zookeeper":
            logging.getLogger("kazoo").setLevel(logging.CRITICAL)
            zookeeper = stack.enter_context(ZooKeeper())
            client = KazooClient(hosts=zookeeper.connect)
            client.start()
            client.ensure_path("/config/changes")
            client.stop()
            client.close()
            section["store"] = {"type": "zookeeper", "connect": zookeeper.connect}
        cluster = stack.enter_context(KafkaCluster(version=version))
        settings = {"quotas": section}
        sluice = stack.enter_context(
            SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=quotas, settings=settings)
        )
        yield Both(cluster, sluice, stack.enter_context(ConfigCommands(version)))


@pytest.mark.timeout(300)
def test_the_tool_says_the_same_as_at_a_broker_and_what_it_sets_is_in_force(capsys: pytest.CaptureFixture[str]) -> None:
    """The four operations, for users, clients and pairs."""
    kept = "# ours\nquotas:\n  - {entity: {client-id: {prefix: team-}}, producer_byte_rate: 10MiB}   # stays\n"
    with both(quotas=kept) as here:
        assert here.differences(FOUR_TIMES_THREE) == []
        described = here.at_proxy(["--describe", "--entity-type", "users"])
        assert described == Ran(
            0,
            "Quota configs for user-principal 'user1' are consumer_byte_rate=2048.0, producer_byte_rate=4096.0\n",
            "",
        )
        where = ["--bootstrap-server", here.sluice.bootstrap, "--describe", "--entity-type", "users"]
        alone = subprocess.run(tool_command(TOOL, *where), capture_output=True, text=True, timeout=120, check=True)
        assert alone.stdout == described.out, "a process of its own says what many commands in one say"
        assert here.sluice.quotas_path.read_text().startswith(kept)
        _is_in_force_at_once(here, capsys)
        _answers_have_a_brokers_bytes(here)
        _kafka_python_is_answered(here)
        _who_is_no_admin_changes_nothing_and_sees_what_the_broker_shows(here)


def _is_in_force_at_once(here: Both, capsys: pytest.CaptureFixture[str]) -> None:
    """The first request that is sent after the tool was answered is held to what it set, and to nothing when that goes.

    Until then they go unthrottled, and are small: what was used before counts. Each is on a connection of its own, as a
    throttle mutes.
    """
    topic = fresh_name("configs")
    here.cluster.create_topic(topic)
    (address,) = here.sluice.broker_addresses.values()

    def throttle_ms(request_bytes: int = REQUEST_BYTES) -> int:
        with Connection(address, timeout_s=30.0) as connection:
            response = connection.exchange(produce_request(topic, "greedy", request_bytes))
        return int(struct.unpack(">i", response[-4:])[0])

    assert [throttle_ms(100) for _ in range(3)] == [0, 0, 0]
    assert here.at_proxy(["--alter", "--client", "greedy", "--add-config", f"producer_byte_rate={LIMIT}"]).status == 0
    answered_s = time.monotonic()
    assert throttle_ms() > 0
    took_s = time.monotonic() - answered_s
    assert here.at_proxy(["--alter", "--client", "greedy", "--delete-config", "producer_byte_rate"]).status == 0
    assert throttle_ms() == 0
    with capsys.disabled():
        print(f"\na throttled answer came {took_s * 1000:.1f} ms after the tool was done")


def _answers_have_a_brokers_bytes(here: Both) -> None:
    """What clients that are not Java make of them depends on nulls, empty texts and the order of fields."""

    def component(entity_type: str, match_type: int, match: str | None = None) -> dict[str, Any]:
        return {"entity_type": entity_type, "match_type": match_type, "match": match}

    def entry(entity: dict[str, str | None], key: str, value: float, *, remove: bool = False) -> dict[str, Any]:
        named = [{"entity_type": each, "entity_name": name} for each, name in entity.items()]
        return {"entity": named, "ops": [{"key": key, "value": value, "remove": remove}]}

    filters = [
        [],
        *(
            [component(kind, how, name)]
            for kind in KINDS
            for how, name in ((0, "raw"), (0, "nobody"), (1, None), (2, None))
        ),
        [component("user", 2), component("client-id", 2)],
        [component("user", 0, "raw"), component("client-id", 1)],
        [component("user", 0, "raw"), component("user", 0, "raw")],
        [component("ip", 2), component("user", 2)],
        [component("topic", 0, "raw")],
        [component("user", 7, "raw")],
        [component("", 0, "raw")],
    ]
    entries = [
        entry({"user": "raw"}, "producer_byte_rate", 1e6),
        entry({"user": "raw", "client-id": None}, "request_percentage", 12.5),
        entry({"client-id": "raw"}, "consumer_byte_rate", 2.0),
        entry({"ip": "10.0.0.1"}, "connection_creation_rate", 3.0),
        entry({"user": "raw"}, "no_such_key", 1.0),
        entry({"user": "raw"}, "producer_byte_rate", -1.0),
        entry({"user": "raw"}, "producer_byte_rate", 1.5),
        entry({"user": "raw"}, "connection_creation_rate", 1.0),
        entry({"user": "raw", "ip": "10.0.0.1"}, "connection_creation_rate", 1.0),
        entry({"topic": "raw"}, "producer_byte_rate", 1.0),
        entry({"user": ""}, "producer_byte_rate", 1.0),
        entry({}, "producer_byte_rate", 1.0),
        entry({"user": "never"}, "producer_byte_rate", 0.0, remove=True),
    ]
    described = [(DESCRIBE, {"components": each, "strict": strict}) for each in filters for strict in (False, True)]
    altered = [(ALTER, {"entries": [each], "validate_only": dry}) for dry in (True, False) for each in entries]
    addresses = (
        here.cluster.direct(next(iter(here.cluster.node_ids))),
        next(iter(here.sluice.broker_addresses.values())),
    )
    differ = []
    for version in (0, 1):
        for key, values in (*described, *altered, *described):
            spec = SPECS[key_version(key, version)]
            body = write_message(spec.request_layout, values)
            asked = frame(key, version, 7, "raw", body, flexible=version == 1)
            answers = []
            for address in addresses:
                with Connection(address) as connection:
                    answers.append(connection.exchange(asked))
            # Of several entities, a broker lists those that fall into one place of a hash table by their age.
            if answers[0] != answers[1] and sorted(answers[0]) != sorted(answers[1]):
                differ.append((spec, values, *answers))
    assert differ == []


def _kafka_python_is_answered(here: Both) -> None:
    """Its messages, in both versions; it has no calls for them."""

    def exchange(key: int, version: int, request: Any, response: Any) -> Any:
        flexible = version == 1
        asked = frame(key, version, 7, "kafka-python", request.encode(version=version), flexible=flexible)
        (address,) = here.sluice.broker_addresses.values()
        with Connection(address) as connection:
            answer = connection.exchange(asked)
        return response.decode(answer[8 + flexible :], version=version)

    altering, describing = client_quotas.AlterClientQuotasRequest, client_quotas.DescribeClientQuotasRequest
    for version in (0, 1):
        entity = altering.EntryData.EntityData(entity_type="user", entity_name=f"python-{version}", version=version)
        op = altering.EntryData.OpData(key="request_percentage", value=12.5, remove=False, version=version)
        entry = altering.EntryData(entity=[entity], ops=[op], version=version)
        asked = altering(entries=[entry], validate_only=False, version=version)
        (altered,) = exchange(ALTER, version, asked, client_quotas.AlterClientQuotasResponse).entries
        assert (altered.error_code, altered.error_message) == (0, None)
        one = describing.ComponentData(entity_type="user", match_type=0, match=f"python-{version}", version=version)
        asked = describing(components=[one], strict=True, version=version)
        (described,) = exchange(DESCRIBE, version, asked, client_quotas.DescribeClientQuotasResponse).entries
        assert [(each.key, each.value) for each in described.values] == [("request_percentage", 12.5)]


def _who_is_no_admin_changes_nothing_and_sees_what_the_broker_shows(here: Both) -> None:
    cluster, before = here.cluster, here.at_broker(["--describe", "--entity-type", "users"])
    with SluiceProcess(cluster.bootstrap, cluster.node_ids) as sluice:
        alter = ["--alter", "--user", "eve", "--add-config", "producer_byte_rate=1"]
        ran = here.tool.ask("--bootstrap-server", sluice.bootstrap, *alter)
        assert (ran.status, ran.out) == (1, "")
        assert "ClusterAuthorizationException: Cluster authorization failed." in ran.err
        scram = ["--alter", "--user", "eve", "--add-config", "SCRAM-SHA-256=[password=secret]"]
        assert here.tool.ask("--bootstrap-server", sluice.bootstrap, *scram).status == 0
        described = here.tool.ask("--bootstrap-server", sluice.bootstrap, "--describe", "--user", "eve")
        assert (described.status, described.out.count("SCRAM-SHA-256=")) == (0, 1)
        remove = ["--alter", "--user", "eve", "--delete-config", "SCRAM-SHA-256"]
        assert here.tool.ask("--bootstrap-server", sluice.bootstrap, *remove).status == 0
        assert sluice.quotas_path.read_text() == "quotas: []\n"
    assert here.at_broker(["--describe", "--entity-type", "users"]) == before


@pytest.mark.matrix
@pytest.mark.timeout(900)
@pytest.mark.parametrize("store", ["file", "zookeeper"])
@pytest.mark.parametrize("version", [NEWEST_BROKER, LAST_WITH_ZOOKEEPER])
def test_every_command_says_the_same_as_at_a_broker(version: str, store: str) -> None:
    """The lines of its output, its messages and its exit status; a broker's order is that of Java's hash tables."""
    with both(version, store) as here:
        assert here.differences(DOCUMENTED + MISTAKES + MANY) == []
        everything = [here.at_proxy(["--describe", "--entity-type", kind]).out for kind in ("users", "clients", "ips")]
        assert [text.count("\n") for text in everything] == [15, 2, 1], "14 users, and the credentials of one"
