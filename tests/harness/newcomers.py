"""Short-lived clients, as many a second as one asks for: each bootstraps, finds a partition's leader and asks it.

A program of its own (``python -m tests.harness.newcomers BOOTSTRAP,… TOPIC,… PER_S SECONDS``): it takes CPU, and does
not wait for others. A client has all bootstrap addresses, in any order. It goes on to the next one when one
is refused, and may begin again once for anything else.
"""

import asyncio
import json
import random
import struct
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Self

from proxy.runtime.clock import monotonic_s
from tests.harness.wire import Address, frame

ANSWER_S: Final = 15.0
METADATA: Final = 3
LIST_OFFSETS: Final = 2
REFUSED: Final = "bootstrap: ConnectionRefusedError"
"""An instance that is down: a client goes to the next one of its list."""


@dataclass(frozen=True, slots=True)
class Happened:
    """What became of all clients."""

    clients: int
    errors: dict[str, int]
    """How many, by step and error; a client has one or none, but for refusals of the bootstrap port."""
    failed: list[str]


class _StepError(Exception):
    """A step of a client did not succeed."""


@dataclass(slots=True)
class Newcomers:
    """Clients from the beginning of the block to its end, as a context manager."""

    bootstrap: str
    topics: str
    per_s: int
    longest_s: float
    happened: Happened = field(init=False)
    """Once it is over."""
    _process: "subprocess.Popen[str]" = field(init=False)

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.harness.newcomers", self.bootstrap, self.topics]
        command += [str(self.per_s), str(self.longest_s)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def finish(self) -> None:
        said, _ = self._process.communicate("", timeout=60)
        self.happened = Happened(**json.loads(said))

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


class _Exchange:
    """A connection of one client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, api_key: int, version: int, body: bytes) -> bytes:
        """Return the body of the answer."""
        self._writer.write(frame(api_key, version, 1, "newcomer", body))
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return (await self._reader.readexactly(size))[4:]

    def close(self) -> None:
        self._writer.close()


async def _asked(step: str, at: Address, api_key: int, version: int, body: bytes) -> bytes:
    """Connect, ask once, close. Raises _StepError."""
    try:
        async with asyncio.timeout(ANSWER_S):
            exchange = _Exchange(*await asyncio.open_connection(at.host, at.port))
            try:
                return await exchange.ask(api_key, version, body)
            finally:
                exchange.close()
    except (OSError, EOFError, TimeoutError) as error:
        raise _StepError(f"{step}: {type(error).__name__}") from error


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


async def _walk(bootstrap: Address, topic: str) -> None:
    """Ask a broker for the leader of partition 0, and the leader for its last offset. Raises _StepError."""
    said = await _asked("bootstrap", bootstrap, METADATA, 1, struct.pack(">i", 1) + _text(topic))
    leader = _leader(said)
    wanted = struct.pack(">ii", -1, 1) + _text(topic) + struct.pack(">iiq", 1, 0, -1)
    answer = await _asked("leader", leader, LIST_OFFSETS, 1, wanted)
    (error_code,) = struct.unpack_from(">h", answer, 4 + 2 + len(topic) + 4 + 4)
    if error_code:
        raise _StepError(f"leader: error {error_code}")


def _leader(metadata: bytes) -> Address:
    """Return the leader of the first partition in Metadata v1. Raises _StepError."""
    brokers: dict[int, Address] = {}
    (count,), position = struct.unpack_from(">i", metadata), 4
    for _ in range(count):
        node_id, size = struct.unpack_from(">ih", metadata, position)
        host = metadata[position + 6 : position + 6 + size].decode()
        port, rack = struct.unpack_from(">ih", metadata, position + 6 + size)
        brokers[node_id] = Address(host, port)
        position += 12 + size + max(rack, 0)
    position += 4  # the controller
    _, topic_error, size = struct.unpack_from(">ihh", metadata, position)
    position += 8 + size + 1
    partitions, partition_error = struct.unpack_from(">ih", metadata, position)
    _, leader = struct.unpack_from(">ii", metadata, position + 6)
    if topic_error or not partitions or partition_error or leader not in brokers:
        raise _StepError(f"metadata: errors {topic_error} and {partition_error}, leader {leader}")
    return brokers[leader]


class _Run:
    def __init__(self, bootstrap: list[Address], topics: list[str]) -> None:
        self._bootstrap, self._topics = bootstrap, topics
        self._clients = 0
        self._errors: Counter[str] = Counter()
        self._failed: list[str] = []

    async def one(self) -> None:
        self._clients += 1
        topic = random.choice(self._topics)
        said: list[str] = []
        for bootstrap in random.sample(self._bootstrap, len(self._bootstrap)) * 2:
            try:
                await _walk(bootstrap, topic)
            except _StepError as error:
                said.append(str(error))
                self._errors[str(error)] += 1
            else:
                return
            if len(said) - said.count(REFUSED) > 1:
                break
        self._failed.append(", then ".join(said))

    async def all(self, per_s: int, longest_s: float) -> Happened:
        """Start clients until the standard input ends."""
        over = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
        running: set[asyncio.Task[None]] = set()
        begin_s = monotonic_s()
        while not over.done() and (elapsed_s := monotonic_s() - begin_s) < longest_s:
            for _ in range(int(elapsed_s * per_s) - self._clients):
                task = asyncio.ensure_future(self.one())
                running.add(task)
                task.add_done_callback(running.discard)
                await asyncio.sleep(0)
            await asyncio.sleep(0.005)
        await asyncio.gather(*running)
        return Happened(self._clients, dict(self._errors), self._failed)


def main(bootstrap: str, topics: str, per_s: str, longest_s: str) -> None:
    run = _Run([Address.parse(each) for each in bootstrap.split(",")], topics.split(","))
    happened = asyncio.run(run.all(int(per_s), float(longest_s)))
    print(json.dumps({"clients": happened.clients, "errors": happened.errors, "failed": happened.failed}))


if __name__ == "__main__":
    main(*sys.argv[1:])
