"""The program stops in bounded time whatever is configured, and no usage is lost on the way."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.harness.fake_broker import FakeBroker, fake_broker
from tests.harness.ports import free_port
from tests.proxy.front import TIMEOUT_S, Client, client
from tests.proxy.playbook import list_offsets, produce
from tests.proxy.test_supervisor import CONFIG, Running, running

pytestmark = [pytest.mark.asyncio, pytest.mark.long]

STATE = CONFIG.replace("refresh: 50ms", "refresh: 50ms, state: state/brokers.json")
FILES = "usage: {interval: 1h, files: {directory: usage, rotate_after: 1h}}\n"
TOPIC = "usage: {interval: 1h, topic: {name: usage}}\n"
OWNERS = 'owners: {instance: here, fixed: {here: "1-2"}}\n'
HIGH = "quotas:\n  - {entity: {client-id: app}, producer_byte_rate: 1GiB}\n"
CLUSTER_SCOPE = HIGH.replace("1GiB", "1GiB, scope: cluster")
CASES = {
    "plain": (CONFIG, "", HIGH),
    "state-file": (STATE, "", HIGH),
    "usage-files": (CONFIG, FILES, HIGH),
    "usage-topic": (CONFIG, TOPIC, HIGH),
    "owners": (CONFIG, OWNERS, HIGH),
    "cluster-scope": (CONFIG, "", CLUSTER_SCOPE),
    "all-with-files": (STATE, FILES + OWNERS, CLUSTER_SCOPE),
    "all-with-topic": (STATE, TOPIC + OWNERS, CLUSTER_SCOPE),
}


@asynccontextmanager
async def program_of(
    folder: Path, workers: int, case: str, one: FakeBroker, two: FakeBroker
) -> AsyncIterator[tuple[Running, list[Client]]]:
    """Run with a connection to each broker, over which it has answered."""
    one.brokers = two.brokers = {1: ("127.0.0.1", one.port), 2: ("127.0.0.1", two.port)}
    config, sections, quotas = CASES[case]
    second = free_port()
    text = config.replace('{{"1": "{port}"}}', f'{{{{"1": "{{port}}", "2": "{second}"}}}}')
    async with AsyncExitStack() as stack:
        program = await stack.enter_async_context(
            running(folder, one, sections=f"workers: {workers}\n{sections}", text=text)
        )
        program.quotas.write_text(quotas)
        await program.until("/readyz", "ready")
        clients = [await stack.enter_async_context(client(port)) for port in (program.port, second)]
        for each in clients:
            await each.ask(list_offsets(1))
        yield program, clients


async def produce_until_closed(asking: Client) -> int:
    """Return how many requests were answered."""
    answered = 0
    try:
        while True:
            await asking.ask(produce(answered, 600))
            answered += 1
    except (asyncio.IncompleteReadError, ConnectionError):
        return answered


def forwarded_bytes(*brokers: FakeBroker) -> int:
    """Return the bytes of clients' requests that have reached the brokers."""
    return sum(4 + len(frame) for each in brokers for frame in each.requests if frame[:2] in (b"\0\0", b"\0\2"))


def recorded_bytes(folder: Path) -> int:
    lines = [line for file in (folder / "usage").iterdir() for line in file.read_bytes().splitlines()]
    return sum(sum(json.loads(line)["rows"]["bytes_in"]) for line in lines)


@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "busy"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("workers", [1, 2])
async def test_stop_ends_in_time_and_every_byte_is_in_the_records(
    tmp_path: Path, workers: int, case: str, is_busy: bool
) -> None:
    async with fake_broker() as one, fake_broker() as two:
        with capture_logs() as logs:
            async with program_of(tmp_path, workers, case, one, two) as (program, clients):
                producing = [asyncio.ensure_future(produce_until_closed(each)) for each in clients if is_busy]
                async with asyncio.timeout(TIMEOUT_S):
                    while is_busy and min(map(forwarded_bytes, (one, two))) < 20 * 600:
                        await asyncio.sleep(0.01)
                program.stop()
                async with asyncio.timeout(TIMEOUT_S):
                    assert await program.task == 0
                    answered = sum(await asyncio.gather(*producing))
        assert (answered > 20) is is_busy
        sent = forwarded_bytes(one, two)
    events = [line["event"] for line in logs]
    assert "internal error" not in events
    if "files" in case:
        assert recorded_bytes(tmp_path) == sent
    if "topic" in case:  # the stand-in has none: what cannot be shipped is counted
        (lost,) = [line for line in logs if line["event"] == "usage records lost at shutdown"]
        assert lost["rows"] >= 2
    if case == "state-file":
        (route,) = json.loads((tmp_path / "state" / "brokers.json").read_text())["routes"]
        assert [each["node_id"] for each in route["brokers"]] == [1, 2]


async def test_two_workers_with_a_state_file_and_no_broker_end_at_sigterm(tmp_path: Path) -> None:
    async with running(tmp_path, None, sections="workers: 2\n", text=STATE) as program:
        await program.until("/readyz", "cluster test")
        program.stop()
        async with asyncio.timeout(TIMEOUT_S):
            assert await program.task == 0
