"""The proxy's own questions: which brokers a cluster has, and whether a node is a broker at all."""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from protocol.answers import read_versions
from protocol.cluster_ids import cluster_id_behind
from protocol.compile import SLICE_BYTES
from protocol.errors import ProtocolError
from protocol.locator import Endpoint, locate
from protocol.overlay import METADATA, UNREGISTER_BROKER
from protocol.requests import WHICH_BROKERS, WHICH_VERSIONS
from proxy.brokers.connection import BrokerConnection

MOST_BROKERS: Final = 2000
"""Limit of brokers in one cluster: each takes memory, and a port at every listener."""
_MOST_ANSWER_BYTES: Final = 2**20
"""Limit of an answer that lists all brokers: half a kilobyte for each."""
_PRODUCE: Final = 0


class Metadata(NamedTuple):
    """The brokers of a cluster, as one of them sees it."""

    cluster_id: str
    brokers: Sequence[Endpoint]

    def at(self, host: str, port: int) -> tuple[int, ...]:
        wanted = host.lower(), port
        return tuple(each.node_id for each in self.brokers if (host_of(each).lower(), each.port) == wanted)


def host_of(endpoint: Endpoint) -> str:
    return endpoint.host.decode("utf-8", "replace")


def read_metadata(answer: bytes) -> Metadata:
    """Read the answer to WHICH_BROKERS. Raises ProtocolError, and ConnectionError if it is too long."""
    if len(answer) > _MOST_ANSWER_BYTES:
        raise ConnectionError(f"names more brokers than a cluster may have, which is {MOST_BROKERS}")
    brokers = locate(WHICH_BROKERS.spec, answer).endpoints
    return Metadata(cluster_id_behind(WHICH_BROKERS.spec, answer, brokers), brokers)


async def which_brokers(connection: BrokerConnection) -> Metadata:
    """Ask a broker for the addresses of all brokers. Raises as ``read_metadata``."""
    answer = await connection.ask(WHICH_BROKERS)
    return await asyncio.to_thread(read_metadata, answer) if len(answer) > SLICE_BYTES else read_metadata(answer)


async def is_kraft(connection: BrokerConnection) -> bool:
    """Ask a broker for its versions; return whether it has no ZooKeeper. Raises ConnectionError for a controller."""
    try:
        versions = read_versions(await connection.ask(WHICH_VERSIONS))
    except ProtocolError:
        return False  # whatever it is, it is there
    if versions and not versions.keys() & {_PRODUCE, METADATA}:
        raise ConnectionError("is a KRaft controller, which serves no client: name the brokers in bootstrap instead")
    return UNREGISTER_BROKER in versions
