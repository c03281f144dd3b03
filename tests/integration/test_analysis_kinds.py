"""The analysis tells the truth about the other kinds: what clients counted for themselves, beside report and what-if.

Of each kind there is a client with a limit and one that does the same without. What-if is asked what that limit would
have done to the second one, and what the first one met is the truth.
"""

import asyncio
import threading
import time
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.harness.kafka import KafkaCluster
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Address
from tests.integration.analyzed import Analyzed
from tests.integration.request_loads import Storm, metadata
from tests.integration.test_connection_rates import Attempts
from tests.integration.test_mutations import OLD_CREATE, storm
from tests.integration.test_mutations import Storm as Topics

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(600)]

LIMITED, FREE = "127.0.5.3", "127.0.5.4"
PER_S: Final = 2
ATTEMPTS: Final = 40
SHORT_S: Final = 6.0
LONG_S: Final = 30.0
BURST_SAMPLES: Final = 3
QUOTAS: Final = f"""\
quotas:
  - {{entity: {{ip: "{LIMITED}"}}, connection_creation_rate: {PER_S}}}
  - {{entity: {{client-id: topics-limited}}, controller_mutation_rate: 1}}
  - {{entity: {{client-id: topics-free}}, controller_mutation_rate: 1000000}}
  - {{entity: {{client-id: busy-limited}}, request_percentage: 1}}
"""
PROPOSED: Final = f"""\
quotas:
  - {{entity: {{ip: "{FREE}"}}, connection_creation_rate: {PER_S}}}
  - {{entity: {{client-id: topics-free}}, controller_mutation_rate: 1}}
"""


@dataclass(slots=True)
class Truth:
    """What clients saw."""

    limited: Attempts
    free: Attempts
    topics_limited: Topics
    topics_free: Topics
    busy: Storm
    seconds: float


@dataclass(slots=True)
class Found:
    truth: Truth
    rules: dict[tuple[str, str | None], dict[str, Any]]
    """Of the report, by kind and rule."""
    units: dict[tuple[str, str], dict[str, Any]]
    """Of what-if, by kind and address or client-id."""
    tail_s: float
    """For how long the recording goes on after who created topics without a limit."""


async def connect(address: Address) -> tuple[Attempts, Attempts]:
    limited, free = Attempts(), Attempts()
    both = [each.make(address, ip) for each, ip in ((limited, LIMITED), (free, FREE)) for _ in range(ATTEMPTS)]
    await asyncio.gather(*both)
    return limited, free


def use(sluice: SluiceProcess, node_id: int, seconds: float) -> Truth:
    address = sluice.broker_addresses[node_id]
    begin_s = time.monotonic()
    limited, free = asyncio.run(connect(address))
    busy = Storm(address, metadata("busy-limited"))
    threads = busy.start(seconds)
    found: dict[str, Topics] = {}

    def create(client_id: str) -> None:
        found[client_id] = storm(address, client_id, OLD_CREATE, seconds)

    threads += [threading.Thread(target=create, args=(f"topics-{name}",), daemon=True) for name in ("limited", "free")]
    for thread in threads[-2:]:
        thread.start()
    for thread in threads:
        thread.join()
    assert not busy.errors
    return Truth(limited, free, found["topics-limited"], found["topics-free"], busy, time.monotonic() - begin_s)


@pytest.fixture(
    scope="module",
    params=[SHORT_S, pytest.param(LONG_S, marks=pytest.mark.matrix)],
    ids=["short", "long"],
)
def found(request: pytest.FixtureRequest, cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder = tmp_path_factory.mktemp("kinds")
    usage = {"files": {"directory": str(folder / "usage")}, "interval": "1s"}
    settings = {"usage": usage, "quotas": {"controller_window": {"samples": BURST_SAMPLES, "size": "1s"}}}
    with SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=QUOTAS, settings=settings) as sluice:
        truth = use(sluice, cluster.node_ids[0], request.param)
        assert sluice.stop() == 0
    analyzed = Analyzed.of_files(folder / "usage", folder)
    rules = {(each["kind"], each["rule"]): each for each in analyzed.report("rules") if not each["exempt"]}
    units = {(each["kind"], each["ip"] or each["client_id"]): each for each in analyzed.units(PROPOSED)}
    return Found(truth, rules, units, analyzed.tail_s("topics-free"))


def test_connections_are_those_that_clients_counted(found: Found) -> None:
    truth, rule = found.truth, found.rules["connection", f"ip={LIMITED}"]
    assert (rule["used"], rule["throttled"]) == (ATTEMPTS, truth.limited.refused)
    assert truth.limited.refused > 0
    assert truth.free.refused == 0


def test_connections_would_be_refused_as_they_were(found: Found) -> None:
    """Both came at the same time; when within its second each did, what-if does not know."""
    unit = found.units["connection_creation_rate", FREE]
    assert (unit["verdict"], unit["answer"], unit["recorded_bytes"]) == ("yes", "exact", ATTEMPTS)
    assert unit["recorded_bytes"] - unit["sent_bytes"] == pytest.approx(found.truth.limited.refused, abs=2 * PER_S)


def test_partitions_are_those_that_were_created(found: Found) -> None:
    limited = found.rules["mutation", "client-id=topics-limited"]
    assert limited["used"] == found.truth.topics_limited.accepted
    assert limited["muted_ms"] > 0
    free = found.rules["mutation", "client-id=topics-free"]
    assert (free["used"], free["muted_ms"]) == (found.truth.topics_free.accepted, 0)


def test_partitions_would_be_carried_out_as_they_were(found: Found) -> None:
    """One a second, after a burst of three; what still waits then goes on until the recording ends.

    An interval of a second has 20 parts, and the last one goes whole.
    """
    unit = found.units["controller_mutation_rate", "topics-free"]
    accepted = found.truth.topics_limited.accepted
    assert (unit["answer"], unit["recorded_bytes"]) == ("exact", found.truth.topics_free.accepted)
    if unit["recorded_bytes"] > 2 * accepted:  # or else this machine was too slow for the limit to matter
        assert unit["verdict"] == "yes"
        part = unit["recorded_bytes"] / found.truth.seconds / 10
        assert unit["sent_bytes"] - found.tail_s == pytest.approx(accepted, abs=3 + part)


def test_request_time_is_held_as_clients_were_told(found: Found) -> None:
    told_ms = sum(told for _, told in found.truth.busy.told)
    rule = found.rules["request", "client-id=busy-limited"]
    assert told_ms > 0
    assert 0 < rule["muted_ms"] <= found.truth.seconds * 1000 + 2000
    # What waits before it is sent is not told; what is told is recorded, but for the last one, cut off by the stop.
    assert rule["throttle_ms"] + 1500 >= told_ms
