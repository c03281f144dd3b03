"""`sluice calibrate` at a real broker: what it finds, and that it leaves nothing, however it ends."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.harness.admin import Entity
from tests.harness.broker import AS_IN_PRODUCTION, BrokerListener
from tests.harness.client_quotas import describe_client_quotas
from tests.harness.kafka import KafkaCluster
from tests.harness.polling import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
MECHANISM = "SCRAM-SHA-256"
PASSWORD = "canary of the operator"
TIMEOUT_S = 120
TRIES = 5
LEFT = "sluice-calibrate-of-yesterday"


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """ANONYMOUS, of the plaintext listener, may do everything; others nothing."""
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    sasl = {"sasl.enabled.mechanisms": MECHANISM, f"{MECHANISM.lower()}.sasl.jaas.config": login}
    with KafkaCluster(
        virtual_machine=AS_IN_PRODUCTION,
        properties={"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"},
        listeners=[BrokerListener("SASL", "SASL_PLAINTEXT", sasl)],
        scram=[f"{MECHANISM}=[name=clerk,password={PASSWORD}]"],
    ) as running:
        running.create_topic("orders", partitions=10)
        yield running


@pytest.fixture
def config(cluster: KafkaCluster, tmp_path: Path) -> Path:
    quotas = tmp_path / "quotas.yaml"
    quotas.write_text("quotas: []\n")
    written = {
        "cluster": {"name": "demo", "bootstrap": cluster.bootstrap.split(",")},
        "listeners": [{"name": "PLAIN", "bind": "127.0.0.1:9092", "advertise": "localhost", "brokers": {"0": "9100"}}],
        "quotas": {"store": {"type": "file", "path": str(quotas)}},
    }
    file = tmp_path / "sluice.yaml"
    file.write_text(yaml.safe_dump(written))
    return file


def command(config: Path, *more: str) -> list[str]:
    return [str(Path(sys.executable).parent / "sluice"), "calibrate", "-c", str(config), *more]


def left_in(cluster: KafkaCluster) -> list[str]:
    quotas = [str(entity.client_id) for entity in describe_client_quotas(cluster.direct(0))]
    with cluster.admin() as admin:
        return [each for each in [*quotas, *admin.topics()] if each.startswith("sluice-calibrate-")]


@pytest.mark.alone
def test_calibrate_prints_scale_and_removes_leftovers_of_earlier_run(cluster: KafkaCluster, config: Path) -> None:
    cluster.set_quota(Entity(client_id=LEFT), request_percentage=1.0)
    cluster.set_quota(Entity(client_id="orders"), request_percentage=50.0)
    done = subprocess.run(command(config), capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    print(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"removed what an earlier calibration had left: {LEFT}" in done.stdout
    found = re.search(r"broker 0: request_costs\.scale: ([0-9.]+) \(spread ([0-9.]+)\)", done.stdout)
    assert found is not None
    assert 0.5 <= float(found[1]) <= 4.0
    assert done.stdout.count(" µs in bursts (") == 3
    assert left_in(cluster) == []
    assert [each.client_id for each in describe_client_quotas(cluster.direct(0))] == ["orders"]


def _has_begun(cluster: KafkaCluster, running: "subprocess.Popen[str]") -> bool:
    return running.poll() is not None or len(left_in(cluster)) > 1


def test_calibrate_interrupted_removes_its_topic_and_quotas(cluster: KafkaCluster, config: Path) -> None:
    for _ in range(TRIES):
        with subprocess.Popen(command(config), stderr=subprocess.PIPE, text=True) as running:
            wait_until(partial(_has_begun, cluster, running), "a topic and quotas, or its end", TIMEOUT_S)
            running.send_signal(signal.SIGINT)
            _, told = running.communicate(timeout=TIMEOUT_S)
        if running.returncode != 0:  # else it came to its end before the signal
            break
    assert (running.returncode, told) == (130, "stopped; what was made for it is removed\n")
    assert left_in(cluster) == []


def test_calibrate_without_acl_names_the_missing_operations(
    cluster: KafkaCluster, config: Path, tmp_path: Path
) -> None:
    written = yaml.safe_load(config.read_text())
    written["cluster"]["bootstrap"] = cluster.bootstrap_of("SASL").split(",")
    config.write_text(yaml.safe_dump(written))
    client = tmp_path / "client.properties"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    client.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={MECHANISM}\n"
        f'sasl.jaas.config={module} required username="clerk" password="{PASSWORD}";\n'
    )
    done = subprocess.run(
        command(config, "--command-config", str(client)),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "the login needs DESCRIBE_CONFIGS and ALTER_CONFIGS on the cluster" in done.stderr
    assert "canary" not in done.stderr


def test_calibrate_of_unknown_broker_names_the_known_ones(config: Path) -> None:
    done = subprocess.run(
        command(config, "--broker", "7"), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "not calibrated: there is no broker 7: give --broker with one of 0\n"


def test_calibrate_with_unreachable_bootstrap_names_the_broker(config: Path) -> None:
    written = yaml.safe_load(config.read_text())
    written["cluster"]["bootstrap"] = ["127.0.0.1:1"]
    config.write_text(yaml.safe_dump(written))
    done = subprocess.run(command(config), capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("not calibrated: broker 127.0.0.1:1: ")
