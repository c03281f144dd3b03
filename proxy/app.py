"""The composition root: what runs, in which order it starts, and how it stops."""

import asyncio
import gc
import platform
import resource
import signal
import sys
from collections.abc import Callable
from copy import copy
from functools import partial
from pathlib import Path

import structlog

from config.settings import Listener as ListenerSettings
from config.settings import Settings
from protocol.api_versions import advertised_limits
from protocol.produce_topics import MOST_VERSION
from proxy import __version__, build
from proxy.admin.server import AdminServer
from proxy.admin.whoami import identify
from proxy.brokers.failures import describe
from proxy.control.quota_file import QuotaFile
from proxy.control.settings_file import SettingsFile
from proxy.edge.connection_places import Places
from proxy.edge.drain import drain
from proxy.edge.endings import Endings
from proxy.edge.listeners import Admission, Listener
from proxy.edge.rejections import Rejections
from proxy.edge.routes import ClusterView, Routes
from proxy.edge.stats import Snapshot, Stats
from proxy.edge.tls import ignore_undecodable_names
from proxy.identity.certificates.distinguished_name import rfc2253
from proxy.identity.certificates.ssl_mapping import parse_rules
from proxy.identity.failed_logins import FailedLogins
from proxy.identity.kerberos.gssapi import GssapiAcceptor, Unread, acceptor
from proxy.identity.mechanisms.known import Mechanisms
from proxy.identity.sasl import SaslRules
from proxy.runtime import faults, logs
from proxy.runtime.clock import now_ms
from proxy.runtime.faults import contained
from proxy.runtime.file_watch import FileWatch
from proxy.runtime.lag import watch as watch_lag
from proxy.runtime.slices import in_slices
from proxy.runtime.tasks import AFTER_FAULT_S, attempt, every, later, on_loop_error, on_signal, spawn
from proxy.runtime.turns import Turns
from proxy.session.rules import Rules
from proxy.session.serving import Served, serve
from proxy.session.session import Session
from proxy.session.throttling import Throttling
from proxy.usage.service import UsageService
from quotas.engine import Engine, Window
from quotas.policy import Policy

log = structlog.get_logger("sluice")

_EXIT_FAILED = 1
_EXIT_CONFIG = 2  # as the command line's own; a service manager need not try again
_LAST_WORDS_S = 5.0
"""How long a stop waits for the last usage records to be kept."""
_TIDY_EVERY_S = 1.0
_SWITCH_INTERVAL_S = 0.001
"""How long a thread may hold the interpreter: rendering 2,000 entities then delays the loop half as much."""
_DESCRIPTORS_RESERVED = 128
"""For what is neither a client nor its broker: listening ports, the admin port, files, Metadata."""


def run(settings: Settings, path: Path) -> int:
    """Run the proxy with the settings that ``path`` holds until it is told to stop; returns the exit status."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    runner, loop_name = _loop_runner()
    with runner:
        return runner.run(App(settings, path, loop_name).run())


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


def _release_later(delay_s: float, release: Callable[[], None]) -> asyncio.TimerHandle:
    """Set the timer of a delay queue. One that fails is set again: without it, all that is muted would stay so."""
    return later(delay_s, "delay queue", release, otherwise=partial(_release_later, AFTER_FAULT_S, release))


class App:
    """Everything that runs in the process, wired together."""

    def __init__(self, settings: Settings, path: Path, loop_name: str) -> None:
        self._settings = settings
        self._file = SettingsFile(path, settings)
        self._loop_name = loop_name
        self._stats = Stats()
        self._rejections = Rejections(self._stats)
        self._failed_logins = FailedLogins()
        self._stopping = asyncio.Event()
        self._delay_s = settings.drain.delay_s
        self._reloading = asyncio.Lock()
        self._reload_waits = False
        self._hurried = False
        self._finishing: asyncio.Task[None] | None = None
        window = Window(settings.quotas.window.samples, settings.quotas.window.size_ms)
        self._engine = Engine(Policy(), window)
        quotas = settings.quotas
        self._quotas = QuotaFile(quotas.store.path, self._engine, self._stats, enabled=quotas.mode != "off")
        self._connections_limit = 0
        self._cut_off = 0
        self._tables: list[dict[int, Served]] = []
        self._listeners: list[Listener] = []
        self._acceptors: dict[str, GssapiAcceptor] = {}
        self._routes = Routes(settings)
        self._usage = UsageService(settings, self._engine, window)

    async def run(self) -> int:
        """Start, serve, and stop when a signal says so."""
        asyncio.get_running_loop().set_exception_handler(on_loop_error)
        for number in (signal.SIGTERM, signal.SIGINT):
            on_signal(number, "stop", self.on_stop_signal, number)
        on_signal(signal.SIGHUP, "load files again", self._on_reload_signal)
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
            max_hold_ms=settings.quotas.max_hold_ms,
            call_later=_release_later,
            clock=now_ms,
        )
        self._quotas.on_applied = lambda: self._throttling.reconsider(now_ms())
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
            view = self._routes.of(each)
            sasl, meters = self._sasl_rules(each, view), self._usage.meters_of(each.name)
            listener = Listener(each, view.cluster, rules, sasl, meters, _certificate_names(each), admission)
            view.listeners.append(listener)
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
            cluster.watch()
        every(_TIDY_EVERY_S, self._tidy, "drop what is idle")
        Endings(self._listeners, limits, self._stats, now_ms).watch()
        watch_lag(self._stats.observe_lag)
        FileWatch([self._quotas.path], self._quotas.reload).run("watch the quota file")
        for listener in self._listeners:
            if listener.tls is not None:
                FileWatch(listener.tls.files, listener.reload_tls).run("watch the certificate")
        gc.collect()
        gc.freeze()  # what exists now lives as long as the process: no collection needs to look at it again
        log.info(
            "listening",
            version=__version__,
            build=build(),
            cluster=settings.cluster.name,
            listeners={listener.name: str(listener.bind) for listener in settings.listeners},
            admin=str(settings.admin.bind),
            mode=settings.quotas.mode,
            connections_limit=self._connections_limit,
            loop=self._loop_name,
        )

    async def _stop(self) -> int:
        """Be not ready for a while, then take nobody, then finish; the admin port says so to the end."""
        log.info("stopping", delay_s=self._delay_s, drain_s=self._settings.drain.timeout_s)
        self._finishing = spawn(self._finish(), "finish requests in flight")
        if self._hurried:
            self._finishing.cancel()
        await asyncio.wait((self._finishing,))
        self._close_listeners()
        for session in self._sessions():
            contained("cut a session off", session.abort)
            self._cut_off += 1
        await attempt("ship the last usage records", lambda: self._usage.stop(0 if self._hurried else _LAST_WORDS_S))
        await attempt("close the admin port", self._admin.stop)
        log.info("stopped", cut_off=self._cut_off, hurried=self._hurried)
        return _EXIT_FAILED if self._hurried else 0

    async def _finish(self) -> None:
        await asyncio.sleep(self._delay_s)
        self._close_listeners()
        sessions = self._sessions()
        log.info("draining", sessions=len(sessions))
        self._cut_off = await drain(sessions, self._settings.drain.timeout_s)

    def _sessions(self) -> list[Session]:
        return [session for listener in self._listeners for session in listener.sessions]

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            contained("close a listener", listener.close)

    def on_stop_signal(self, number: int = signal.SIGTERM) -> None:
        """Stop: after draining the first time, at once the second. Who types Ctrl-C waits for no load balancer."""
        if number == signal.SIGINT:
            self._delay_s = 0.0
        if self._stopping.is_set() and (self._finishing is None or self._finishing.cancel()):
            self._hurried = True
        self._stopping.set()

    def _rules(self) -> Rules:
        settings = self._settings
        advertised = advertised_limits(
            fetch_max_version=settings.kafka.fetch_max_version,
            produce_max_version=MOST_VERSION if self._usage.protected_topics else None,
            share_groups=settings.kafka.share_groups,
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
            find_coordinator_limit=settings.limits.find_coordinator_bytes,
            gathered_limit=settings.limits.gathered_bytes,
            clock=now_ms,
            on_rejected=lambda side, error, peer: self._rejections.note(side, error, peer, now_ms()),
            later=Turns(asyncio.get_running_loop().call_soon).later,
            protected_topics=self._usage.protected_topics,
        )

    def _sasl_rules(self, listener: ListenerSettings, view: ClusterView) -> SaslRules:
        def ended(mechanism: str, succeeded: bool, peer: str, claimed: str | None) -> None:
            outcome = "succeeded" if succeeded else "failed"
            self._stats.authentications[listener.name, mechanism, outcome] += 1
            log.debug("authentication", listener=listener.name, mechanism=mechanism, outcome=outcome, peer=peer)
            if not succeeded:
                self._failed_logins.note(listener.name, mechanism, claimed, peer, now_ms())

        kerberos = listener.sasl.kerberos
        if kerberos is not None:
            self._acceptors[listener.name] = acceptor(kerberos)
        mechanisms = Mechanisms(listener.sasl.sub_claim, self._acceptors.get(listener.name))
        return SaslRules(mechanisms.begin, view.owner_of, ended)

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

    def _on_reload_signal(self) -> None:
        if not self._reload_waits:  # one that waits for the one under view will see this change, too
            self._reload_waits = True
            spawn(self._reload(), "load files again")

    async def _reload(self) -> None:
        async with self._reloading:
            self._reload_waits = False
            jobs = [self._quotas.reload, *(listener.reload_tls for listener in self._listeners), self._file.compare]
            for job in jobs:
                await attempt("load files again", job)

    def _tidy(self) -> None:
        now = now_ms()
        self._throttling.tidy(now)
        self._engine.expire(now)
        self._rejections.flush(now)
        self._failed_logins.flush(now)
        logs.flush()

    # ------------------------------------------------------------------------------------------------- what is shown

    def _not_ready(self) -> list[str]:
        reasons = ["stopping"] if self._stopping.is_set() else []
        parts = [(f"cluster {cluster.name}", cluster.why_not_ready) for cluster in self._routes.clusters]
        parts += [(f"listener {listener.name}", listener.why_not_ready) for listener in self._listeners]
        return reasons + [f"{part}: {why}" for part, why in parts if why is not None]

    async def _snapshot(self) -> Snapshot:
        usage = await in_slices(self._engine.take(now_ms()))
        clients = await in_slices(self._usage.meters.take_traffic())
        stats = self._stats
        requests = [0] * 128
        for table in self._tables:
            for served in table.values():
                requests[served.spec.api_key] += served.requests
        return Snapshot(
            mode=self._settings.quotas.mode,
            usage=usage,
            gone=self._engine.take_gone(),
            clients=clients,
            delay_queue=self._throttling.queue_sizes(),
            fetches_answered_empty=self._throttling.answered_empty,
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
            ready=not self._not_ready(),
            internal_errors=dict(faults.counts),
            brokers=self._routes.reachable(),
            connections_limit=self._connections_limit,
            lag_counts=list(stats.lag_counts),
            lag_sum_s=stats.lag_sum_s,
            log_dropped=logs.dropped(),
            shipping=copy(self._usage.shipping) if self._settings.usage is not None else None,
            info={
                "version": __version__,
                "build": build(),
                "python": platform.python_version(),
                "loop": self._loop_name,
            },
        )
