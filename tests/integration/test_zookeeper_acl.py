"""Beside a broker with `zookeeper.set.acl`: what it protects can be read and written with its login, and by nobody."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from config.stores import ZooKeeperSasl
from config.stores import ZooKeeperStore as Settings
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.stores.alteration import Alteration
from quotas.stores.base import UnreadableError
from quotas.stores.zookeeper.store import ZooKeeperStore
from tests.harness.admin import Entity as Named
from tests.harness.client_quotas import describe_client_quotas
from tests.harness.configs import KafkaConfigs
from tests.harness.jars import LAST_ON_ZOOKEEPER, ZOOKEEPER_TOOLS
from tests.harness.kafka import KafkaCluster
from tests.harness.polling import wait_until
from tests.harness.sluice import SluiceProcess
from tests.harness.zookeeper import ZooKeeper
from tests.proxy.manage.run import quotas
from tests.quotas.stores.alter_contract import change

pytestmark = [pytest.mark.integration, pytest.mark.matrix, pytest.mark.timeout(300)]

NODE_ID = 3
TIMEOUT_S = 60.0
RATE = QuotaKind.PRODUCER_BYTE_RATE
PASSWORDS = {"broker": "secret", "other": "another one"}
MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule required"


@dataclass(frozen=True, slots=True)
class Guarded:
    zookeeper: ZooKeeper
    cluster: KafkaCluster
    folder: Path
    jaas: str
    """As an option of Java."""

    def settings(self, user: str, password: str | None = None, *, set_acl: bool = True) -> Settings:
        file = self.folder / f"{user}.password"
        file.write_text(password or PASSWORDS[user], encoding="utf-8")
        sasl = ZooKeeperSasl(username=user, password_file=file)
        return Settings(connect=self.zookeeper.connect, sasl=sasl, set_acl=set_acl)

    def acls(self, path: str) -> list[tuple[str, str, int]]:
        login = {"mechanism": "DIGEST-MD5", "username": "broker", "password": PASSWORDS["broker"]}
        client = KazooClient(hosts=self.zookeeper.connect, sasl_options=login)
        client.start()
        try:
            return sorted((acl.id.scheme, acl.id.id, acl.perms) for acl in client.get_acls(path)[0])
        finally:
            client.stop()
            client.close()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    folder = tmp_path_factory.mktemp("acl")
    users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    jaas = folder / "jaas.conf"
    login = f'Client {{ {MODULE} username="broker" password="{PASSWORDS["broker"]}"; }};'
    jaas.write_text(f"Server {{ {MODULE} {users}; }};\n{login}\n", encoding="utf-8")
    option = f"-Djava.security.auth.login.config={jaas}"
    provider = {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    with (
        ZooKeeper(properties=provider, java_options=(option,)) as zookeeper,
        KafkaCluster(
            version=LAST_ON_ZOOKEEPER,
            node_ids=[NODE_ID],
            zookeeper=zookeeper.connect,
            properties={"zookeeper.set.acl": "true"},
            java_options=[option],
        ) as cluster,
    ):
        yield Guarded(zookeeper, cluster, folder, option)


@pytest.mark.parametrize("version", [LAST_ON_ZOOKEEPER, ZOOKEEPER_TOOLS])
def test_zookeeper_store_and_kafka_configs_read_each_others_quotas(guarded: Guarded, version: str) -> None:
    """And each may change it: its own tool, the one of 2.8 that goes to ZooKeeper itself, and we."""
    store = ZooKeeperStore(guarded.settings("broker"))
    broker = guarded.cluster.direct(NODE_ID)
    where = ("--bootstrap-server", guarded.cluster.bootstrap)
    if version == ZOOKEEPER_TOOLS:
        where = ("--zookeeper", guarded.zookeeper.connect)
    named = [("theirs", None), (None, "theirs"), ("theirs", "theirs"), ("ours", None), (None, "ours"), ("ours", "ours")]
    pairs = [(Entity(*names), Named(*names)) for names in named]
    ours, both = {Entity(*names): {RATE: 2048.0} for names in named[3:]}, {Entity(*n): {RATE: 2048.0} for n in named}
    try:
        with KafkaConfigs(version, *where, java_options=(guarded.jaas,)) as configs:
            for _, entity in pairs[:3]:
                configs.alter(entity, producer_byte_rate=2048)
            store.alter(Alteration([change(entity, limits) for entity, limits in ours.items()], "test"))
            wait_until(lambda: store.load(0).policy.limits, "known here", TIMEOUT_S, equals=both)
            wait_until(lambda: describe_client_quotas(broker), "known there", TIMEOUT_S, equals=both)
            for path in ("users/{}", "clients/{}", "users/{}/clients", "users/{}/clients/{}"):
                mine, his = (f"/config/{path.replace('{}', name)}" for name in ("ours", "theirs"))
                assert guarded.acls(mine) == guarded.acls(his) != []
            store.alter(Alteration([change(entity, {RATE: None}) for entity, _ in pairs[:3]], "test"))
            for _, entity in pairs[3:]:
                configs.alter(entity, producer_byte_rate=None)
            wait_until(lambda: describe_client_quotas(broker), "none", TIMEOUT_S, equals={})
            assert store.load(0).policy.limits == {}
    finally:
        store.close()


def test_the_command_line_logs_in_as_kafka_configs_does(guarded: Guarded, tmp_path: Path) -> None:
    """What it writes is protected as what brokers write, who is somebody else reads nothing, and the fix is told."""
    other = tmp_path / "quotas.yaml"
    other.write_text("quotas: []\n")

    def where(user: str, password: str) -> tuple[object, ...]:
        file = tmp_path / f"{user}-{password}.properties"
        file.write_text(f'sasl.jaas.config={MODULE} username="{user}" password="{password}";\n')
        return "--zookeeper", guarded.zookeeper.connect, "--zookeeper-config", file

    own = where("broker", PASSWORDS["broker"])
    assert quotas("alter", *own, "user=typed", "producer_byte_rate=5").exit_code == 0
    assert guarded.acls("/config/users/typed") == [("sasl", "broker", 31)]
    said = quotas("describe", *own, "user=typed").output
    assert said == "Quota configs for user-principal 'typed' are producer_byte_rate=5.0\n"
    source = ("--from", "zookeeper", "--from-address", own[1], "--from-command-config", own[3])
    assert quotas("import", *source, "--file", other, "--yes").exit_code == 0
    assert "typed" in other.read_text()
    for wrong, error in (
        (where("other", PASSWORDS["other"]), "/config/users: may not be read; let the user of sasl.jaas.config of"),
        (where("other", "canary"), "the login was refused: see sasl.jaas.config of --zookeeper-config, and"),
        (own[:2], "/config/users: may not be read; let the user of sasl.jaas.config of --zookeeper-config"),
    ):
        done = quotas("describe", *wrong)
        assert (done.exit_code, done.stdout) == (1, "")
        assert error in done.stderr
        assert "canary" not in done.stderr
    assert quotas("delete", *own, "user=typed").exit_code == 0


def test_zookeeper_store_without_acl_never_reads_as_no_quotas(guarded: Guarded) -> None:
    """A proxy with another login does not start; with the brokers' own it does."""
    with KafkaConfigs(LAST_ON_ZOOKEEPER, "--bootstrap-server", guarded.cluster.bootstrap) as configs:
        configs.alter(Named(user="alice"), producer_byte_rate=1024)
    for settings, error in (
        (guarded.settings("other"), "/config/users: may not be read; let the user of quotas.store.sasl"),
        (guarded.settings("broker", "wrong"), "the login was refused: see quotas.store.sasl"),
        (Settings(connect=guarded.zookeeper.connect), "/config/users: may not be read"),
    ):
        store = ZooKeeperStore(settings)
        try:
            with pytest.raises(UnreadableError, match=error):
                store.load(0)
        finally:
            store.close()
    file = guarded.settings("broker").sasl
    assert file is not None
    section = {
        "type": "zookeeper",
        "connect": guarded.zookeeper.connect,
        "sasl": {"username": "broker", "password_file": str(file.password_file)},
        "set_acl": True,
    }
    with SluiceProcess(guarded.cluster.bootstrap, [NODE_ID], settings={"quotas": {"store": section}}) as sluice:
        assert sluice.metrics().value("sluice_quotas_configured") == 1
