"""Clusters are started once for all worker processes of a run: a broker takes seconds, a topic none."""

import os
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.harness.broker import WORKER
from tests.harness.configs import KafkaConfigs
from tests.harness.jars import ZOOKEEPER_TOOLS
from tests.harness.kafka import KafkaCluster
from tests.harness.measure import SHORT_SAMPLES
from tests.harness.secure import SecureCluster
from tests.harness.shared import shared
from tests.integration.identity import USERS
from tests.integration.old_kafka import OldKafka, started

# Sparse on purpose: a port stands for a node id, not for a position.
NODE_IDS = (1, 5, 42)
SHORT_WINDOW_SAMPLES = SHORT_SAMPLES

_numbers = count(1)


def pytest_configure() -> None:
    """SIGTERM (of a CI that loses patience) ends a run as Ctrl-C does: with every server stopped."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(scope="session")
def of_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the worker processes of this run share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def _three_nodes() -> KafkaCluster:
    windows = ("quota.window.num", "controller.quota.window.num")
    properties = dict.fromkeys(windows, str(SHORT_WINDOW_SAMPLES))
    return KafkaCluster(node_ids=NODE_IDS, properties=properties)


@pytest.fixture(scope="session")
def cluster(of_run: Path) -> Iterator[KafkaCluster]:
    """Three nodes of the newest version. Their own quotas, which tests compare with, have a short window.

    Tests of other files use it at the same time. So it is not stopped, and names are fresh: of topics, groups, and
    clients that the brokers have a quota for.
    """
    with shared(of_run / "cluster", _three_nodes) as running:
        yield running


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[KafkaCluster]:
    """The same for a file that stops brokers: it has this one to itself, under the name `cluster`."""
    with _three_nodes() as running:
        yield running


@pytest.fixture(scope="session")
def old_cluster(of_run: Path) -> Iterator[KafkaCluster]:
    """One node of the last version before 4.0."""
    with shared(of_run / "old_cluster", lambda: KafkaCluster(version="3.9.1")) as running:
        yield running


@pytest.fixture(scope="module")
def old_kafka() -> Iterator[OldKafka]:
    """One node of that version on ZooKeeper, for a module that has it to itself: its quotas are compared as a whole."""
    with started() as running:
        yield running


@pytest.fixture(scope="module")
def old_configs(old_kafka: OldKafka) -> Iterator[KafkaConfigs]:
    """kafka-configs of 2.8, which goes to ZooKeeper itself."""
    with KafkaConfigs(ZOOKEEPER_TOOLS, "--zookeeper", old_kafka.zookeeper.connect) as configs:
        yield configs


@pytest.fixture(scope="session")
def secure_cluster(of_run: Path) -> Iterator[SecureCluster]:
    """One node with a listener for each way of logging in."""
    with shared(of_run / "secure_cluster", lambda: SecureCluster(USERS)) as running:
        yield running


def fresh_name(stem: str) -> str:
    """A name that no other test uses: of a topic, a group, a transactional id."""
    return f"{stem}-{WORKER}-{next(_numbers)}"
