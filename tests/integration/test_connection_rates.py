"""Connection rates beside a broker that has the same ones, and storms that nobody else must notice."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest

from tests.harness.admin import Entity
from tests.harness.broker import BrokerListener
from tests.harness.kafka import KafkaCluster
from tests.harness.sluice import SluiceProcess
from tests.harness.storm import Storm
from tests.harness.wire import API_VERSIONS, Address, Connection, frame

pytestmark = [pytest.mark.slow, pytest.mark.integration]

SAMPLES = 6
LIMIT_PER_S = 10
BURST = LIMIT_PER_S * (SAMPLES - 1)
TOLERANCE = 0.05
DURATION_S = 24.0
"""Four windows."""
PER_S = 40
AT_ONCE = 30
BY_NAME, BY_DEFAULT = "127.0.5.1", "127.0.5.2"
RATED = "RATED"
REQUEST = frame(API_VERSIONS, 0, 1, "rated", b"")
WINDOW = {"quotas": {"window": {"samples": SAMPLES, "size": "1s"}}}
QUOTAS = f"""\
quotas:
  - {{entity: {{ip: "{BY_NAME}"}}, connection_creation_rate: {LIMIT_PER_S}}}
"""
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def rated() -> Iterator[KafkaCluster]:
    """A broker with a listener that takes so many connections a second, and a quota for an address."""
    listener = BrokerListener(RATED, "PLAINTEXT", {"max.connection.creation.rate": str(LIMIT_PER_S)})
    with KafkaCluster(properties={"quota.window.num": str(SAMPLES)}, listeners=[listener]) as cluster:
        cluster.set_quota(Entity(ip=BY_NAME), connection_creation_rate=LIMIT_PER_S)
        yield cluster


@pytest.fixture(scope="module")
def sluice(rated: KafkaCluster) -> Iterator[SluiceProcess]:
    listeners = {RATED: {"limits": {"connection_rate": LIMIT_PER_S}}}
    with SluiceProcess(rated.bootstrap, rated.node_ids, quotas=QUOTAS, settings=WINDOW, listeners=listeners) as running:
        yield running


@dataclass(slots=True)
class Attempts:
    """What became of connections, each with one request."""

    served: int = 0
    refused: int = 0

    async def make(self, address: Address, source: str) -> None:
        connecting = asyncio.open_connection(address.host, address.port, local_addr=(source, 0))
        reader, writer = await asyncio.wait_for(connecting, TIMEOUT_S)
        writer.write(REQUEST)
        answered = b""
        with suppress(ConnectionError):
            answered = await asyncio.wait_for(reader.read(4), TIMEOUT_S)
        self.served += bool(answered)
        self.refused += not answered
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def steadily(address: Address, source: str) -> Attempts:
    """So many a second, whatever becomes of them."""
    attempts, begin_s = Attempts(), time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(int(DURATION_S * PER_S)):
            await asyncio.sleep(max(0.0, begin_s + number / PER_S - time.monotonic()))
            group.create_task(attempts.make(address, source))
    return attempts


async def as_many_as_are_taken(address: Address, source: str) -> Attempts:
    """So many at once, each followed by the next as soon as it was served."""
    attempts, end_s = Attempts(), time.monotonic() + DURATION_S

    async def one_after_the_other() -> None:
        while time.monotonic() < end_s:
            await attempts.make(address, source)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(one_after_the_other())
    return attempts


@dataclass(frozen=True, slots=True)
class Both:
    """What became of the same attempts at the broker and through the proxy."""

    own: Attempts
    proxied: Attempts


@dataclass(frozen=True, slots=True)
class Scene:
    by_address: Both
    by_listener: Both


@pytest.fixture(scope="module")
def scene(rated: KafkaCluster, sluice: SluiceProcess) -> Scene:
    """All at the same time."""

    async def run() -> Scene:
        own, proxied = rated.nodes[0].endpoints[RATED].direct, sluice.listeners[RATED].brokers[0]
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(steadily(rated.direct(0), BY_NAME)),
                group.create_task(steadily(sluice.broker_addresses[0], BY_NAME)),
                group.create_task(as_many_as_are_taken(own, BY_DEFAULT)),
                group.create_task(as_many_as_are_taken(proxied, BY_DEFAULT)),
            ]
        first, second, third, fourth = (task.result() for task in tasks)
        return Scene(Both(first, second), Both(third, fourth))

    return asyncio.run(run())


@pytest.mark.timeout(240)
def test_an_address_is_served_as_often_as_by_a_broker_with_the_same_quota(scene: Scene, sluice: SluiceProcess) -> None:
    own, proxied = scene.by_address.own, scene.by_address.proxied
    assert proxied.served == pytest.approx(own.served, rel=TOLERANCE)
    assert proxied.refused == pytest.approx(own.refused, rel=TOLERANCE)
    assert own.served < BURST + (DURATION_S + 1) * LIMIT_PER_S, "the load is more than the quota"
    metrics = sluice.metrics()
    cause = {"side": "client", "cause": "connection_rate_per_ip"}
    assert metrics.value("sluice_frames_rejected_total", **cause) == proxied.refused
    assert metrics.value("sluice_ip_accept_throttles_total", listener="PLAIN") == proxied.refused


@pytest.mark.timeout(240)
def test_a_listener_takes_as_many_as_a_broker_with_the_same_limit(scene: Scene, sluice: SluiceProcess) -> None:
    own, proxied = scene.by_listener.own, scene.by_listener.proxied
    assert (own.refused, proxied.refused) == (0, 0)
    # A run ends within a wait or just behind one: more than a second's worth of what may differ is said by that.
    assert proxied.served == pytest.approx(own.served, rel=2 * TOLERANCE)
    assert sluice.metrics().value("sluice_accept_throttles_total", listener=RATED) > 0


@dataclass(frozen=True, slots=True)
class Weather:
    """A storm, and what is left of a quota under it."""

    per_s: int
    duration_s: float
    sources: int


SHORT = Weather(1000, 3.0, 500)
LONG = Weather(5000, 20.0, 100)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("weather", [SHORT, pytest.param(LONG, marks=pytest.mark.matrix)], ids=["short", "long"])
@pytest.mark.parametrize("limit", ["by address", "of the listener"])
def test_connected_clients_are_answered_during_connection_storm(
    rated: KafkaCluster, weather: Weather, limit: str
) -> None:
    """Sessions are answered all the time, and at another listener newcomers too; afterwards all is as before."""
    quotas = "quotas: []"
    if limit == "by address":
        quotas = "quotas: [{entity: {ip: {default: true}}, connection_creation_rate: 1}]"
    stormy = {"limits": {"connection_rate": 100}} if limit == "of the listener" else {}
    with SluiceProcess(
        rated.bootstrap, rated.node_ids, quotas=quotas, settings=WINDOW, listeners={"STORMY": stormy}
    ) as sluice:
        target = sluice.listeners["STORMY"].address
        with (
            Connection(target, TIMEOUT_S) as there,
            Storm(target, weather.per_s, weather.duration_s, weather.sources) as storm,
        ):
            there.exchange(REQUEST)
            answered = newcomers = 0
            while storm.goes_on:
                there.exchange(REQUEST)
                answered += 1
                if answered % 50 == 1 and newcomers < SAMPLES - 2:
                    with Connection(sluice.broker_addresses[0], TIMEOUT_S) as newcomer:
                        newcomer.exchange(REQUEST)
                    newcomers += 1
            storm.wait()
            assert answered > newcomers > 0
            metrics = sluice.metrics()
            accepted = metrics.value("sluice_connections_total", listener="STORMY", outcome="accepted")
            held = metrics.value("sluice_delay_queue_size", kind="connection_creation_rate")
            assert held <= 1000
            if limit == "by address":
                # of each address the burst, and one a second
                assert accepted <= weather.sources * (SAMPLES + weather.duration_s)
            else:
                assert accepted <= 100 * (SAMPLES + weather.duration_s + 1)
            assert storm.begun >= weather.per_s * weather.duration_s / 2, "a storm, and no breeze"
            there.exchange(REQUEST)
        assert metrics.value("sluice_internal_errors_total") == 0
