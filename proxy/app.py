"""The composition root: what runs, in which order it starts, and how it stops."""

import asyncio
import gc
import platform
import resource
import signal
import sys
from collections.abc import Callable
from copy import copy

import structlog

from config.settings import Listener as ListenerSettings
from config.settings import Settings
from protocol.api_versions import advertised_limits
from proxy import __version__
from proxy.admin import AdminServer
from proxy.clock import now_ms
from proxy.drain import drain
from proxy.endings import Endings
from proxy.failures import describe
from proxy.identity.distinguished_name import rfc2253
from proxy.identity.gssapi import Acceptor, Unread, acceptor
from proxy.identity.mechanisms import Mechanisms
from proxy.identity.sasl import SaslRules
from proxy.identity.ssl_mapping import parse_rules
from proxy.in_flight import Rules
from proxy.lag import watch as watch_lag
from proxy.listeners import Admission, Listener
from proxy.places import Places
from proxy.quota_file import QuotaFile
from proxy.rejections import Rejections
from proxy.reload import FileWatch
from proxy.routes import Routes, Way
from proxy.serving import Served, serve
from proxy.stats import Snapshot, Stats
from proxy.tasks import spawn
from proxy.throttling import Throttling
from proxy.tls import ignore_undecodable_names
from proxy.usage_service import UsageService
from proxy.whoami import identify
from quotas.engine import Engine, Window
from quotas.policy import Policy

log = structlog.get_logger("sluice")

_EXIT_FAILED = 1
_EXIT_CONFIG = 2  # as the command line's own; a service manager need not try again
_TIDY_EVERY_S = 1.0
_IDLE_COUNTER_MS = 20_000  # with its window that is half a minute: a counter is scraped before it goes
_SWITCH_INTERVAL_S = 0.001
"""How long a thread may hold the interpreter: rendering 2,000 entities then delays the loop half as much."""
_DESCRIPTORS_RESERVED = 128
"""For what is neither a client nor its broker: listening ports, the admin port, files, Metadata."""


def run(settings: Settings) -> int:
    """Run the proxy until it is told to stop; returns the exit status."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    runner, loop_name = _loop_runner()
    with runner:
        return runner.run(App(settings, loop_name).run())


def _loop_runner() -> tuple[asyncio.Runner, str]:
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner(), "asyncio"
    return asyncio.Runner(loop_factory=uvloop.new_event_loop), "uvloop"


def _certificate_names(listener: ListenerSettings) -> Callable[[bytes], str]:
    """Return what makes the user of a client certificate's DER; it raises ValueError where no rule does."""
    rules = parse_rules(listener.tls.principal_mapping_rules if listener.tls is not None else "")
    return lambda der: rules.user(rfc2253(der))


class App:
    """Everything that runs in the process, wired together."""

    def __init__(self, settings: Settings, loop_name: str) -> None:
        self._settings = settings
        self._loop_name = loop_name
        self._stats = Stats()
        self._rejections = Rejections(self._stats)
        self._stopping = asyncio.Event()
        self._cut_short = asyncio.Event()
        window = Window(settings.quotas.window.samples, settings.quotas.window.size_ms)
        self._engine = Engine(Policy(), window, idle_ms=_IDLE_COUNTER_MS)
        quotas = settings.quotas
        self._quotas = QuotaFile(quotas.store.path, self._engine, self._stats, enabled=quotas.mode != "off")
        self._connections_limit = 0
        self._tables: list[dict[int, Served]] = []
        self._listeners: list[Listener] = []
        self._acceptors: dict[str, Acceptor] = {}
        self._routes = Routes(settings)
        self._usage = UsageService(settings, self._engine, window)

    async def run(self) -> int:
        """Start, serve, and stop when a signal says so."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.on_stop_signal)
        loop.add_signal_handler(signal.SIGHUP, lambda: spawn(self._reload(), "load files again"))
        if not await self._quotas.load():
            return _EXIT_CONFIG
        try:
            await self._start()
        except (OSError, ValueError) as error:
            log.error("cannot start", error=describe(error))
            self._close_listeners()
            return _EXIT_FAILED
        await self._stopping.wait()
        return await self._stop()

    # ---------------------------------------------------------------------------------------------- start and stop

    async def _start(self) -> None:
        settings = self._settings
        self._connections_limit = settings.limits.connections or self._connections_by_descriptors()
        self._throttling = Throttling(
            mode=settings.quotas.mode,
            window_ms=settings.quotas.window.size_ms,
            max_delay_ms=settings.quotas.max_delay_ms,
            call_later=asyncio.get_running_loop().call_later,
            clock=now_ms,
        )
        rules = self._rules()
        limits = settings.limits
        places = Places(
            most=self._connections_limit,
            most_of_ip=limits.connections_per_ip,
            overrides=dict(limits.connections_per_ip_overrides.pairs),
            most_before_request=limits.connections_before_request,
        )
        admission = Admission(places, limits, self._stats, self._rejections)
        if any(each.broker_host is not None for each in settings.listeners):
            ignore_undecodable_names()
        for each in settings.listeners:
            way = self._routes.of(each)
            sasl, meters = self._sasl_rules(each, way), self._usage.meters_of(each.name)
            listener = Listener(each, way.cluster, rules, sasl, meters, _certificate_names(each), admission)
            way.listeners.append(listener)
            self._listeners.append(listener)
        for listener in self._listeners:
            listener.open_bootstrap()
        self._admin = AdminServer(
            settings.admin.bind,
            self._snapshot,
            self._not_ready,
            lambda peer: identify(self._listeners, peer),
            settings.admin.max_entities,
        )
        await self._admin.start()
        self._usage.start()
        for cluster in self._routes.clusters:
            spawn(cluster.watch(), "ask for Metadata")
        spawn(self._tidy(), "drop what is idle")
        spawn(Endings(self._listeners, limits, self._stats, now_ms).watch(), "end sessions that are over")
        spawn(watch_lag(self._stats.observe_lag), "measure event-loop lag")
        spawn(FileWatch([self._quotas.path], self._quotas.reload).run(), "watch the quota file")
        for listener in self._listeners:
            if listener.tls is not None:
                spawn(FileWatch(listener.tls.files, listener.reload_tls).run(), "watch the certificate")
        gc.collect()
        gc.freeze()  # what exists now lives as long as the process: no collection needs to look at it again
        log.info(
            "listening",
            version=__version__,
            cluster=settings.cluster.name,
            listeners={listener.name: str(listener.bind) for listener in settings.listeners},
            admin=str(settings.admin.bind),
            mode=settings.quotas.mode,
            connections_limit=self._connections_limit,
            loop=self._loop_name,
        )

    async def _stop(self) -> int:
        self._close_listeners()
        sessions = [session for listener in self._listeners for session in listener.sessions]
        log.info("stopping", sessions=len(sessions), drain_s=self._settings.drain.timeout_s)
        draining = spawn(drain(sessions, self._settings.drain.timeout_s), "drain")
        hurry = spawn(self._cut_short.wait(), "wait for a second signal")
        await asyncio.wait((draining, hurry), return_when=asyncio.FIRST_COMPLETED)
        cut_off = draining.result() if draining.done() else None
        for listener in self._listeners:
            for session in list(listener.sessions):
                session.abort()
        await self._usage.stop()
        await self._admin.stop()
        log.info("stopped", cut_off=cut_off, hurried=cut_off is None)
        return 0 if cut_off is not None else _EXIT_FAILED

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()

    def on_stop_signal(self) -> None:
        """Stop: after draining the first time, at once the second."""
        (self._cut_short if self._stopping.is_set() else self._stopping).set()

    def _rules(self) -> Rules:
        settings = self._settings
        advertised = advertised_limits(
            fetch_max_version=settings.kafka.fetch_max_version, share_groups=settings.kafka.share_groups
        )
        self._tables = [
            serve(advertised, settings.quotas.response, authenticated=authenticated) for authenticated in (True, False)
        ]
        return Rules(
            engine=self._engine,
            throttling=self._throttling,
            served=self._tables[0],
            served_before_authentication=self._tables[1],
            advertised=advertised,
            request_limit=settings.limits.request_bytes,
            unauthenticated_request_limit=settings.limits.request_before_authentication_bytes,
            response_limit=settings.limits.response_bytes,
            clock=now_ms,
            on_rejected=lambda side, error, peer: self._rejections.note(side, error, peer, now_ms()),
        )

    def _sasl_rules(self, listener: ListenerSettings, way: Way) -> SaslRules:
        def ended(mechanism: str, succeeded: bool, peer: str) -> None:
            outcome = "succeeded" if succeeded else "failed"
            self._stats.authentications[listener.name, mechanism, outcome] += 1
            log.debug("authentication", listener=listener.name, mechanism=mechanism, outcome=outcome, peer=peer)

        kerberos = listener.sasl.kerberos
        if kerberos is not None:
            self._acceptors[listener.name] = acceptor(kerberos)
        mechanisms = Mechanisms(listener.sasl.sub_claim, self._acceptors.get(listener.name))
        return SaslRules(mechanisms.begin, way.owner_of, ended)

    def _connections_by_descriptors(self) -> int:
        """Raise the soft descriptor limit to the hard one, and leave two descriptors for each connection.

        uvloop accepts and closes past the limit without a word, so refusing has to be ours.
        """
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        bound = [listener.brokers for listener in self._settings.listeners if listener.brokers]
        ports = sum(len(ports) for brokers in bound for ports in brokers.ports())
        room = hard - _DESCRIPTORS_RESERVED - ports
        if room < 2:
            raise OSError(f"a limit of {hard} open files leaves no room for connections: raise it (ulimit -n)")
        return room // 2

    async def _reload(self) -> None:
        await self._quotas.load()
        for listener in self._listeners:
            await listener.reload_tls()

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(_TIDY_EVERY_S)
            now = now_ms()
            self._engine.expire(now)
            self._rejections.flush(now)

    # ------------------------------------------------------------------------------------------------- what is shown

    def _not_ready(self) -> list[str]:
        reasons = []
        if self._stopping.is_set():
            reasons.append("stopping")
        for cluster in self._routes.clusters:
            if (why := cluster.why_not_ready) is not None:
                reasons.append(f"cluster {cluster.name}: {why}")  # noqa: PERF401  two kinds of reasons
        return reasons

    def _snapshot(self) -> Snapshot:
        stats = self._stats
        requests = [0] * 128
        for table in self._tables:
            for served in table.values():
                requests[served.spec.api_key] += served.requests
        return Snapshot(
            usage=self._engine.usage(now_ms()),
            delay_queue=self._throttling.queue_sizes(),
            requests=requests,
            sessions=dict(stats.sessions),
            connections=dict(stats.connections),
            authentications=dict(stats.authentications),
            gssapi_unread={
                (name, cause): each.unread[cause] for name, each in self._acceptors.items() for cause in Unread
            },
            rejected=dict(stats.rejected),
            certificate_expiry_s=dict(stats.certificate_expiry_s),
            certificate_reloads=dict(stats.certificate_reloads),
            reloads=dict(stats.reloads),
            reload_error=stats.reload_error,
            quotas_configured=len(self._quotas.policy.limits),
            quotas_loaded_at_s=self._quotas.loaded_at_s,
            brokers=self._routes.reachable(),
            connections_limit=self._connections_limit,
            lag_counts=list(stats.lag_counts),
            lag_sum_s=stats.lag_sum_s,
            shipping=copy(self._usage.shipping) if self._settings.usage is not None else None,
            info={"version": __version__, "python": platform.python_version(), "loop": self._loop_name},
        )
