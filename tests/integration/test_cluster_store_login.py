"""How the cluster store, and `sluice quotas --bootstrap-server`, come to brokers that ask who is there."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from config.cluster import Route
from proxy.brokers.persistent_connection import access_by
from proxy.control.cluster_store import ClusterStore
from proxy.manage.target import open_target
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.stores.base import UnreadableError
from tests.harness.admin import set_client_quotas
from tests.harness.secure import MTLS, SASL, SASL_TLS, SecureCluster
from tests.integration.conftest import fresh_name
from tests.integration.test_own_login import route

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


RATE = "producer_byte_rate"
LIMITED = Entity(client_id=fresh_name("limited"))


@pytest.fixture(scope="module", autouse=True)
def limited(secure_cluster: SecureCluster) -> Iterator[None]:
    """A quota that shows that quotas were read; other tests have theirs."""
    broker = secure_cluster.cluster.nodes[0].direct
    set_client_quotas(broker, RATE, {str(LIMITED.client_id): 5.0})
    yield
    set_client_quotas(broker, RATE, {str(LIMITED.client_id): None})


def store_by(given: Route) -> ClusterStore:
    return ClusterStore(access_by(given), poll_ms=3_600_000)


@pytest.mark.parametrize("listener", [SASL, SASL_TLS, MTLS])
def test_cluster_store_logs_in_as_the_proxy_does(secure_cluster: SecureCluster, listener: str) -> None:
    with closing(store_by(route(secure_cluster, listener))) as store:
        assert store.load(0).policy.limits[LIMITED] == {QuotaKind(RATE): 5.0}
        assert store.load(0).warnings == []


def test_cluster_store_refused_by_brokers_never_reads_as_no_quotas(
    secure_cluster: SecureCluster, tmp_path: Path
) -> None:
    (tmp_path / "wrong").write_text("canary")
    login = {**secure_cluster.route(SASL)["sasl"], "password_file": str(tmp_path / "wrong")}
    wrongs = [
        (route(secure_cluster, SASL, sasl=login), "refused the login of user proxy by SCRAM"),
        (route(secure_cluster, SASL, sasl=None), "require TLS, a client certificate or SASL"),
        (route(secure_cluster, SASL_TLS, tls={}), "name that authority in tls.ca"),
        (route(secure_cluster, SASL_TLS, tls={"ca": str(tmp_path / "gone")}), "tls.ca"),
    ]
    for given, said in wrongs:
        with closing(store_by(given)) as store, pytest.raises(UnreadableError, match=said) as caught:
            store.load(0)
        assert caught.value.away
        assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("properties", "listener"),
    [
        (lambda secure: _by_password(secure, "SASL_PLAINTEXT"), SASL),
        (lambda secure: _by_password(secure, "SASL_SSL") + _trust(secure), SASL_TLS),
    ],
)
def test_cluster_store_logs_in_by_command_config_of_kafka_tools(
    secure_cluster: SecureCluster, tmp_path: Path, properties: Callable[[SecureCluster], str], listener: str
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(properties(secure_cluster))
    where = secure_cluster.cluster.bootstrap_of(listener)
    with closing(open_target(bootstrap_server=where, command_config=file)) as store:
        assert store.load(0).policy.limits[LIMITED] == {QuotaKind(RATE): 5.0}


def _by_password(secure: SecureCluster, protocol: str) -> str:
    login = f'username="alice" password="{secure.passwords["alice"]}"'
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return f"security.protocol={protocol}\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={module} required {login};\n"


def _trust(secure: SecureCluster) -> str:
    return f"ssl.truststore.type=PEM\nssl.truststore.location={secure.authority.certificate}\n"
