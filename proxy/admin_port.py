"""The admin port of a program: which paths it has, and who answers them."""

import ssl
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from aiohttp import web

from config.settings import Settings
from proxy.admin.access import Access
from proxy.admin.endpoints import Scrapes, api, health, of_instances
from proxy.admin.metrics import Renderer
from proxy.admin.series import divide
from proxy.admin.server import AdminServer, Hosts
from proxy.admin.tls import NAME as CERTIFICATE
from proxy.admin.tls import AdminTls, tls_of
from proxy.control.mode import ModeSwitch
from proxy.other_instances import OtherInstances
from proxy.page.actions import Controls
from proxy.page.changes import Changes
from proxy.page.pages import Pages
from proxy.runtime.files import FileWatch
from proxy.snapshot import Snapshot
from proxy.state.answers import State


@dataclass(frozen=True, slots=True)
class Program:
    """The parts of a program that the admin port shows, and changes."""

    state: State
    mode: ModeSwitch
    changes: Changes
    others: OtherInstances
    snapshot: Callable[[], Awaitable[Snapshot]]
    not_ready: Callable[[], Awaitable[list[str]]]
    remarks: Callable[[], Awaitable[list[str]]]
    """Returns faults that do not keep it from being ready."""


class AdminPort:
    """Open from ``start`` to ``stop``."""

    def __init__(self, settings: Settings, program: Program) -> None:
        self._settings = settings
        self._program = program
        self._tls: AdminTls | None = None
        self._access = Access(settings.admin)
        self.is_open = False

    async def start(self) -> None:
        """Open the port, if it is not open yet. Raises OSError."""
        if self.is_open:
            return
        self._tls = tls_of(self._settings.admin)
        self._access = Access(self._settings.admin, self._tls)
        self._server = admin_server(self._settings, self._program, self._access, self._tls)
        await self._server.start()
        self.is_open = True
        if self._tls is not None:
            FileWatch(self._tls.files, self._tls.load).run("watch the certificate")

    async def stop(self) -> None:
        """Close the port, after the answers in progress."""
        await self._server.stop()

    async def load_certificates(self) -> None:
        """Load the TLS files again."""
        if self._tls is not None:
            await self._tls.load()

    @property
    def context_of_others(self) -> ssl.SSLContext | None:
        """For TLS to the admin ports of other instances."""
        return None if self._tls is None else self._tls.of_others

    @property
    def certificate_expiry_s(self) -> dict[str, float]:
        """Unix time at which its certificate expires, by the name in metrics."""
        return {} if self._tls is None else {CERTIFICATE: self._tls.expires_at_s}

    @property
    def tokens(self) -> dict[str, int]:
        """Tokens that were given, by outcome."""
        return dict(self._access.tokens)


def admin_server(settings: Settings, program: Program, access: Access, tls: AdminTls | None = None) -> AdminServer:
    """Return the server of the admin port."""
    metrics, others = settings.metrics, program.others
    controls = Controls(access, program.mode, program.changes)
    routes = {
        **health(program.not_ready, program.remarks),
        **Scrapes(program.snapshot, Renderer(divide(metrics.max_series))).routes(),
        **of_instances(others.demand, program.changes.hear),
        **api(program.state),
        **Pages(program.state.ask, controls).routes(),
    }

    async def may_read(request: web.BaseRequest) -> None:
        if access.is_closed and not others.has_signed(request.headers.get("Authorization", ""), request.raw_path):
            await access.who(request, "read")

    return AdminServer(settings.admin.bind, routes, Hosts(_names(settings)), may_read, tls)


def _names(settings: Settings) -> Iterator[str]:
    """Yield the names under which it may be asked, besides those of this machine."""
    yield from settings.admin.hosts
    for listener in settings.listeners:
        yield listener.advertise.host
