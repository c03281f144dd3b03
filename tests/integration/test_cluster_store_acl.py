"""A cluster whose authorizer decides who may see its quotas: not allowed is never no quotas."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kafka.admin import ACL, ACLOperation, ACLPermissionType, KafkaAdminClient, ResourcePattern, ResourceType

from tests.harness.admin import Entity
from tests.harness.broker import BrokerListener
from tests.harness.kafka import KafkaCluster
from tests.harness.load import Shape, produce_request, run_loads
from tests.harness.polling import wait_until
from tests.harness.sluice import SluiceProcess
from tests.integration.conftest import fresh_name
from tests.integration.test_zookeeper import takes_clients
from tests.proxy.manage.run import quotas

pytestmark = [pytest.mark.integration, pytest.mark.matrix, pytest.mark.timeout(300)]

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
MECHANISM = "SCRAM-SHA-256"
PASSWORD = "the password of the proxy"
LIMIT = 100_000
TIMEOUT_S = 60.0
DENIED = "its quotas may not be read (CLUSTER_AUTHORIZATION_FAILED)"
FIX = "let proxy describe the configuration of the cluster: kafka-acls --add --cluster --operation DescribeConfigs"


@pytest.fixture(scope="module")
def guarded() -> Iterator[KafkaCluster]:
    """One node that lets ANONYMOUS, of the plaintext listener, do everything, and all others what ACLs say."""
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    sasl = {"sasl.enabled.mechanisms": MECHANISM, f"{MECHANISM.lower()}.sasl.jaas.config": login}
    with KafkaCluster(
        properties={"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"},
        listeners=[BrokerListener("SASL", "SASL_PLAINTEXT", sasl)],
        scram=[f"{MECHANISM}=[name=proxy,password={PASSWORD}]"],
    ) as cluster:
        cluster.set_quota(Entity(client_id="app"), producer_byte_rate=LIMIT)
        yield cluster


class Acls:
    """Who may do what with the cluster itself."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._admin: Any = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))

    def allow(self, operation: ACLOperation) -> None:
        self._admin.create_acls([self._about(operation)])

    def withdraw(self, operation: ACLOperation) -> None:
        self._admin.delete_acls([self._about(operation)])

    @staticmethod
    def _about(operation: ACLOperation) -> ACL:
        cluster = ResourcePattern(ResourceType.CLUSTER, "kafka-cluster")
        return ACL("User:proxy", "*", operation, ACLPermissionType.ALLOW, cluster)

    def close(self) -> None:
        self._admin.close()


def test_cluster_store_without_acl_never_reads_as_no_quotas(guarded: KafkaCluster, tmp_path: Path) -> None:
    """At the start nobody is accepted; later the quotas that were read last hold; each time the fix is told."""
    (tmp_path / "password").write_text(PASSWORD)
    login = {"mechanism": MECHANISM, "username": "proxy", "password_file": str(tmp_path / "password")}
    settings = {
        "cluster": {"bootstrap": guarded.bootstrap_of("SASL").split(","), "sasl": login},
        "quotas": {"store": {"type": "cluster", "poll": "500ms"}},
    }
    plain = {"cluster": {"bootstrap": guarded.bootstrap.split(",")}}
    topic = fresh_name("acl")
    guarded.create_topic(topic)
    sluice = SluiceProcess(guarded.bootstrap, guarded.node_ids, settings=settings, listeners={"ANY": plain})
    (address,) = sluice.listeners["ANY"].brokers.values()

    def is_held() -> bool:
        before = sluice.metrics().value("sluice_quota_throttled_responses_total", client_id="app")
        (load,) = run_loads([Shape(address, produce_request(topic, "app", 20_000))], 2.0)
        assert load.errors == []
        return sluice.metrics().value("sluice_quota_throttled_responses_total", client_id="app") > before

    def ran(command: str, *arguments: str) -> tuple[int, str]:
        done = quotas(command, "-c", sluice.config_path, *arguments)
        return done.exit_code, done.output

    with closing(Acls(guarded)) as acls, closing(sluice):
        sluice.launch()
        wait_until(lambda: DENIED in sluice.get("/readyz")[1], "it says why", TIMEOUT_S)
        status, said = sluice.get("/readyz")
        assert (status, FIX in said) == (503, True)
        assert not takes_clients(address)
        assert [line["event"] for line in sluice.logged("quotas not loaded")] == [
            "quotas not loaded, no client is accepted without them"
        ]
        assert DENIED in sluice.metrics().samples("sluice_quota_reload_error_info")[0].labels["error"]
        for command in ("describe", "export", "lint"):
            status, said = ran(command)
            assert status != 0
            assert DENIED in said
            assert "Quota configs" not in said

        acls.allow(ACLOperation.DESCRIBE_CONFIGS)
        sluice.wait_ready()
        assert sluice.metrics().value("sluice_quotas_configured") == 1
        assert is_held()
        assert ran("describe") == (0, f"Quota configs for client-id 'app' are producer_byte_rate={float(LIMIT)}\n")
        status, said = ran("alter", "client-id=app", "producer_byte_rate=1")
        assert status == 1
        assert "let proxy alter the configuration of the cluster: kafka-acls --add --cluster --operation Alter" in said

        acls.withdraw(ACLOperation.DESCRIBE_CONFIGS)
        wait_until(lambda: sluice.metrics().value("sluice_quota_staleness_seconds") > 0, "it is noticed", TIMEOUT_S)
        assert sluice.is_ready()
        assert sluice.metrics().value("sluice_quotas_configured") == 1
        assert is_held()
        [*_, told] = sluice.logged("quotas not loaded")
        assert told["event"] == "quotas not loaded, the old ones stay in force"
        assert DENIED in told["problem"]
        assert FIX in told["problem"]

        acls.allow(ACLOperation.DESCRIBE_CONFIGS)
        wait_until(
            lambda: sluice.metrics().value("sluice_quota_staleness_seconds"), "it may again", TIMEOUT_S, equals=0
        )
        assert not sluice.metrics().samples("sluice_quota_reload_error_info")
        acls.allow(ACLOperation.ALTER_CONFIGS)
        assert ran("alter", "client-id=other", "producer_byte_rate=5")[0] == 0
        wait_until(lambda: sluice.metrics().value("sluice_quotas_configured"), "what it has made", TIMEOUT_S, equals=2)
        assert is_held()
