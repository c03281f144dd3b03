"""The task pages of docs/, typed in front of a real cluster."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.admin import Entity
from tests.harness.ports import free_port, free_ports
from tests.harness.secure import PROXY_USER, SASL_TLS, SecureCluster
from tests.integration.identity import USERS
from tests.integration.task_pages import Typist

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def secure_cluster() -> Iterator[SecureCluster]:
    """One for each page: it makes topics, and shows all quotas of a cluster."""
    with SecureCluster(USERS) as running:
        yield running


@pytest.fixture
def typist(secure_cluster: SecureCluster, tmp_path: Path) -> Iterator[Typist]:
    """A folder and free ports for one page; its broker is the one node of the cluster."""
    ports = free_ports(10)
    client = free_port()
    replaced = {
        "9100-9109": f"{ports[0]}-{ports[-1]}",
        "kafka-1.internal:9093": secure_cluster.cluster.bootstrap_of(SASL_TLS),
        "0.0.0.0:9093": f"127.0.0.1:{client}",
        "kafka.example.com:9093": f"127.0.0.1:{client}",
        "kafka.example.com": "127.0.0.1",
        "username: sluice": f"username: {PROXY_USER}",
        "alice-secret": USERS["alice"],
        "127.0.0.1:19092": secure_cluster.cluster.bootstrap,
        "127.0.0.1:9092": f"127.0.0.1:{free_port()}",
        "127.0.0.1:9404": f"127.0.0.1:{free_port()}",
    }
    with Typist(tmp_path, replaced) as typist:
        yield typist


PAGES = ("first-quota.md", "shadow-first.md", "upgrading.md", "securing-the-admin-port.md")


@pytest.mark.parametrize("page", PAGES)
def test_task_page_commands_print_as_documented(typist: Typist, page: str) -> None:
    typist.type_page(page)


def test_tls_and_sasl_page_commands_print_as_documented(typist: Typist, secure_cluster: SecureCluster) -> None:
    for folder in ("tls", "secrets"):
        (typist.folder / folder).mkdir()
    authority, server = secure_cluster.authority.certificate, secure_cluster.server
    given = {
        "tls/brokers-ca.pem": authority,
        "clients-ca.pem": authority,
        "tls/proxy.pem": server.certificate,
        "tls/proxy.key": server.key,
    }
    for name, source in given.items():
        shutil.copy(source, typist.folder / name)
    password = typist.folder / "secrets" / "sluice.password"
    password.write_text(secure_cluster.passwords[PROXY_USER], encoding="utf-8")
    password.chmod(0o600)
    typist.type_page("tls-and-sasl.md")


def test_moving_from_kafka_page_commands_print_as_documented(typist: Typist, secure_cluster: SecureCluster) -> None:
    """The page leaves the brokers with the quotas that they had."""
    limits = {"web": 8 * 2.0**20, "batch": 2.0**20}
    for client_id, limit in limits.items():
        secure_cluster.cluster.set_quota(Entity(client_id=client_id), producer_byte_rate=limit)
    try:
        typist.type_page("moving-from-kafka.md")
    finally:
        for client_id in limits:
            secure_cluster.cluster.set_quota(Entity(client_id=client_id), producer_byte_rate=None)


def test_first_quota_of_the_readme_throttles_its_producer(typist: Typist, secure_cluster: SecureCluster) -> None:
    secure_cluster.cluster.create_topic("t")  # a broker makes it by default, those of the tests do not
    for name in ("deploy/sluice.yaml", "deploy/quotas.yaml"):
        typist.place(ROOT / name, name)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    [commands] = re.findall(r"^## A first quota\n.*?^```sh\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    environment, _, rest = commands.partition("\n")
    assert environment == ". .venv-sluice/bin/activate"
    assert "records sent" in typist.run(rest)
    said = typist.run("curl -s http://127.0.0.1:9404/metrics | grep '^sluice_quota_throttled_responses_total'")
    assert 'client_id="batch-import"' in said


def test_billing_page_commands_print_as_documented(typist: Typist) -> None:
    typist.type_page("billing.md")
