"""Clusters are started once for a session: a broker takes seconds, a topic none."""

import signal
from collections.abc import Iterator
from itertools import count

import pytest

from tests.harness.configs import KafkaConfigs
from tests.harness.jars import ZOOKEEPER_TOOLS
from tests.harness.kafka import KafkaCluster
from tests.harness.measure import SHORT_SAMPLES
from tests.harness.secure import SecureCluster
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
def cluster() -> Iterator[KafkaCluster]:
    """Three nodes of the newest version. Their own quotas, which tests compare with, have a short window."""
    windows = ("quota.window.num", "controller.quota.window.num")
    properties = dict.fromkeys(windows, str(SHORT_WINDOW_SAMPLES))
    with KafkaCluster(node_ids=NODE_IDS, properties=properties) as running:
        yield running


@pytest.fixture(scope="session")
def old_cluster() -> Iterator[KafkaCluster]:
    """One node of the last version before 4.0."""
    with KafkaCluster(version="3.9.1") as running:
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
def secure_cluster() -> Iterator[SecureCluster]:
    """One node with a listener for each way of logging in."""
    with SecureCluster(USERS) as running:
        yield running


def fresh_name(stem: str) -> str:
    """A name that no other test uses: of a topic, a group, a transactional id."""
    return f"{stem}-{next(_numbers)}"
