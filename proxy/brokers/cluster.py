"""Ids and addresses of the cluster's brokers, learned from answers to clients and from the proxy's own Metadata."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, TypeVar

import structlog

from config.cluster import Route
from protocol.answers import read_versions
from protocol.compile import SLICE_BYTES
from protocol.errors import ProtocolError
from protocol.locator import Endpoint, locate
from protocol.overlay import UNREGISTER_BROKER
from protocol.requests import WHICH_BROKERS, WHICH_VERSIONS
from proxy.brokers.connection import BrokerConnection, connect, ips_of, open_transport
from proxy.brokers.failures import describe
from proxy.brokers.known_brokers import KnownBroker, KnownBrokers
from proxy.brokers.login import BrokerLogin, LoginError
from proxy.brokers.tls import BrokerTls
from proxy.runtime.faults import note
from proxy.runtime.file_watch import FileWatch
from proxy.runtime.tasks import every, spawn

T = TypeVar("T")

log = structlog.get_logger("sluice.cluster")

UNKNOWN = -1
"""The node id of a bootstrap address until Metadata names it."""

MOST_BROKERS: Final = 2000
"""Limit of brokers in one cluster: each takes memory, and a port at every listener."""
_LEARNED_AT_ONCE: Final = 50
_MOST_ANSWER_BYTES: Final = 2**20
"""Limit of an answer that lists all brokers: half a kilobyte for each."""
_PROBE_S: Final = 5.0
"""Interval between attempts at unreachable brokers; reachable ones are tried at each refresh."""
_PROBES_AT_ONCE: Final = 16
_RETRY_S: Final = 1.0
_RETRY_LOGIN_S: Final = 10.0
"""Pause after a refused login: each attempt is a line in the brokers' logs, and may lock the user."""


@dataclass(slots=True)
class Broker:
    """One broker, at the address advertised by the listener that the route leads to."""

    node_id: int
    host: str
    port: int
    reachable: bool = True
    """The last connection attempt succeeded."""
    named: bool = True
    """An answer has named it since startup; False while it is only known from the state file."""
    silent: bool = False
    """It accepted the proxy's own connection but did not answer: a session's successful connect then proves nothing."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class NoAnswerError(ConnectionError):
    """No broker answered; the text has each one's failure."""

    def __init__(self, text: str, *, refused: bool) -> None:
        super().__init__(text)
        self.refused = refused
        """The login was refused, so an early retry is pointless."""


class Cluster:
    """The brokers behind the proxy, by node id, as seen from the listener that ``route`` leads to.

    ``on_broker`` is called for a new node id, or one named for the first time, before any client learns of it. If the
    brokers demand SASL and the route has no login, brokers are learned only from answers to clients
    (docs/decisions/0011) and from ``remember``. Raises OSError if the TLS files cannot be loaded.
    """

    def __init__(
        self,
        name: str,
        route: Route,
        on_broker: Callable[[int], None],
        *,
        refresh_s: float,
        connect_timeout_s: float,
        demands_sasl: bool = False,
        tls: BrokerTls | None = None,
    ) -> None:
        """``tls``: that of the route, if it exists already."""
        self.name = name
        self._on_broker = on_broker
        self._refresh_s = refresh_s
        self._connect_timeout_s = connect_timeout_s
        self._tls = BrokerTls(route.tls) if tls is None and route.tls is not None else tls
        self._login = BrokerLogin(route.sasl) if route.sasl is not None else None
        self.can_ask = self._login is not None or not demands_sasl
        """Brokers answer the proxy's own requests beyond ApiVersions."""
        self._bootstrap = [Broker(UNKNOWN, address.host, address.port) for address in route.bootstrap]
        self._turn = 0
        self._refused = False
        self._asked = asyncio.Event()
        self.brokers: dict[int, Broker] = {}
        self.ignored = 0
        """Times that a broker beyond the limit was named."""
        self.cluster_id = ""
        """The id in the last Metadata; "" before that."""
        self._remembers = False
        self.is_kraft = False
        """Whether the last broker asked has no ZooKeeper."""
        self.error: str | None = "no broker has answered yet"
        """Why the last refresh failed; None if it succeeded."""

    @property
    def why_not_ready(self) -> str | None:
        """Why no client can be served, None if one can. Once brokers are known, single outages do not count."""
        return None if self.named else self.error

    # ----------------------------------------------------------------------------------------------- who is where

    def learn(self, endpoints: Sequence[Endpoint]) -> None:
        """Learn the broker addresses in an answer, also those of brokers that moved."""
        for endpoint in endpoints:
            if endpoint.node_id < 0 or not endpoint.host:
                continue  # "no coordinator" is written as node -1 at an empty host
            host = endpoint.host.decode("utf-8", "replace")
            known = self.brokers.get(endpoint.node_id)
            if known is None and len(self.brokers) >= MOST_BROKERS:
                self._ignore(endpoint.node_id)
            elif known is None:
                self.brokers[endpoint.node_id] = Broker(endpoint.node_id, host, endpoint.port)
                log.info("broker found", broker=endpoint.node_id, address=f"{host}:{endpoint.port}")
                self._on_broker(endpoint.node_id)
            else:
                self._name_again(known, host, endpoint.port)

    def _ignore(self, node_id: int) -> None:
        """Ignore a broker beyond the limit; clients get a name for it that explains this and does not resolve."""
        if not self.ignored:
            log.error(
                "too many brokers: further ones are ignored, and clients cannot reach them",
                cluster=self.name,
                most=MOST_BROKERS,
                broker=node_id,
                fix="make cluster.bootstrap name brokers of one Kafka cluster, and restart",
            )
        self.ignored += 1

    def _name_again(self, known: Broker, host: str, port: int) -> None:
        """Update a known or remembered broker."""
        if (known.host, known.port) != (host, port):
            log.info("broker moved", broker=known.node_id, address=f"{host}:{port}", was=str(known))
            known.host, known.port = host, port
        if not known.named:
            known.named = True
            self._on_broker(known.node_id)

    def all_named(self, cluster_id: str) -> None:
        """Drop the remembered brokers that no answer has named: the last answer listed all brokers.

        ``cluster_id``: the id in that answer, "" if none.
        """
        if cluster_id:
            self.cluster_id = cluster_id
        if not self._remembers or not self.named:
            return
        self._remembers = False
        for broker in [each for each in self.brokers.values() if not each.named]:
            log.info("broker known from before no longer exists", broker=broker.node_id, address=str(broker))
            del self.brokers[broker.node_id]

    def remember(self, known: KnownBrokers) -> None:
        """Add brokers from the state file, or from another worker. They serve clients that connect to their own
        addresses.
        """
        new = [each for each in known.brokers[:MOST_BROKERS] if each.node_id not in self.brokers]
        for each in new:
            self.brokers[each.node_id] = Broker(each.node_id, each.host, each.port, named=False)
            self._on_broker(each.node_id)
            self._remembers = True
        if new:
            log.info("brokers known from before", cluster=self.name, brokers=[each.node_id for each in new])

    @property
    def bootstrap(self) -> tuple[str, ...]:
        """The addresses of the route, which identify it."""
        return tuple(map(str, self._bootstrap))

    @property
    def known(self) -> KnownBrokers | None:
        """The known brokers; None until one has been named since startup."""
        if not self.named:
            return None
        brokers = sorted(KnownBroker(each.node_id, each.host, each.port) for each in self.brokers.values())
        return KnownBrokers(self.bootstrap, self.cluster_id, tuple(each for each in brokers if each.can_be_kept))

    @property
    def known_by_name(self) -> KnownBrokers:
        """The brokers named by an answer since startup."""
        brokers = sorted(KnownBroker(each.node_id, each.host, each.port) for each in self.named)
        return KnownBrokers(self.bootstrap, self.cluster_id, tuple(brokers))

    @property
    def named(self) -> list[Broker]:
        """The brokers named by an answer since startup."""
        return [broker for broker in self.brokers.values() if broker.named]

    def candidates(self, node_id: int | None, first: int | None = None) -> list[Broker]:
        """Return brokers to try for ``node_id``, best first; None: any broker, in turn, or ``first`` if it is given."""
        if node_id is not None:
            known = self.brokers.get(node_id)
            return [] if known is None else [known]
        brokers = self.named or self._bootstrap
        self._turn += first is None
        turn = self._turn % len(brokers)
        ordered = brokers[turn:] + brokers[:turn]
        return sorted(ordered, key=lambda broker: (not broker.reachable, broker.node_id != first))

    async def first_answer(self) -> None:
        """Wait for the first Metadata answer or failure: quotas are per broker, from the first byte on."""
        if not self.can_ask or self._asked.is_set():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._connect_timeout_s):
                await self._asked.wait()

    async def node_at(self, bootstrap: Broker, peer: tuple[str, int]) -> int:
        """Return the node id of the broker at a bootstrap address that led to ``peer``, or UNKNOWN.

        It is the one that advertises the address, or else the only one whose advertised host resolves to ``peer``.
        Behind a load balancer, none does.
        """
        brokers = list(self.brokers.values())
        for broker in brokers:
            if (broker.host.lower(), broker.port) == (bootstrap.host.lower(), bootstrap.port):
                return broker.node_id
        found = [
            broker.node_id for broker in brokers if broker.port == peer[1] and peer[0] in await ips_of(broker.host)
        ]
        return found[0] if len(found) == 1 else UNKNOWN

    def note_attempt(self, broker: Broker, error: BaseException | None) -> None:
        """Record the outcome of a connection attempt to ``broker``; log changes only."""
        if error is None and broker.silent:
            return
        if error is None and not broker.reachable:
            log.info("broker reachable again", broker=broker.node_id, address=str(broker))
        elif error is not None and broker.reachable:
            log.error(
                "broker unreachable: its connections are closed, those to other brokers continue",
                broker=broker.node_id,
                address=str(broker),
                error=describe(error),
            )
        broker.reachable = error is None

    async def open(self, broker: Broker, protocol: asyncio.BaseProtocol) -> None:
        """Connect a session's ``protocol`` to ``broker``, through TLS if the route has it.

        Raises OSError (such as ssl.SSLError) or TimeoutError, for ``note_attempt``.
        """
        context = self._tls.context if self._tls is not None else None
        async with asyncio.timeout(self._connect_timeout_s):
            await open_transport(protocol, broker.host, broker.port, context)

    # ------------------------------------------------------------------------------------ the proxy's own questions

    def watch(self) -> None:
        """Poll Metadata at every refresh interval, sooner after a failure, and probe the brokers.

        Changed TLS files are reloaded.
        """
        if self._tls is not None and self._tls.files:
            FileWatch(self._tls.files, self._tls.load).run("watch the TLS files for brokers")
        every(self._pause_s, self._look, "ask for Metadata")
        every(_PROBE_S, self._probe_unreachable, "probe unreachable brokers")

    def _pause_s(self) -> float:
        if self.error is None:
            return self._refresh_s
        return _RETRY_LOGIN_S if self._refused else _RETRY_S

    async def _look(self) -> None:
        await self.refresh()
        if self.error is None:
            await self.probe(list(self.brokers.values()))

    async def _probe_unreachable(self) -> None:
        await self.probe([broker for broker in self.brokers.values() if not broker.reachable])

    async def probe(self, brokers: Sequence[Broker]) -> None:
        """Ask each broker for ApiVersions, which needs no login, and record whether it answers."""
        room = asyncio.Semaphore(_PROBES_AT_ONCE)

        async def one(broker: Broker) -> None:
            async with room:
                await self._probe(broker)

        if brokers:
            await asyncio.wait([spawn(one(broker), "probe a broker") for broker in brokers])

    async def _probe(self, broker: Broker) -> None:
        context = self._tls.context if self._tls is not None else None
        try:
            async with asyncio.timeout(self._connect_timeout_s), connect(broker.host, broker.port, context) as asking:
                await self._which_versions(asking)
        except (OSError, TimeoutError, EOFError) as error:
            self._note_own_attempt(broker, error)
        else:
            self._note_own_attempt(broker, None)

    async def refresh(self) -> None:
        """Ask brokers in turn for Metadata until one answers; without a login, for ApiVersions."""
        try:
            await self._refresh()
        finally:
            self._asked.set()

    async def _refresh(self) -> None:
        try:
            if self.can_ask:
                endpoints = await self.ask(self._which_brokers)
                for begin in range(0, len(endpoints), _LEARNED_AT_ONCE):
                    self.learn(endpoints[begin : begin + _LEARNED_AT_ONCE])
                    await asyncio.sleep(0)
                self.all_named("")
            else:
                await self.ask(self._which_versions)
        except NoAnswerError as error:
            if str(error) != self.error:
                event = "no broker answers Metadata" if self.can_ask else "no broker answers ApiVersions"
                log.error(event, cluster=self.name, tried=str(error))
            self.error = str(error)
            self._refused = error.refused
            return
        if self.error is not None and self.can_ask:
            log.info("cluster known", cluster=self.name, brokers=sorted(self.brokers))
        elif self.error is not None:
            log.info(
                "cluster reachable; the proxy has no login, so it learns the brokers from clients' responses",
                cluster=self.name,
            )
        self.error = None

    async def ask(self, question: Callable[[BrokerConnection], Awaitable[T]]) -> T:
        """Ask brokers in turn, logged in, until one answers ``question``. Raises NoAnswerError."""
        failures: list[str] = []
        for broker in [*self.candidates(None), *(self._bootstrap if self.named else [])]:
            try:
                async with asyncio.timeout(self._connect_timeout_s), self._connected(broker) as connection:
                    answer = await question(connection)
            except LoginError as error:  # users are the same at all brokers, so all refuse
                self._note_own_attempt(broker, None)
                raise NoAnswerError("; ".join([*failures, f"{broker}: {error}"]), refused=True) from None
            except (OSError, TimeoutError, EOFError, ProtocolError) as error:
                failures.append(f"{broker}: {describe(error)}")
                self._note_own_attempt(broker, error)
            except Exception as error:  # noqa: BLE001  a broken answer of one broker must not keep the others from being asked
                note("ask a broker", error)
                failures.append(f"{broker}: internal error: {describe(error)}")
            else:
                self._note_own_attempt(broker, None)
                return answer
        raise NoAnswerError("; ".join(failures), refused=False)

    @asynccontextmanager
    async def _connected(self, broker: Broker) -> AsyncIterator[BrokerConnection]:
        context = self._tls.context if self._tls is not None else None
        async with connect(broker.host, broker.port, context) as connection:
            if self._login is not None:
                await self._login.perform(connection)
            yield connection

    async def _which_brokers(self, connection: BrokerConnection) -> Sequence[Endpoint]:
        await self._which_versions(connection)
        return await which_brokers(connection)

    async def _which_versions(self, connection: BrokerConnection) -> None:
        answer = await connection.ask(WHICH_VERSIONS)
        with suppress(ProtocolError):  # whatever it is, it is there
            self.is_kraft = UNREGISTER_BROKER in read_versions(answer)

    def _note_own_attempt(self, broker: Broker, error: BaseException | None) -> None:
        if broker.node_id != UNKNOWN:
            broker.silent = False
            self.note_attempt(broker, error)
            broker.silent = isinstance(error, TimeoutError)


async def which_brokers(connection: BrokerConnection) -> Sequence[Endpoint]:
    """Ask a broker for the addresses of all brokers."""
    answer = await connection.ask(WHICH_BROKERS)
    if len(answer) > _MOST_ANSWER_BYTES:
        raise ConnectionError(f"names more brokers than a cluster may have, which is {MOST_BROKERS}")
    if len(answer) > SLICE_BYTES:
        return (await asyncio.to_thread(locate, WHICH_BROKERS.spec, answer)).endpoints
    return locate(WHICH_BROKERS.spec, answer).endpoints
