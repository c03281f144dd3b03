"""A part of the matrix of clients (`make matrix`), of programs that are quick to build: nothing differs."""

import pytest

from bench.clients.cells import AS_DIRECT, Scenario
from bench.clients.run import run
from bench.clients.software import ALL
from tests.harness.jars import CLIENT_VERSIONS, NEWEST_BROKER

CLIENTS = (
    ("kafka-python", "3.0.12"),
    ("confluent-kafka", "2.16.1"),
    ("Java", CLIENT_VERSIONS[0]),
    ("Java", CLIENT_VERSIONS[-1]),
)
SCENARIOS = {Scenario.PRODUCE, Scenario.GROUP, Scenario.TRANSACTION, Scenario.LEADER}


@pytest.mark.slow
@pytest.mark.integration
def test_clients_are_as_direct() -> None:
    chosen = [each for each in ALL if (each.name, each.version) in CLIENTS]
    cells = list(run(NEWEST_BROKER, chosen, SCENARIOS))
    assert len(cells) == len(CLIENTS) * len(SCENARIOS)
    assert {cell.key: cell.verdict for cell in cells if cell.verdict != AS_DIRECT} == {}
