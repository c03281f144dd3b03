"""Which client waits by itself for as long as throttle_time_ms says: seen from between it and the proxy.

The proxy does not read a connection that is muted, so nothing depends on the client; but whoever sends on fills the
kernel's buffers, and the timer of a request runs from when it was sent.
"""

import asyncio
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pytest

from tests.harness.clients.kinds import KINDS, ClientKind
from tests.harness.clients.tasks import Consume, Produce, Task
from tests.harness.kafka import KafkaCluster
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Address
from tests.integration.conftest import NODE_IDS, fresh_name
from tests.integration.filled import filled_topic

BETWEEN: Final = "127.0.0.4"
"""What clients are told, on the proxy's own ports."""
LIMIT_BYTES_PER_S: Final = 40_000
WINDOW: Final = {"quotas": {"window": {"samples": 3, "size": "1s"}}}
DURATION_S: Final = 30.0
FETCH_BYTES: Final = 60_000
RECORD_BYTES: Final = 4_000
BATCH_BYTES: Final = 16_384
FILL_BYTES: Final = 6_000_000
PRODUCE, FETCH = 0, 1
SHORTEST_MS: Final = 100
"""Of a throttle that is told apart from a client that takes its time."""
WAITED: Final = 0.9
WAITS: Final = 0.25
OBEDIENT: Final[Mapping[str, tuple[bool, bool]]] = {
    "kafka-python": (True, True),
    "aiokafka": (False, False),
    "confluent-kafka": (False, False),
    "java-1.1.1": (False, False),
    "java-2.3.1": (True, True),
    "java-3.9.2": (True, True),
    "java-4.4.0": (True, True),
}
"""Whether each waits as told: a producer, a consumer. docs/clients.md."""


@dataclass(slots=True)
class Told:
    """One throttle, and how long after it the client sent the next request of that kind on the connection."""

    throttle_ms: int
    gap_ms: float


@dataclass(slots=True)
class Conversation:
    """One connection, read along."""

    told: dict[str, list[Told]]
    client_id: str = ""
    versions: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Of requests that are not answered yet, by correlation id: API and version."""
    last: dict[int, tuple[float, int]] = field(default_factory=dict)
    """Of each API, when an answer told of a throttle, and of which; until the next request."""

    def request(self, frame: bytes) -> None:
        api, version, correlation_id, length = struct.unpack_from(">hhih", frame)
        self.client_id = frame[10 : 10 + max(length, 0)].decode()
        self.versions[correlation_id] = (api, version)
        if api in self.last:
            at_s, throttle_ms = self.last.pop(api)
            gap_ms = (time.monotonic() - at_s) * 1000
            self.told.setdefault(self.client_id, []).append(Told(throttle_ms, gap_ms))

    def response(self, frame: bytes) -> None:
        (correlation_id,) = struct.unpack_from(">i", frame)
        api, version = self.versions.pop(correlation_id, (-1, 0))
        if api == FETCH:
            (throttle_ms,) = struct.unpack_from(">i", frame, 5 if version >= 12 else 4)
        elif api == PRODUCE:
            (throttle_ms,) = struct.unpack_from(">i", frame, len(frame) - (5 if version >= 9 else 4))
        else:
            return
        now_s = time.monotonic()
        before_s, before_ms = self.last.get(api, (0.0, 0))
        if throttle_ms >= SHORTEST_MS and now_s + throttle_ms / 1000 >= before_s + before_ms / 1000:
            self.last[api] = (now_s, throttle_ms)  # of several in flight, the one that ends last


async def relay(
    given: asyncio.StreamReader, taken: asyncio.StreamWriter, *, to: Address, told: dict[str, list[Told]]
) -> None:
    """Pass on each frame, both ways, until one side has had enough."""
    talk = Conversation(told)
    from_proxy, to_proxy = await asyncio.open_connection(to.host, to.port)

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_request: bool) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                size = await reader.readexactly(4)
                frame = await reader.readexactly(struct.unpack(">i", size)[0])
                (talk.request if is_request else talk.response)(frame)
                writer.write(size + frame)  # without waiting until it is taken: what comes when is what is looked at
        writer.close()

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(pass_on(given, to_proxy, is_request=True))
            group.create_task(pass_on(from_proxy, taken, is_request=False))
    finally:
        for writer in (to_proxy, taken):
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


@contextmanager
def between(places: list[Address]) -> Iterator[dict[str, list[Told]]]:
    """What clients were told and did, by client-id, while the block runs."""
    told: dict[str, list[Told]] = {}
    listening, over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            for place in places:
                server = asyncio.start_server(partial(relay, to=place, told=told), BETWEEN, place.port)
                await stack.enter_async_context(await server)
            listening.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert listening.wait(10.0), "nothing listens"
    try:
        yield told
    finally:
        over.set()
        thread.join()


@pytest.mark.matrix
@pytest.mark.timeout(300)
def test_client_libraries_wait_for_throttle_time_as_listed(cluster: KafkaCluster) -> None:
    quotas = "quotas:\n" + "".join(
        f"  - {{entity: {{client-id: {work}-{kind.name}}}, {quota}: {LIMIT_BYTES_PER_S}}}\n"
        for kind in KINDS
        for work, quota in (("produce", "producer_byte_rate"), ("consume", "consumer_byte_rate"))
    )
    filled = filled_topic(cluster, NODE_IDS[0], FILL_BYTES, batch_bytes=BATCH_BYTES)
    proxy = SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=quotas, settings=WINDOW, advertise=BETWEEN)
    with (
        proxy as sluice,
        between([sluice.address, *sluice.broker_addresses.values()]) as told,
        ExitStack() as stack,
    ):
        bootstrap = str(Address(BETWEEN, sluice.address.port))
        clients = [
            stack.enter_context(kind.run(task)) for kind in KINDS for task in _tasks(cluster, kind, bootstrap, filled)
        ]
        time.sleep(DURATION_S)
        for client in clients:
            client.close()
    found = {kind.name: tuple(_waits(told, f"{work}-{kind.name}") for work in ("produce", "consume")) for kind in KINDS}
    assert found == OBEDIENT


def _waits(told: Mapping[str, list[Told]], client_id: str) -> bool:
    """Whether it waits: a producer that has several requests in flight may have sent another one when it is told."""
    each = told.get(client_id, [])
    waited = sum(one.gap_ms >= WAITED * one.throttle_ms for one in each)
    print(f"{client_id}: waited for {waited} of {len(each)} throttles of {SHORTEST_MS} ms and more")
    assert each, f"{client_id} was told of no throttle"
    return waited >= WAITS * len(each)


def _tasks(cluster: KafkaCluster, kind: ClientKind, bootstrap: str, filled: str) -> list[Task]:
    topic = fresh_name("obeyed")
    cluster.create_topic(topic, leader=NODE_IDS[0])
    return [
        Produce(
            bootstrap=bootstrap,
            client_id=f"produce-{kind.name}",
            topic=topic,
            duration_s=10 * DURATION_S,
            record_bytes=RECORD_BYTES,
            batch_bytes=BATCH_BYTES,
            niceness=10,
        ),
        Consume(
            bootstrap=bootstrap,
            client_id=f"consume-{kind.name}",
            topic=filled,
            duration_s=10 * DURATION_S,
            partition_fetch_bytes=FETCH_BYTES,
        ),
    ]
