"""A listener on loopback in front of stand-ins for brokers, and what a client of it can see."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

from config.brokers import parse_broker_ports
from config.cluster import Route
from config.settings import Limits
from config.settings import Listener as ListenerSettings
from config.units import Address, AdvertisedAddress
from proxy.brokers.cluster import Cluster
from proxy.edge.arriving import LATE_AT_ONCE, Admission
from proxy.edge.connection_slots import ConnectionSlots
from proxy.edge.doors import MOST_OF_ADDRESS, ConnectionGate, HeldConnections
from proxy.edge.listeners import Listener
from proxy.edge.listening import bind, bind_bootstrap
from proxy.edge.memory import MemoryCeiling
from proxy.edge.open_sessions import SessionReaper
from proxy.edge.sorter import Passing
from proxy.edge.stats import Rejections, Stats
from proxy.owners.map import OwnersInForce
from proxy.runtime import tasks
from proxy.runtime.clock import now_ms
from proxy.session.throttling import Alarms
from proxy.usage.accounts import Accounts
from proxy.worker import _release_later
from quotas.connections import ConnectionRates
from quotas.engine import Window
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from tests.harness.fake_broker import FakeBroker
from tests.harness.polling import until
from tests.harness.ports import free_ports
from tests.proxy.playbook import Play, list_offsets

TIMEOUT_S = 30.0


class Front:
    """A listener in front of fake brokers; node ids 1 and 2 have ports, others have none.

    ``limits`` are those of ``Limits`` by their names in Python, ``settings`` further settings of the listener, None for
    none; with ``broker_host`` brokers have no ports. With ``passing``, other workers share the bootstrap port.
    Connection rates go by the clock of ``play.loop``; those of IP addresses are set by ``policy``.
    """

    def __init__(
        self,
        bootstrap: list[int],
        limit: int = 100,
        authentication_timeout_s: float = TIMEOUT_S,
        limits: Mapping[str, object] | None = None,
        quotas: Mapping[QuotaKind, float] | None = None,
        connection_rate: float | None = None,
        listener_rate: float | None = None,
        listener_most: int | None = None,
        policy: Policy = Policy(),  # noqa: B008  frozen
        mode: str = "enforce",
        owners: OwnersInForce | None = None,
        passing: Passing | None = None,
        **settings: object,
    ) -> None:
        self.stats = Stats()
        self.play = Play(quotas, mode=mode)
        self.play.loop.now_ms = now_ms()  # what comes from sockets has the real time, whenever the machine was started
        self.bootstrap_port, self.port_1, self.port_2 = free_ports(3)
        route = Route(bootstrap=tuple(Address("127.0.0.1", port) for port in bootstrap))
        rejections = Rejections(self.stats)
        self.cluster = Cluster(
            "test",
            route,
            self._on_broker,
            refresh_s=TIMEOUT_S,
            connect_timeout_s=TIMEOUT_S,
            on_refused=rejections.count_refused,
        )
        if not {"broker_host", "brokers"} & settings.keys():
            settings["brokers"] = parse_broker_ports({"1": str(self.port_1), "2": str(self.port_2)})
        fixed = {"name": "PLAIN", "bind": Address("127.0.0.1", self.bootstrap_port)}
        fixed["advertise"] = AdvertisedAddress("127.0.0.1")
        given = {key: value for key, value in settings.items() if value is not None}
        self.play.worker.on_rejected = lambda side, error, peer, client_id: rejections.count(
            side, error, peer, now_ms(), client_id=client_id
        )
        self.limits = Limits.model_validate({"authentication_timeout_s": authentication_timeout_s, **(limits or {})})
        self.slots = ConnectionSlots(
            most=limit,
            most_of_ip=self.limits.connections_per_ip or limit + 1,
            overrides=self.limits.connections_per_ip_overrides,
            most_before_request=self.limits.connections_before_request,
            most_of={} if listener_most is None else {"PLAIN": listener_most},
        )
        rates = ConnectionRates(Window(), connection_rate, {"PLAIN": listener_rate})
        self.gate = ConnectionGate(rates, self.play.throttling, self.stats, self.play.loop.clock)
        self.gate.apply(policy)
        # in real time: that of the session's clock stands still
        self.alarms = Alarms(_release_later, now_ms, LATE_AT_ONCE)
        self.turned_away = HeldConnections(self.alarms.add, MOST_OF_ADDRESS)
        self.memory = MemoryCeiling(None, lambda: self.listener.sessions)
        self._settings = ListenerSettings.model_validate(fixed | given)
        admission = Admission(
            self.slots,
            self.gate,
            self.limits,
            self.stats,
            rejections,
            self.memory,
            bind,
            self.alarms,
            self.turned_away,
            owners,
            passing=passing,
        )
        self.listener = Listener(
            self._settings,
            self.cluster,
            self.play.worker,
            self.play.sasl_rules,
            Accounts(self.play.meters, self.play.engine, "PLAIN"),
            admission,
        )
        self.reaper = SessionReaper([self.listener], self.limits, self.stats, self.play.loop.clock)

    def _on_broker(self, node_id: int) -> None:
        self.listener.open_broker(node_id)

    def open_bootstrap(self) -> None:
        self.listener.addresses.open_bootstrap(bind_bootstrap(self._settings, bind))

    def rejected(self) -> dict[str, int]:
        """Return how many connections were refused, by cause."""
        return {cause.value: number for (_, cause), number in self.stats.rejected.items()}

    async def until_rejected(self, cause: str) -> None:
        """Wait until that cause, and no other, has been counted, and nothing is open any more."""
        await until(lambda: self.rejected() and not self.stats.sessions.total())
        assert self.rejected() == {cause: 1}


@asynccontextmanager
async def front(*brokers: FakeBroker, **options: object) -> AsyncIterator[Front]:
    """Options are those of ``Front``; with ``known=False`` the brokers are not asked who they are, and with
    ``is_open=False`` the bootstrap port is not open.
    """
    known = options.pop("known", True)
    is_open = options.pop("is_open", True)
    front = Front([broker.port for broker in brokers] or [1], **options)  # type: ignore[arg-type]  # see above
    if is_open:
        front.open_bootstrap()
    if known:
        await front.cluster.refresh()
    try:
        yield front
    finally:
        front.listener.close()
        front.gate.held.close()
        front.turned_away.close()
        for session in list(front.listener.sessions):
            session.abort()
        for broker in (*front.cluster._bootstrap, *front.cluster.brokers.values()):
            broker.lose()
        await asyncio.sleep(0)


async def end_background() -> None:
    """End what the program runs in the background of this loop, and wait for it."""
    here = [task for task in tasks._running if task.get_loop() is asyncio.get_running_loop()]
    for task in here:
        task.cancel()
    await asyncio.gather(*here, return_exceptions=True)


class Client:
    """What a client on a socket can see."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def ask(self, data: bytes) -> bytes:
        self.writer.write(data)
        async with asyncio.timeout(TIMEOUT_S):
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            return await self._reader.readexactly(size)

    async def closed(self) -> bool:
        async with asyncio.timeout(TIMEOUT_S):
            try:
                return await self._reader.read() == b""
            except ConnectionError:
                return True


@asynccontextmanager
async def client(
    port: int, tls: ssl.SSLContext | None = None, name: str | None = None, first: bytes = b""
) -> AsyncIterator[Client]:
    """Connect; ``first`` is sent before TLS begins, ``name`` is the host that is asked for in TLS."""
    connection = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
    connection.setblocking(False)
    connection.send(first)
    server_hostname = (name or "127.0.0.1") if tls is not None else None
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection(sock=connection, ssl=tls, server_hostname=server_hostname)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


async def answers(port: int) -> bool:
    with suppress(OSError, asyncio.IncompleteReadError):
        async with client(port) as asking:
            await asking.ask(list_offsets(1))
            return True
    return False
