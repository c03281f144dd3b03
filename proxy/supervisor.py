"""The supervisor: signals, the quota store, the admin port, shipping of usage records, and listening sockets for the
worker; it also determines the order in which all parts start and stop.
"""

import asyncio
import gc
import os
import platform
import signal
import threading
from collections.abc import Callable, Coroutine
from copy import copy
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog

from config.settings import Mode, Settings
from proxy import __version__, build
from proxy.admin_port import AdminPort, Program
from proxy.brokers.failures import describe
from proxy.contract import Processes, Report
from proxy.control.mode import ModeSwitch
from proxy.control.quota_admin import QuotaAdmin
from proxy.control.quotas import QuotasInForce
from proxy.control.settings_file import SettingsFile
from proxy.control.state_file import StateFile
from proxy.control.stores import open_quotas, open_static
from proxy.control.temporary_limits import path_beside
from proxy.edge.listening import bind, unused
from proxy.edge.quota_requests import Ask
from proxy.other_instances import OtherInstances
from proxy.owners.map import OwnersMap, fixed_map
from proxy.page.changes import Changes
from proxy.runtime.files import FileWatch
from proxy.runtime.service_manager import ServiceManager, inherited_sockets
from proxy.runtime.tasks import attempt, on_loop_error, on_signal, spawn
from proxy.snapshot import Snapshot, WorkerSnapshot
from proxy.state.answers import State
from proxy.usage.service import shipper_of
from proxy.worker import Worker

T = TypeVar("T")

log = structlog.get_logger("sluice")

EXIT_FAILED: Final = 1
EXIT_CONFIG: Final = 2  # as for the command line; a service manager should not restart it
_LAST_WORDS_S: Final = 5.0
"""How long a stop waits for the last usage records."""
_STEP_S: Final = 10.0
"""The longest that any other step of a stop takes: then it is left out."""
_FORCED_S: Final = 5.0
"""How long a stop goes on after the second signal, whatever hangs."""


class Supervisor:
    """Runs a worker on the same loop, or several workers in processes of their own."""

    def __init__(self, settings: Settings, path: Path, loop_name: str) -> None:
        self._settings = settings
        self._path = path
        self._loop_name = loop_name
        self._stopping = asyncio.Event()
        self._starting: asyncio.Task[int] | None = None
        """The startup task, while it waits for the quota store."""
        self._delay_s = settings.drain.delay_s
        self._reloading = asyncio.Lock()
        self._reload_waits = False
        self._hurried = False
        self._cut_off = 0
        self._finishing: asyncio.Task[None] | None = None
        self._forced: threading.Timer | None = None
        self._manager = ServiceManager(os.environ)
        self._given = inherited_sockets(os.environ)
        self._bind = partial(bind, send_buffer_bytes=settings.limits.socket_send_buffer_bytes, given=self._given)
        quotas = settings.quotas
        store = open_quotas(settings)
        kinds = " over ".join(dict.fromkeys(layer.type for layer in quotas.layers))
        self._quotas = QuotasInForce(
            store, lambda policy: self._put(policy=policy), enabled=quotas.mode != "off", kind=kinds
        )
        self._quota_admin = QuotaAdmin(self._quotas, quotas.admins)
        self._worker = self._hire(self._quota_admin.answer if store.answers_clients else None)
        not_ready = self._asking(self._reasons)
        self._shipper = shipper_of(settings, self._worker.usage)
        self._mode = ModeSwitch(quotas.mode, self._change_mode)
        state = settings.cluster.state
        self._quotas.temporary.file = None if state is None else path_beside(state)
        self._state = None if state is None else StateFile(state, settings, self._asking(lambda report: report.known))
        self._others = OtherInstances(settings.owners)
        answers = State(
            settings,
            self._worker,
            self._quotas,
            self._mode,
            not_ready,
            self._others.addresses,
            lambda: self._others.status,
            self._others.get,
        )
        changes = Changes(self._quotas.temporary, self._worker.close_connections, self._others)
        wrong_brokers = self._asking(
            lambda report: [f"{each}: no client is sent there" for each in report.wrong_brokers]
        )
        shown = Program(answers, self._mode, changes, self._others, self._snapshot, not_ready, wrong_brokers)
        self._admin = AdminPort(settings, shown)
        self._file = SettingsFile(path, settings, self._mode.configure, self._take_settings)

    def _hire(self, ask: Ask | None) -> Processes:
        if self._settings.workers == 1:
            return Worker(self._settings, self._bind, ask)
        from proxy.workers.workers import Workers

        return Workers(self._settings, self._bind, ask)

    async def run(self) -> int:
        """Start, serve, and stop on a signal; return the exit status."""
        try:
            return await self._run()
        finally:
            await self._worker.stop()
            if self._forced is not None:
                self._forced.cancel()

    async def _run(self) -> int:
        asyncio.get_running_loop().set_exception_handler(on_loop_error)
        for number in (signal.SIGTERM, signal.SIGINT):
            on_signal(number, "stop", self.on_stop_signal, number)
        on_signal(signal.SIGHUP, "load files again", self._on_reload_signal)
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            on_signal(number, "turn the mode", self._on_mode_signal, number)
        self._starting = asyncio.current_task()
        try:
            await self._quotas.temporary.restore()
            quotas = self._settings.quotas
            if not await self._quotas.start(quotas.when_unavailable, open_static(quotas)):
                return EXIT_CONFIG
        except asyncio.CancelledError:
            if not self._stopping.is_set():
                raise
            log.info("stopped before the quotas were loaded")
            return 0
        finally:
            self._starting = None
        try:
            self._quotas.watch(self._asking(lambda report: report.alterations))
            if self._quotas.known or self._quotas.stand_in or await self._wait_for_quotas():
                await self._start()
                await self._stopping.wait()
        except (OSError, ValueError) as error:
            if self._stopping.is_set():  # Ctrl-C at a terminal has ended the workers, too
                log.info("stopped before clients were served")
                return 0
            log.error("cannot start", error=describe(error))
            return EXIT_FAILED
        return await self._stop()

    # ---------------------------------------------------------------------------------------------- start and stop

    async def _wait_for_quotas(self) -> bool:
        """Serve only the admin port until the quotas are known. Returns False if the proxy is stopped before."""
        await self._admin.start()
        self._manager.started()
        await self._quotas.decided.wait()
        return not self._stopping.is_set()

    async def _start(self) -> None:
        settings = self._settings
        known = () if self._state is None else tuple(await self._state.load())
        await self._put(serving=True, known=known)
        for address in unused(self._given, settings.listeners):
            log.warning("a socket of systemd is not used: no listener has its address", address=address)
        if not self._admin.is_open:
            await self._admin.start()
            self._manager.started()
        if settings.owners is not None and settings.owners.group is not None:
            from proxy.owners.group import OwnersGroup

            self._others.group = OwnersGroup(
                settings,
                settings.owners,
                self._asking(lambda report: (report.node_ids, report.load)),
                self._put_owners,
                lambda: self._admin.context_of_others,
            )
            self._others.group.start()
        if (group := self._others.group) is not None or settings.workers > 1:
            from proxy.owners.shared_limits import SharedLimits

            of_group = () if group is None else (group.member, group.asking.get)
            self._others.shared_limits = SharedLimits(
                self._asking(lambda report: report.demand),
                lambda parts, otherwise: self._put(parts=tuple(parts), part_otherwise=otherwise),
                lambda: any(terms.of_cluster for terms in self._quotas.policy.terms.values()),
                *of_group,
            )
            self._others.shared_limits.start()
        if self._shipper is not None:
            self._shipper.start()
        if self._state is not None:
            self._state.watch()
        FileWatch([self._path], self._compare).run("watch the configuration")
        gc.collect()
        gc.freeze()  # existing objects live as long as the process: garbage collections skip them
        log.info(
            "listening",
            version=__version__,
            build=build(),
            cluster=settings.cluster.name,
            listeners={listener.name: str(listener.bind) for listener in settings.listeners},
            admin=str(settings.admin.bind),
            mode=self._mode.mode,
            loop=self._loop_name,
        )

    async def _stop(self) -> int:
        """Report not ready for a while, then stop accepting, then drain; the admin port stays up to the end."""
        self._manager.stopping()
        log.info("stopping", delay_s=self._delay_s, drain_s=self._settings.drain.timeout_s)
        self._finishing = spawn(self._finish(), "finish requests in flight")
        if self._hurried:
            self._finishing.cancel()
        await asyncio.wait((self._finishing,))
        self._quota_admin.stop()  # in case the drain was cut short
        await attempt("stop the worker", self._stop_worker, _STEP_S + _LAST_WORDS_S)
        if self._others.shared_limits is not None:
            self._others.shared_limits.stop()
        if self._others.group is not None:
            await attempt("leave the group of instances", self._others.group.leave, _STEP_S)
        if self._state is not None:
            await attempt("keep the state file", self._state.keep, _STEP_S)
        if (shipper := self._shipper) is not None:
            last_words_s = 0 if self._hurried else _LAST_WORDS_S
            await attempt("ship the last usage records", lambda: shipper.stop(last_words_s), last_words_s + _STEP_S)
        await attempt("close the admin port", self._admin.stop, _STEP_S)
        await attempt("close the quota store", self._quotas.close, _STEP_S)
        log.info("stopped", cut_off=self._cut_off, hurried=self._hurried)
        return EXIT_FAILED if self._hurried else 0

    async def _finish(self) -> None:
        if self._others.group is None:
            await asyncio.sleep(self._delay_s)
        else:  # others own its brokers, and clients are told so, before the first connection is closed
            stepping_down = attempt("have brokers owned by others", self._others.group.member.step_down, _STEP_S)
            await asyncio.gather(stepping_down, asyncio.sleep(self._delay_s))
        self._quota_admin.stop()
        await attempt("drain sessions", self._drain, self._settings.drain.timeout_s + _STEP_S)

    async def _drain(self) -> None:
        self._cut_off = await self._worker.drain(self._settings.drain.timeout_s)

    async def _stop_worker(self) -> None:
        self._cut_off += await self._worker.stop()

    def on_stop_signal(self, number: int = signal.SIGTERM) -> None:
        """Drain and stop at the first signal, stop immediately at the second. SIGINT skips the delay for load
        balancers.
        """
        if number == signal.SIGINT:
            self._delay_s = 0.0
        signal.signal(signal.SIGTERM, self._force)  # beside the handler of the loop, which is called too, if it runs
        signal.signal(signal.SIGINT, self._force)
        if self._stopping.is_set() and (self._finishing is None or self._finishing.cancel()):
            self._hurried = True
        self._stopping.set()
        if self._starting is not None:  # it may wait for the store
            self._starting.cancel()
        self._quotas.decided.set()

    def _force(self, *_: object) -> None:
        """End the process a while after the second signal, also if the loop hangs, or a thread for which it waits."""

        def end() -> None:
            self._worker.kill()
            os._exit(EXIT_FAILED)

        if self._forced is None:
            self._forced = threading.Timer(_FORCED_S, end)
            self._forced.daemon = True
            self._forced.start()

    def _on_reload_signal(self) -> None:
        if not self._reload_waits:  # a waiting reload covers this signal too
            self._reload_waits = True
            spawn(self._reload(), "load files again")

    async def _reload(self) -> None:
        async with self._reloading:
            self._reload_waits = False
            self._manager.reloading()
            for job in (self._quotas.load, self._load_certificates, self._file.compare):
                await attempt("load files again", job)
            self._manager.reloaded()

    async def _compare(self) -> None:
        async with self._reloading:
            await self._file.compare()

    # --------------------------------------------------------------------------------------------- what is in force

    def _put(self, **changed: Any) -> Coroutine[Any, Any, None]:
        """Put these fields of ``InForce`` in force, as ``Processes.put``."""
        return self._worker.put(replace(self._worker.in_force, **changed))

    async def _take_settings(self, settings: Settings) -> None:
        """Put changed addresses of listeners in force, and fixed owners."""
        owners = self._worker.in_force.owners
        if settings.owners is not None and settings.owners.fixed is not None:
            owners = fixed_map(settings.owners.fixed)
        await self._put(settings=settings, owners=owners)

    async def _load_certificates(self) -> None:
        await self._admin.load_certificates()
        await self._put(certificates_loaded=self._worker.in_force.certificates_loaded + 1)

    def _put_owners(self, owners: OwnersMap | None, fenced: bool) -> None:
        spawn(self._put(owners=owners, fenced=fenced), "tell the owners of brokers")

    # ------------------------------------------------------------------------------------------------------ the mode

    def _on_mode_signal(self, number: int) -> None:
        """SIGUSR1 switches to shadow, so that all clients are released, without a token or file; SIGUSR2 restores the
        configured mode.
        """
        mode: Mode = "shadow" if number == signal.SIGUSR1 else self._mode.configured
        source = signal.Signals(number).name
        spawn(self._mode.turn(mode, who="signal", source=source), "turn the mode")

    async def _change_mode(self, mode: Mode) -> None:
        if self._shipper is not None:
            await self._shipper.set_mode(mode)
        await self._quotas.enable(mode != "off")
        await self._put(mode=mode)

    # ------------------------------------------------------------------------------------------------- what is shown

    def _asking(self, of: Callable[[Report], T]) -> Callable[[], Coroutine[Any, Any, T]]:
        """Return a function that returns something of the worker's report."""

        async def ask() -> T:
            return of(await self._worker.report())

        return ask

    def _reasons(self, report: Report) -> list[str]:
        reasons = ["stopping"] if self._stopping.is_set() else []
        if not self._quotas.known and not self._quotas.stand_in:
            reasons.append(f"quotas: {self._quotas.error}")
        if self._others.group is not None and (why := self._others.group.member.why_not_ready) is not None:
            reasons.append(why)
        return [*reasons, *report.not_ready]

    async def _snapshot(self) -> Snapshot:
        taken, report = await self._worker.snapshot(), await self._worker.report()
        of_worker: dict[str, Any] = {each.name: getattr(taken, each.name) for each in fields(WorkerSnapshot)}
        of_worker["certificate_expiry_s"] |= self._admin.certificate_expiry_s
        return Snapshot(
            **of_worker,
            mode=self._mode.mode,
            mode_changes=self._mode.changes,
            reloads=dict(self._quotas.loads),
            reload_error=self._quotas.error,
            quotas_configured=len(self._quotas.policy.limits),
            quota_changes=dict(self._quotas.changes.counts),
            quotas_loaded_at_s=self._quotas.loaded_at_s,
            quotas_staleness_s=self._quotas.staleness_s(),
            quotas_stand_in=self._quotas.stand_in,
            ready=not self._reasons(report),
            admin_tokens=self._admin.tokens,
            workers=report.workers,
            owners=self._others.status,
            instances_unheard=self._others.unheard,
            state_file=dict(self._state.counts) if self._state is not None else None,
            shipping=copy(self._shipper.shipping) if self._shipper is not None else None,
            info={
                "version": __version__,
                "build": build(),
                "python": platform.python_version(),
                "loop": self._loop_name,
            },
        )
