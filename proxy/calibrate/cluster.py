"""The topic and the quotas that a calibration makes in a cluster, and removes again."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final
from uuid import uuid4

from protocol.client_quotas import (
    ANY,
    Altering,
    Component,
    Describing,
    Op,
    QuotaEntry,
    alter_request,
    describe_request,
    read_altered,
    read_described,
)
from protocol.error_codes import ERROR_NAMES
from protocol.errors import ProtocolError
from protocol.messages import Message
from protocol.probes import CREATE_TOPICS, DELETE_TOPICS, METADATA, all_metadata, create_topic, delete_topics, read
from protocol.requests import Request
from proxy.brokers.connection import BrokerConnection, connect
from proxy.brokers.failures import describe
from proxy.brokers.persistent_connection import Access, PersistentConnection, UnansweredError

PREFIX: Final = "sluice-calibrate-"
REQUEST_PERCENTAGE: Final = "request_percentage"
TIMEOUT_S: Final = 10.0
_GONE: Final = (0, 3)
_ERRORS: Final = (OSError, TimeoutError, EOFError, ProtocolError)
_PROPAGATES_S: Final = 0.5
_LEADER_TRIES: Final = 50
_LEADER_EVERY_S: Final = 0.1
_RIGHTS: Final = {
    "quotas": "the login needs DESCRIBE_CONFIGS and ALTER_CONFIGS on the cluster",
    "topic": "the login needs CREATE, DELETE, DESCRIBE, READ and WRITE on topics that begin with sluice-calibrate-",
}


class CalibrationError(Exception):
    """A calibration that could not be done; the text says why, and what to do."""


@asynccontextmanager
async def connection_to(access: Access, host: str, port: int) -> AsyncIterator[BrokerConnection]:
    """Connect and log in. Raises CalibrationError, also for what fails while the connection is in use."""
    try:
        async with connect(host, port, access.context()) as connection:
            async with asyncio.timeout(TIMEOUT_S):
                await access.log_in(connection)
            yield connection
    except _ERRORS as error:
        raise CalibrationError(f"broker {host}:{port}: {describe(error, access.fixes)}") from None


class Calibrated:
    """A cluster that is being calibrated."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._connection = PersistentConnection(access)
        self.topic = f"{PREFIX}{uuid4().hex[:8]}"

    async def brokers(self) -> dict[int, tuple[str, int]]:
        """Return where each broker is. Raises CalibrationError where none of those that are known answers."""
        return {each["node_id"]: (each["host"], each["port"]) for each in (await self._metadata())["brokers"]}

    async def prepare(self, broker: int, client_ids: Sequence[str], percent: float) -> list[str]:
        """Make a topic on that broker, and the quotas; return what an earlier calibration had left, now removed."""
        left = await self.remove()
        await self._alter([(client_id, percent) for client_id in client_ids])
        created = read(CREATE_TOPICS, await self._ask_controller(create_topic(self.topic, broker)))
        _check("topic", created["topics"][0]["error_code"], created["topics"][0]["error_message"])
        for _ in range(_LEADER_TRIES):
            topics = (await self._metadata())["topics"]
            partitions = [
                partition for each in topics if each["name"] == self.topic for partition in each["partitions"]
            ]
            if partitions and all(partition["leader_id"] >= 0 for partition in partitions):
                break
            await asyncio.sleep(_LEADER_EVERY_S)
        await asyncio.sleep(_PROPAGATES_S)
        return left

    async def remove(self) -> list[str]:
        """Remove every topic and quota of this and earlier calibrations; return their names.

        Raises CalibrationError.
        """
        asked = Describing((Component("client-id", ANY),), strict=True)
        described = read_described(await self._ask(describe_request(asked)))
        _check("quotas", described.error_code, described.message)
        names = [name for each in described.entries for _, name in each.entity if name and name.startswith(PREFIX)]
        if names:
            await self._alter([(name, None) for name in names])
        topics = [each["name"] for each in (await self._metadata())["topics"] if each["name"].startswith(PREFIX)]
        if topics:
            deleted = read(DELETE_TOPICS, await self._ask_controller(delete_topics(topics)))
            for each in deleted["responses"]:
                _check("topic", 0 if each["error_code"] in _GONE else each["error_code"], None)
        return [*names, *topics]

    async def end(self) -> None:
        """Remove what was made for this calibration. Raises CalibrationError, which names what may be left."""
        try:
            await self.remove()
        except CalibrationError as error:
            said = f"topics and quotas of client-ids that begin with {PREFIX} may be left"
            raise CalibrationError(f"{error}; {said}: the next `sluice calibrate` removes them") from error

    async def close(self) -> None:
        await self._connection.close()

    async def _alter(self, limits: Sequence[tuple[str, float | None]]) -> None:
        entries = tuple(
            QuotaEntry((("client-id", client_id),), (Op(REQUEST_PERCENTAGE, limit),)) for client_id, limit in limits
        )
        for result in read_altered(await self._ask(alter_request(Altering(entries)))):
            _check("quotas", result.error_code, result.message)

    async def _metadata(self) -> Message:
        return read(METADATA, await self._ask(all_metadata().request))

    async def _ask(self, request: Request) -> bytes:
        try:
            return await self._connection.ask(request)
        except UnansweredError as error:
            raise CalibrationError(f"broker {error}") from None

    async def _ask_controller(self, request: Request) -> bytes:
        """Ask the controller: with ZooKeeper no other broker creates and deletes topics."""
        metadata = await self._metadata()
        places = {each["node_id"]: (each["host"], each["port"]) for each in metadata["brokers"]}
        host, port = places.get(metadata["controller_id"], next(iter(places.values())))
        async with connection_to(self._access, host, port) as connection, asyncio.timeout(TIMEOUT_S):
            return await connection.ask(request)


def _check(what: str, error_code: int, message: str | None) -> None:
    if error_code:
        said = message or ERROR_NAMES.get(error_code, f"error {error_code}")
        raise CalibrationError(f"the brokers refuse to change the {what} of the calibration: {said}; {_RIGHTS[what]}")
