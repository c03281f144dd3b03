"""The whole program with little memory, before greedy clients: it stays below its ceiling, and others are served."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from struct import pack

import psutil
import pytest

from tests.harness.fake_broker import fake_broker, frame
from tests.harness.polling import until
from tests.harness.ports import free_port
from tests.proxy.front import TIMEOUT_S, client
from tests.proxy.playbook import list_offsets, produce, request
from tests.proxy.test_supervisor import CONFIG
from tests.proxy.workers.test_workers import SLUICE, asked

# Alone: on a busy machine more comes in between two looks.
pytestmark = [pytest.mark.asyncio, pytest.mark.slow, pytest.mark.integration, pytest.mark.alone]

OWED_BYTES = 2**20
GREEDY = 3
"""The correlation id whose answer is large."""
READERS = 400
"""Each holds 100 to 250 KiB of the proxy's memory."""
AT_ONCE = 10
"""All that comes in one turn of the loop is in memory before anybody looks."""
WRITERS = 50
NEVER_WHOLE = (
    request(19, 4, 1, bytes(2**20))[: 2**16],
    produce(1, 2**20)[: 2**19],
    pack(">i", 100 * 2**20) + list_offsets(1)[4:],
)
"""The first bytes of requests: half a CreateTopics, half a Produce, and one that is said to have 100 MiB."""


@asynccontextmanager
async def little_memory(folder: Path) -> AsyncIterator[tuple[int, int, int, psutil.Process]]:
    """Run a proxy; yield its ports of a broker and for admin, its ceiling and its process."""
    large = frame(pack(">i", GREEDY) + bytes(OWED_BYTES))
    base_mib = 0
    async with fake_broker() as broker:
        plain = broker.otherwise
        broker.otherwise = lambda asking: large if asking[4:8] == large[4:8] else plain(asking)
        for _ in range(2):  # the first time to see what it takes without clients
            bind, port, admin = (free_port() for _ in range(3))
            text = CONFIG.format(broker=broker.port, bind=bind, port=port, admin=admin, mode="enforce", more="")
            ceiling_mib = base_mib + base_mib // 2 or 4096
            text += f"limits: {{memory: {ceiling_mib}MiB, socket_send_buffer: 16KiB}}\n"
            (folder / "sluice.yaml").write_text(text)
            (folder / "quotas.yaml").write_text("quotas: []\n")
            with (folder / "log").open("w") as log:
                arguments = (SLUICE, "run", "-c", str(folder / "sluice.yaml"))
                running = await asyncio.create_subprocess_exec(*arguments, stderr=log)
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await until(lambda: ready(admin))  # noqa: B023  awaited here
                async with client(port) as first:
                    await first.ask(list_offsets(1))
                process = psutil.Process(running.pid)
                if base_mib:
                    yield port, admin, ceiling_mib << 20, process
                base_mib = process.memory_info().rss >> 20
            finally:
                running.terminate()
                await running.wait()


async def ready(admin: int) -> bool:
    with suppress(OSError):
        return (await asyncio.to_thread(asked, admin, "/readyz")).startswith("ready")
    return False


def peak_bytes(process: psutil.Process) -> int:
    """Return the largest resident set that it has had."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


async def connect_greedily(port: int, number: int, first: bytes) -> list[socket.socket]:
    """Connect so often, and send ``first``; nothing is ever read."""
    loop, connections = asyncio.get_running_loop(), []
    for _ in range(number):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        connections.append(connection)
        await loop.sock_connect(connection, ("127.0.0.1", port))
        await loop.sock_sendall(connection, first)
    return connections


async def test_greedy_clients_do_not_take_it_above_its_ceiling_and_others_are_served(tmp_path: Path) -> None:
    async with little_memory(tmp_path) as (port, admin, ceiling, process), client(port) as healthy:
        greedy = []
        for first in NEVER_WHOLE:
            greedy += await connect_greedily(port, WRITERS, first)
            await healthy.ask(list_offsets(1))
        slow = await connect_greedily(port, READERS, list_offsets(1))
        for number, each in enumerate(slow):
            each.send(list_offsets(GREEDY))
            if number % AT_ONCE == 0:
                await healthy.ask(list_offsets(1))
        await until(lambda: asked_for(admin, "sluice_frames_rejected_total", 'cause="memory"'))
        for number in range(100):
            await healthy.ask(list_offsets(10 + number))
        assert "memory is short: new connections are refused" in (tmp_path / "log").read_text()
        assert peak_bytes(process) < 1.05 * ceiling
        for each in (*greedy, *slow):
            each.close()
        await until(lambda: ready(admin))
        async with client(port) as newcomer:
            await newcomer.ask(list_offsets(1))


async def asked_for(admin: int, series: str, labels: str) -> float:
    """Return the value of a series; 0 where it is not there."""
    lines = (await asyncio.to_thread(asked, admin, "/metrics")).splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(series) and labels in line)
