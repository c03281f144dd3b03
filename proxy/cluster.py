"""Which brokers there are and where: learned from every answer that names them, and from our own Metadata."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from config.settings import Cluster as ClusterSettings
from config.units import Address
from protocol.errors import ProtocolError
from protocol.frames import RESPONSE_HEAD
from protocol.locator import Endpoint, locate
from protocol.requests import metadata_request, metadata_spec

log = structlog.get_logger("sluice.cluster")

UNKNOWN = -1
"""The node id of a bootstrap address, until Metadata has named it."""

_RETRY_S = 1.0
_MAX_METADATA_BYTES = 16 * 1024 * 1024


@dataclass(slots=True)
class Broker:
    """One broker, at the address that this cluster's listener advertises."""

    node_id: int
    host: str
    port: int
    reachable: bool = True
    """Whether the last connection attempt succeeded."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Cluster:
    """The brokers behind the proxy, by node id.

    ``on_broker`` is called for a node id seen for the first time, before anybody is told of it.
    """

    def __init__(self, settings: ClusterSettings, on_broker: Callable[[int], None]) -> None:
        self._settings = settings
        self._on_broker = on_broker
        self._bootstrap = [Broker(UNKNOWN, address.host, address.port) for address in settings.bootstrap]
        self._turn = 0
        self.brokers: dict[int, Broker] = {}
        self.error: str | None = "no broker has answered yet"
        """Why the last refresh failed; None when it did not."""

    def learn(self, endpoints: Sequence[Endpoint]) -> None:
        """Take in the broker addresses of an answer; a broker that moved is followed."""
        for endpoint in endpoints:
            if endpoint.node_id < 0 or not endpoint.host:
                continue  # "no coordinator" is written as node -1 at an empty host
            host = endpoint.host.decode("utf-8", "replace")
            known = self.brokers.get(endpoint.node_id)
            if known is None:
                self.brokers[endpoint.node_id] = Broker(endpoint.node_id, host, endpoint.port)
                log.info("broker found", broker=endpoint.node_id, address=f"{host}:{endpoint.port}")
                self._on_broker(endpoint.node_id)
            elif (known.host, known.port) != (host, endpoint.port):
                log.info("broker moved", broker=endpoint.node_id, address=f"{host}:{endpoint.port}", was=str(known))
                known.host, known.port = host, endpoint.port

    def candidates(self, node_id: int | None) -> list[Broker]:
        """Return where a connection for ``node_id`` may go, best first; None: any broker, in turn."""
        if node_id is not None:
            known = self.brokers.get(node_id)
            return [] if known is None else [known]
        brokers = list(self.brokers.values()) or self._bootstrap
        self._turn += 1
        turn = self._turn % len(brokers)
        ordered = brokers[turn:] + brokers[:turn]
        return sorted(ordered, key=lambda broker: not broker.reachable)

    def note_attempt(self, broker: Broker, error: BaseException | None) -> None:
        """Remember whether ``broker`` could be connected to; each change of that is one log line."""
        if error is None and not broker.reachable:
            log.info("broker reachable again", broker=broker.node_id, address=str(broker))
        elif error is not None and broker.reachable:
            log.error(
                "broker unreachable: its connections are closed, those to others go on",
                broker=broker.node_id,
                address=str(broker),
                error=describe(error),
            )
        broker.reachable = error is None

    async def watch(self) -> None:
        """Ask for Metadata, now and at every refresh interval; sooner while it fails."""
        while True:
            await self.refresh()
            await asyncio.sleep(_RETRY_S if self.error else self._settings.refresh_s)

    async def refresh(self) -> None:
        """Ask one broker after the other for Metadata until one answers."""
        failures = []
        for broker in [*self.candidates(None), *(self._bootstrap if self.brokers else [])]:
            try:
                async with asyncio.timeout(self._settings.connect_timeout_s):
                    self.learn(await _endpoints_from(Address(host=broker.host, port=broker.port)))
            except (OSError, TimeoutError, EOFError, ProtocolError) as error:
                failures.append(f"{broker}: {describe(error)}")
                if broker.node_id != UNKNOWN:
                    self.note_attempt(broker, error)
            else:
                if broker.node_id != UNKNOWN:
                    self.note_attempt(broker, None)
                if self.error is not None:
                    log.info("cluster known", cluster=self._settings.name, brokers=sorted(self.brokers))
                self.error = None
                return
        error_text = "; ".join(failures)
        if error_text != self.error:
            log.error("no broker answers Metadata", cluster=self._settings.name, tried=error_text)
        self.error = error_text


async def _endpoints_from(address: Address) -> Sequence[Endpoint]:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        writer.write(metadata_request(client_id="sluice", correlation_id=0))
        head = await reader.readexactly(RESPONSE_HEAD.size)
        size, _ = RESPONSE_HEAD.unpack(head)
        if not 4 <= size <= _MAX_METADATA_BYTES:
            raise ConnectionError(f"the answer claims {size} bytes: is this a Kafka listener without TLS and SASL?")
        return locate(metadata_spec(), head + await reader.readexactly(size - 4)).endpoints
    finally:
        writer.close()


def describe(error: BaseException) -> str:
    """Return what to tell an operator of ``error``: timeouts and ends of stream have no text of their own."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, EOFError):
        return "closed the connection without an answer: does this listener demand TLS or SASL?"
    return str(error) or type(error).__name__
