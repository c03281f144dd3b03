"""The analysis tells the truth about the other kinds: what clients counted for themselves, beside the report.

Of each kind there is a client with a limit and one that does the same without.
"""

import asyncio
import threading
import time
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.harness.kafka import KafkaCluster
from tests.harness.load import Load, produce_request
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Address
from tests.integration.analyzed import Analyzed
from tests.integration.conftest import fresh_name
from tests.integration.paced import Client, run_paced
from tests.integration.request_loads import Storm, metadata
from tests.integration.test_connection_rates import Attempts
from tests.integration.test_mutations import OLD_CREATE, storm
from tests.integration.test_mutations import Storm as Topics

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(1200)]

LIMITED, FREE = "127.0.5.3", "127.0.5.4"
PER_S: Final = 2
ATTEMPTS: Final = 40
SHORT_S: Final = 6.0
LONG_S: Final = 30.0
BURST_SAMPLES: Final = 3
REQUEST_BYTES: Final = 2_000
CAP: Final = 30_000
ALICES: Final = 12_000
"""Of the tenant's, whose other client has no quota of its own."""
WANTED: Final = {"alice": 60_000, "bob": 40_000}
QUOTAS: Final = f"""\
caps:
  - {{entity: {{client-id: {{prefix: held-}}}}, producer_byte_rate: {CAP}}}
quotas:
  - {{entity: {{client-id: held-alice}}, producer_byte_rate: {ALICES}}}
  - {{entity: {{ip: "{LIMITED}"}}, connection_creation_rate: {PER_S}}}
  - {{entity: {{client-id: topics-limited}}, controller_mutation_rate: 1}}
  - {{entity: {{client-id: topics-free}}, controller_mutation_rate: 1000000}}
  - {{entity: {{client-id: busy-limited}}, request_percentage: 0.2}}
"""


@dataclass(slots=True)
class Truth:
    """What clients saw."""

    limited: Attempts
    free: Attempts
    topics_limited: Topics
    topics_free: Topics
    busy: Storm
    tenants: dict[str, tuple[Client, Load]]
    """By client-id."""
    seconds: float


@dataclass(slots=True)
class Found:
    truth: Truth
    rules: dict[tuple[str, str | None], dict[str, Any]]
    """Of the report, by kind and rule."""
    muted_s: dict[str, float]
    """Of the tenants, by client-id: for how long each was held."""


async def connect(address: Address) -> tuple[Attempts, Attempts]:
    limited, free = Attempts(), Attempts()
    both = [each.make(address, ip) for each, ip in ((limited, LIMITED), (free, FREE)) for _ in range(ATTEMPTS)]
    await asyncio.gather(*both)
    return limited, free


def tenants(topic: str, node_id: int, seconds: float) -> list[Client]:
    """Return two tenants of two clients each, who want the same."""
    found = []
    for tenant in ("held", "free"):
        for name, wanted in WANTED.items():
            request = produce_request(topic, f"{tenant}-{name}", REQUEST_BYTES)
            demand = (float(wanted),) * int(seconds)
            found.append(Client(f"{tenant}-{name}", node_id, request, len(request) - 4, 2, demand))
    return found


def use(sluice: SluiceProcess, node_id: int, seconds: float, topic: str) -> Truth:
    address = sluice.broker_addresses[node_id]
    begin_s = time.monotonic()
    limited, free = asyncio.run(connect(address))
    busy = Storm(address, metadata("busy-limited"))
    threads = busy.start(seconds)
    found: dict[str, Topics] = {}

    def create(client_id: str) -> None:
        found[client_id] = storm(address, client_id, OLD_CREATE, seconds)

    wanting = tenants(topic, node_id, seconds)
    tenants_s = time.time() + 1
    sent: list[Load] = []

    def want() -> None:
        sent.extend(run_paced(wanting, sluice.broker_addresses, tenants_s, seconds))

    threads += [threading.Thread(target=want, daemon=True)]
    threads[-1].start()
    threads += [threading.Thread(target=create, args=(f"topics-{name}",), daemon=True) for name in ("limited", "free")]
    for thread in threads[-2:]:
        thread.start()
    for thread in threads:
        thread.join()
    assert not busy.errors
    took_s = time.monotonic() - begin_s
    by_name = {client.client_id: (client, load) for client, load in zip(wanting, sent, strict=True)}
    return Truth(limited, free, found["topics-limited"], found["topics-free"], busy, by_name, took_s)


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
        topic = fresh_name("tenants")
        cluster.create_topic(topic, leader=cluster.node_ids[0])
        truth = use(sluice, cluster.node_ids[0], request.param, topic)
        assert sluice.stop() == 0
    analyzed = Analyzed.of_files(folder / "usage", folder)
    rules = {(each["kind"], each["rule"]): each for each in analyzed.report("rules") if not each["exempt"]}
    muted_s = {client_id: analyzed.muted_s(client_id) for client_id in truth.tenants}
    return Found(truth, rules, muted_s)


def test_connections_are_those_that_clients_counted(found: Found) -> None:
    truth, rule = found.truth, found.rules["connection", f"ip={LIMITED}"]
    assert (rule["used"], rule["throttled"]) == (ATTEMPTS, truth.limited.refused)
    assert truth.limited.refused > 0
    assert truth.free.refused == 0


def test_partitions_are_those_that_were_created(found: Found) -> None:
    limited = found.rules["mutation", "client-id=topics-limited"]
    assert limited["used"] == found.truth.topics_limited.accepted
    assert limited["muted_ms"] > 0
    free = found.rules["mutation", "client-id=topics-free"]
    assert (free["used"], free["muted_ms"]) == (found.truth.topics_free.accepted, 0)


def test_request_time_is_held_as_clients_were_told(found: Found) -> None:
    told_ms = sum(told for _, told in found.truth.busy.told)
    rule = found.rules["request", "client-id=busy-limited"]
    assert told_ms > 0
    assert 0 < rule["muted_ms"] <= found.truth.seconds * 1000 + 2000
    # What waits before it is sent is not told; what is told is recorded, but for the last one, cut off by the stop.
    assert rule["throttle_ms"] + 1500 >= told_ms


def test_a_cap_has_the_sum_of_its_tenant_and_what_it_held(found: Found) -> None:
    """Each byte of the wire, whichever of its clients sent it; and what alice's quota did is not the cap's."""
    cap, quota = found.rules["produce", "cap client-id-prefix=held-"], found.rules["produce", "client-id=held-alice"]
    sent = {name: _sent(load) for name, (_, load) in found.truth.tenants.items()}
    assert cap["used"] == sent["held-alice"] + sent["held-bob"]
    assert quota["used"] == sent["held-alice"]
    assert (cap["least_limit"], cap["most_limit"], quota["most_limit"]) == (CAP, CAP, ALICES)
    assert cap["muted_ms"] > 0
    muted_ms = (found.muted_s["held-alice"] + found.muted_s["held-bob"]) * 1000
    assert cap["muted_ms"] + quota["muted_ms"] == pytest.approx(muted_ms, abs=2), "each millisecond is told of one"
    assert found.muted_s["free-alice"] == found.muted_s["free-bob"] == 0


def _sent(load: Load) -> int:
    return sum(answer.charged_bytes for answers in load.connections for answer in answers)
