"""The brokers of a cluster, by node id: as the answers to the proxy's own questions name them."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import structlog

from config.cluster import Route
from protocol.locator import Endpoint
from proxy.brokers.broker import UNKNOWN, Broker
from proxy.brokers.known_brokers import KnownBroker, KnownBrokers
from proxy.brokers.metadata import MOST_BROKERS, Metadata, host_of
from proxy.runtime.clock import monotonic_s

log = structlog.get_logger("sluice.cluster")

_LEARNED_AT_ONCE: Final = 50
_GONE_AFTER: Final = 3


class BrokerMap:
    """Node id → broker, as seen from the listener that ``route`` leads to.

    ``on_broker`` is called for a new node id, or one named for the first time, before any client learns of it.
    """

    def __init__(self, name: str, route: Route, on_broker: Callable[[int], None], refresh_s: float) -> None:
        self.name = name
        self._on_broker = on_broker
        self._refresh_s = refresh_s
        self._bootstrap = [Broker(UNKNOWN, address.host, address.port) for address in route.bootstrap]
        self._turn = 0
        self._due = asyncio.Event()
        """Set when the brokers have to be asked before the next interval is over."""
        self.brokers: dict[int, Broker] = {}
        self.ignored = 0
        """Times that a broker beyond the limit was named."""
        self.cluster_id = ""
        """The id in the first answer to a question of the proxy's own; a node with another one is refused."""

    def hint(self, endpoints: Sequence[Endpoint]) -> None:
        """Take the brokers in an answer to a client: ports open for those that are new. Where brokers are, only answers
        to the proxy's own questions say, as brokers may name other addresses to each client.
        """
        for endpoint in endpoints:
            if endpoint.node_id < 0 or not endpoint.host:
                continue  # "no coordinator" is written as node -1 at an empty host
            host, port, known = host_of(endpoint), endpoint.port, self.brokers.get(endpoint.node_id)
            if known is None:
                self._add(Broker(endpoint.node_id, host, port, named=False, is_hint=True))
                self._due.set()
            elif (host, port) not in ((known.host, known.port), known.hint):
                known.hint = host, port
                self._due.set()

    async def take(self, said: Metadata) -> None:
        """Take the answer to a question of the proxy's own: it names all brokers."""
        for number, _ in enumerate(self._taking(said), 1):
            if number % _LEARNED_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _taking(self, said: Metadata) -> Iterator[None]:
        """Take an answer, a broker at a time."""
        self.cluster_id = self.cluster_id or said.cluster_id
        for endpoint in said.brokers:
            if endpoint.node_id >= 0 and endpoint.host:
                self._name(endpoint.node_id, host_of(endpoint), endpoint.port)
            yield
        if said.brokers:
            self._forget_all_but({each.node_id for each in said.brokers})

    def _name(self, node_id: int, host: str, port: int) -> None:
        known = self.brokers.get(node_id)
        if known is None:
            if self._add(Broker(node_id, host, port)):
                log.info("broker found", broker=node_id, address=f"{host}:{port}")
            return
        if (known.host, known.port) != (host, port):
            log.info("broker moved", broker=node_id, address=f"{host}:{port}", was=str(known))
            known.move(host, port)
        if not known.named:
            known.named, known.is_hint = True, False
            self._on_broker(node_id)

    def _add(self, broker: Broker) -> bool:
        """Add a broker, but none beyond the limit: clients get a name for it that does not resolve, and says why."""
        if len(self.brokers) < MOST_BROKERS:
            self.brokers[broker.node_id] = broker
            self._on_broker(broker.node_id)
            return True
        if not self.ignored:
            log.error(
                "too many brokers: further ones are ignored, and clients cannot reach them",
                cluster=self.name,
                most=MOST_BROKERS,
                broker=broker.node_id,
                fix="make cluster.bootstrap name brokers of one Kafka cluster, and restart",
            )
        self.ignored += 1
        return False

    def _forget_all_but(self, node_ids: set[int]) -> None:
        """Drop brokers that answers name no more: remembered ones at once, others after three intervals. Ports stay."""
        now_s = monotonic_s()
        for broker in list(self.brokers.values()):
            if broker.node_id in node_ids:
                broker.absent = 0
            elif now_s - broker.absent_at_s >= self._refresh_s / 2:
                broker.absent, broker.absent_at_s = broker.absent + 1, now_s
                if broker.absent == _GONE_AFTER or not (broker.named or broker.is_hint):
                    log.info("broker no longer exists", broker=broker.node_id, address=str(broker))
                    broker.lose()
                    del self.brokers[broker.node_id]

    def remember(self, known: KnownBrokers) -> None:
        """Add brokers from the state file or another worker, for clients that connect to their own addresses."""
        new = [each for each in known.brokers[:MOST_BROKERS] if each.node_id not in self.brokers]
        for each in new:
            self._add(Broker(each.node_id, each.host, each.port, named=False, remembered_as=known.cluster_id))
        if new:
            log.info("brokers known from before", cluster=self.name, brokers=[each.node_id for each in new])

    @property
    def bootstrap(self) -> tuple[str, ...]:
        return tuple(map(str, self._bootstrap))

    @property
    def known(self) -> KnownBrokers | None:
        """The known brokers; None until one has been named since startup."""
        return self._known([each for each in self.brokers.values() if not each.is_hint]) if self.named else None

    @property
    def known_by_name(self) -> KnownBrokers:
        return self._known(self.named)

    def _known(self, brokers: Sequence[Broker]) -> KnownBrokers:
        kept = sorted(KnownBroker(each.node_id, each.host, each.port) for each in brokers)
        return KnownBrokers(self.bootstrap, self.cluster_id, tuple(each for each in kept if each.can_be_kept))

    @property
    def named(self) -> list[Broker]:
        return [broker for broker in self.brokers.values() if broker.named]

    def candidates(self, node_id: int | None, first: int | None = None) -> list[Broker]:
        """Return brokers to try for ``node_id``, best first; None: any broker, in turn, or ``first`` if it is given.

        Where none can be reached, bootstrap comes first: all may have moved (KIP-899).
        """
        if node_id is not None:
            known = self.brokers.get(node_id)
            return [] if known is None else [known]
        named = self.named
        self._turn += first is None
        reachable = _from(self._turn, [each for each in named if each.reachable])
        reachable.sort(key=lambda broker: broker.node_id != first)
        return reachable or [*_from(self._turn, self._bootstrap), *named]


def _from(turn: int, brokers: list[Broker]) -> list[Broker]:
    turn = turn % len(brokers) if brokers else 0
    return brokers[turn:] + brokers[:turn]
