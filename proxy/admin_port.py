"""The admin port of a program: which paths it has, and who answers them."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass

from config.settings import Settings
from proxy.admin.access import Access
from proxy.admin.api import Api
from proxy.admin.health import Health
from proxy.admin.hosts import Hosts
from proxy.admin.instances import InstancePages
from proxy.admin.metrics import Renderer
from proxy.admin.mode import ModePage, Switch
from proxy.admin.scrapes import Scrapes
from proxy.admin.series_limits import divide
from proxy.admin.server import AdminServer
from proxy.control.temporary_limits import TemporaryLimits
from proxy.edge.stats import Snapshot
from proxy.page.actions import Controls
from proxy.page.pages import Pages
from proxy.state.answers import State


@dataclass(frozen=True, slots=True)
class Program:
    """What the admin port shows of a program, and changes."""

    state: State
    access: Access
    mode: Switch
    temporary: TemporaryLimits
    snapshot: Callable[[], Awaitable[Snapshot]]
    not_ready: Callable[[], Awaitable[list[str]]]
    remarks: Callable[[], Awaitable[list[str]]]
    """What is wrong while it is ready."""
    close: Callable[[str | None, str | None, str | None], Awaitable[int]]
    demand: Callable[[Mapping[str, str]], bytes | None]
    """Signed for the instance that asks; None without other instances."""


def admin_server(settings: Settings, program: Program) -> AdminServer:
    """Return the server of the admin port."""
    metrics, access = settings.metrics, program.access
    controls = Controls(access, ModePage(program.mode, access), program.temporary, program.close)
    routes = {
        **Health(program.not_ready, program.remarks).routes(),
        **Scrapes(program.snapshot, Renderer(divide(metrics.max_series, len(metrics.compat)), metrics.compat)).routes(),
        **InstancePages(program.demand).routes(),
        **Api(program.state).routes(),
        **Pages(program.state.ask, controls).routes(),
    }
    return AdminServer(settings.admin.bind, routes, Hosts(_names(settings)))


def _names(settings: Settings) -> Iterator[str]:
    """Yield the names under which it may be asked, besides those of this machine."""
    yield from settings.admin.hosts
    for listener in settings.listeners:
        yield listener.advertise.host
