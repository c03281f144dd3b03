"""The proxy's own questions to the brokers: who they are, where they are, and whether they can be reached."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeVar

import structlog

from config.cluster import Route
from protocol.errors import Cause, ProtocolError
from proxy.brokers.broker import UNKNOWN, Broker, Refused, Verdict, Verified
from proxy.brokers.broker_map import BrokerMap
from proxy.brokers.connection import BrokerConnection, connect, open_transport
from proxy.brokers.failures import describe
from proxy.brokers.login import BrokerLogin, LoginError
from proxy.brokers.metadata import Metadata, is_kraft, read_metadata, which_brokers
from proxy.brokers.names import NAMES
from proxy.brokers.tls import BrokerTls
from proxy.brokers.verification import ERRORS, Verification
from proxy.runtime.clock import monotonic_s
from proxy.runtime.faults import report
from proxy.runtime.files import FileWatch
from proxy.runtime.tasks import every, spawn, within

T = TypeVar("T")

log = structlog.get_logger("sluice.cluster")

_PROBE_S: Final = 5.0
"""Interval between attempts at brokers that were lost; the others are tried at each refresh."""
_PROBES_AT_ONCE: Final = 16
_RETRY_S: Final = 1.0
_RETRY_LOGIN_S: Final = 10.0
"""Pause after a refused login: each attempt is a line in the brokers' logs, and may lock the user."""
FIX: Final = "give the address back to its broker, or take it out of bootstrap; if the cluster is a new one, restart"


class NoAnswerError(ConnectionError):
    """No broker answered; the text has each one's failure."""

    def __init__(self, text: str, *, refused: bool) -> None:
        super().__init__(text)
        self.refused = refused
        """The login was refused, so an early retry is pointless."""


class Cluster(BrokerMap):
    """The brokers behind the proxy: their map, and the proxy's own questions to them.

    ``on_refused``: a node at a broker's address was another one. If the brokers demand SASL and the route has no login,
    the proxy's questions go over clients' connections (docs/decisions/0011), and what clients are told is tried. Raises
    OSError if the TLS files cannot be loaded.
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
        on_refused: Callable[[Cause], None] = lambda _: None,
    ) -> None:
        """``tls``: that of the route, if it exists already."""
        super().__init__(name, route, on_broker, refresh_s)
        self._on_refused = on_refused
        self._connect_timeout_s = connect_timeout_s
        self._tls = BrokerTls(route.tls) if tls is None and route.tls is not None else tls
        self._login = BrokerLogin(route.sasl) if route.sasl is not None else None
        self.can_ask = self._login is not None or not demands_sasl
        """Brokers answer the proxy's own requests beyond ApiVersions."""
        self._verification = Verification(
            self._context,
            self._login,
            lambda broker: self.cluster_id or broker.remembered_as,
            connect_timeout_s,
            lambda: self.can_ask,
        )
        self._refused = False
        self._asked = asyncio.Event()
        self._until_s = 0.0
        """The end of the interval."""
        self._refreshing: asyncio.Task[None] | None = None
        self.is_kraft = False
        """Whether the last broker asked has no ZooKeeper."""
        self.error: str | None = "no broker has answered yet"
        """Why the last refresh failed; None if it succeeded."""

    @property
    def why_not_ready(self) -> str | None:
        """Why no client can be served, None if one can. Once brokers are known, single outages do not count; but a
        bootstrap address that has led to another cluster from the start may show that this cluster is not the one that
        was meant.
        """
        named = self.named
        if not named:
            return self.error
        wrong = [each for each in self._bootstrap if not each.was_verified]
        if all(each.refused for each in named):
            wrong += named
        return next((f"{each.refused.text}: {FIX}" for each in wrong if each.refused is not None), None)

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
        found = []
        for broker in brokers:
            with suppress(OSError, ValueError):
                if broker.port == peer[1] and peer[0] in await NAMES.ips(broker.host):
                    found.append(broker.node_id)
        return found[0] if len(found) == 1 else UNKNOWN

    # ------------------------------------------------------------------------------------------- sessions' connections

    async def open(self, broker: Broker, protocol: asyncio.BaseProtocol) -> Verdict:
        """Connect a session's ``protocol`` to ``broker``, through TLS if the route has it, unless it is refused.

        Raises OSError (such as ssl.SSLError), TimeoutError, EOFError or ProtocolError if it is unreachable.
        """
        verdict = self._verification.standing(broker)
        if not broker.reachable or not isinstance(verdict, Verified):
            verdict = await self.verify(broker)
        if isinstance(verdict, Refused):
            return verdict
        look = broker.look
        try:
            opening = open_transport(protocol, broker.host, broker.port, self._context(), ip=verdict.ip)
            transport = await within(self._connect_timeout_s, opening)
        except (OSError, TimeoutError) as error:
            broker.lose()
            self._record(broker, error)
            raise
        if broker.look is not look or not broker.stands:  # the address may have gone to another node meanwhile
            transport.abort()
        return verdict

    async def verify(self, broker: Broker, *, again: bool = False) -> Verdict:
        """Return whether a session's bytes may go to ``broker`` now, as ``Verification.verify``; log changes only."""
        if broker.is_hint and self.can_ask:
            await self.refresh()
            if broker.is_hint:
                return Refused(Cause.OTHER_NODE, f"no broker says that {broker} is broker {broker.node_id}")
        try:
            verdict = await self._verification.verify(broker, again=again)
        except ERRORS as error:
            self._record(broker, error)
            if not self._takes_hint(broker):
                raise
            return await self.verify(broker)
        if isinstance(verdict, Refused):
            self._on_refused(verdict.cause)
            if self._takes_hint(broker):
                return await self.verify(broker)
        self._record(broker, verdict)
        return verdict

    def _takes_hint(self, broker: Broker) -> bool:
        """Try the address that a client was told, where only clients are told any."""
        if self.can_ask or broker.hint is None:
            return False
        broker.move(*broker.hint)
        return True

    def told(self, broker: Broker, answer: bytes) -> ProtocolError | None:
        """Take the answer to the proxy's own question on a session at ``broker``; return why it may not go on."""
        try:
            said = read_metadata(answer)
        except (ProtocolError, ConnectionError) as error:
            return ProtocolError(Cause.BAD_BODY, f"{broker}: {error}")
        if not said.brokers:
            return None  # it knows no broker yet, not even itself: the next session asks
        verdict = self._verification.told(broker, said)
        self._record(broker, verdict)
        if isinstance(verdict, Refused):
            return ProtocolError(verdict.cause, verdict.text)
        for _ in self._taking(said):
            pass  # at once: before the request goes that waits for this
        return None

    def _record(self, broker: Broker, outcome: Verdict | Exception) -> None:
        """Record whether ``broker`` can be reached; log changes only."""
        was_reachable, was_refused = broker.reachable, broker.refused
        broker.refused = outcome if isinstance(outcome, Refused) else None
        broker.reachable = not isinstance(outcome, Refused | Exception)
        broker.was_verified |= isinstance(outcome, Verified)
        if was_reachable and not broker.reachable:
            self._due.set()
        name = None if broker.node_id == UNKNOWN else broker.node_id
        if isinstance(outcome, Refused):
            if outcome != was_refused:
                event = "another node answers at a broker's address: no client is sent there"
                log.error(event, broker=name, error=outcome.text, fix=FIX)
        elif name is None or broker.reachable is was_reachable:
            return
        elif isinstance(outcome, Exception):
            log.error(
                "broker unreachable: its connections are closed, those to other brokers continue",
                broker=name,
                address=str(broker),
                error=describe(outcome),
            )
        else:
            log.info("broker reachable again", broker=name, address=str(broker))

    # ------------------------------------------------------------------------------------ the proxy's own questions

    def watch(self) -> None:
        """Ask for Metadata at each interval, sooner after a failure; probe brokers; reload changed TLS files."""
        if self._tls is not None and self._tls.files:
            FileWatch(self._tls.files, self._tls.load).run("watch the TLS files for brokers")
        every(0, self._round, "ask for Metadata")
        every(_PROBE_S, self._probe_lost, "probe brokers that were lost")

    async def _round(self) -> None:
        """Ask, probe at each interval, and wait for the next time: its end, or a change, but a second at least."""
        self._due.clear()
        is_interval = monotonic_s() >= self._until_s
        await self.refresh()
        if is_interval and self.error is None:
            await self.probe(list(self.brokers.values()))
            if self.can_ask:
                named = {str(each) for each in self.named}
                await self.probe([each for each in self._bootstrap if str(each) not in named])
        if is_interval or self.error is not None:
            after_failure_s = _RETRY_LOGIN_S if self._refused else _RETRY_S
            self._until_s = monotonic_s() + (self._refresh_s if self.error is None else after_failure_s)
        await asyncio.sleep(max(min(_RETRY_S, self._until_s - monotonic_s()), 0))
        with suppress(TimeoutError):
            async with asyncio.timeout(max(self._until_s - monotonic_s(), 0)):
                await self._due.wait()

    async def _probe_lost(self) -> None:
        lost = [each for each in self.brokers.values() if not (each.reachable and each.stands)]
        await self.probe(lost)
        if any(each.refused for each in lost):
            self._due.set()  # the brokers are not where they were

    async def probe(self, brokers: Sequence[Broker]) -> None:
        """Ask each broker whether it is still there, and who it is if its connection was lost."""
        room = asyncio.Semaphore(_PROBES_AT_ONCE)

        async def one(broker: Broker) -> None:
            async with room:
                with suppress(*ERRORS):  # noted
                    await self.verify(broker, again=True)

        if brokers := [each for each in brokers if not (each.is_hint and self.can_ask)]:
            await asyncio.wait([spawn(one(broker), "probe a broker") for broker in brokers])

    async def refresh(self) -> None:
        """Ask brokers in turn for Metadata until one answers; without a login, for ApiVersions."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = spawn(self._refresh(), "ask for Metadata")
        try:
            await asyncio.shield(self._refreshing)
        finally:
            self._asked.set()

    async def _refresh(self) -> None:
        try:
            if self.can_ask:
                await self.take(await self.ask(self._which_brokers))
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
            event = "cluster reachable; the proxy has no login, so it asks for the brokers where clients have logged in"
            log.info(event, cluster=self.name)
        self.error = None

    async def ask(self, question: Callable[[BrokerConnection], Awaitable[T]]) -> T:
        """Ask brokers in turn, logged in, until one answers ``question``. Raises NoAnswerError."""
        failures: list[str] = []
        tried: dict[str, Broker] = {}
        for each in (*self.candidates(None), *self._bootstrap):
            tried.setdefault(str(each), each)
        for broker in tried.values():
            try:
                async with asyncio.timeout(self._connect_timeout_s), self._connected(broker) as connection:
                    return await question(connection)
            except LoginError as error:  # users are the same at all brokers, so all refuse
                raise NoAnswerError("; ".join([*failures, f"{broker}: {error}"]), refused=True) from None
            except ERRORS as error:
                failures.append(f"{broker}: {describe(error)}")
                if not isinstance(error, _OtherClusterError):
                    self._record(broker, error)
            except Exception as error:  # noqa: BLE001  a broken answer of one broker must not keep the others from being asked
                report("ask a broker", error)
                failures.append(f"{broker}: internal error: {describe(error)}")
        raise NoAnswerError("; ".join(sorted(failures)), refused=False)

    @asynccontextmanager
    async def _connected(self, broker: Broker) -> AsyncIterator[BrokerConnection]:
        was_wrong = broker.refused is not None and broker.refused.cause is Cause.OTHER_CLUSTER
        if was_wrong and isinstance(verdict := await self.verify(broker), Refused):
            raise _OtherClusterError(verdict.text)
        async with connect(broker.host, broker.port, self._context()) as connection:
            if self._login is not None:
                await self._login.perform(connection)
            yield connection

    async def _which_brokers(self, connection: BrokerConnection) -> Metadata:
        await self._which_versions(connection)
        said = await which_brokers(connection)
        if self.cluster_id and said.cluster_id != self.cluster_id:
            raise _OtherClusterError(f"belongs to cluster {said.cluster_id or 'of no id'}, not to {self.cluster_id}")
        return said

    async def _which_versions(self, connection: BrokerConnection) -> None:
        self.is_kraft = await is_kraft(connection)

    def _context(self) -> ssl.SSLContext | None:
        return self._tls.context if self._tls is not None else None


class _OtherClusterError(ConnectionError):
    """The answer is that of another cluster; the text says of which."""
