"""The admin port of a program: which paths it has, and who answers them."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from config.settings import Settings
from proxy.admin.access import Access
from proxy.admin.api import Api
from proxy.admin.health import Health
from proxy.admin.hosts import Hosts
from proxy.admin.instances import InstancePages
from proxy.admin.metrics import Renderer
from proxy.admin.mode import ModePage, Switch
from proxy.admin.route import RefusedError
from proxy.admin.scrapes import Scrapes
from proxy.admin.series_limits import divide
from proxy.admin.server import AdminServer
from proxy.edge.stats import Snapshot
from proxy.page.actions import Controls
from proxy.page.changes import Changes
from proxy.page.pages import Pages
from proxy.state.answers import State

if TYPE_CHECKING:
    from proxy.owners.changes import GroupChanges
    from proxy.owners.messages import ChangeMessage


@dataclass(frozen=True, slots=True)
class Program:
    """What the admin port shows of a program, and changes."""

    state: State
    access: Access
    mode: Switch
    changes: Changes
    snapshot: Callable[[], Awaitable[Snapshot]]
    not_ready: Callable[[], Awaitable[list[str]]]
    remarks: Callable[[], Awaitable[list[str]]]
    """What is wrong while it is ready."""
    demand: Callable[[Mapping[str, str]], bytes | None]
    """Signed for the instance that asks; None without other instances."""
    is_of_instance: Callable[[str, str], bool]
    """Whether another instance of the group asks, given ``Authorization`` and the path with its parameters."""


class OtherInstances:
    """The other instances of the group, if there is one now."""

    def __init__(self, changes: "Callable[[], GroupChanges | None]") -> None:
        self._changes = changes

    async def tell(self, what: str, form: Mapping[str, str], who: str, source: str) -> Mapping[str, str | None]:
        """Have them all make a change; return each with why it did not, None if it did."""
        changes = self._changes()
        return {} if changes is None else await changes.tell(what, form, who, source)

    def hear(self, data: bytes) -> "ChangeMessage":
        """Return a change that another one tells. Raises RefusedError."""
        if (changes := self._changes()) is None:
            raise RefusedError(404, "there are no other instances: see owners.group")
        from proxy.owners.messages import MessageError

        try:
            return changes.hear(data)
        except MessageError as error:
            raise RefusedError(403, str(error)) from None


def admin_server(settings: Settings, program: Program) -> AdminServer:
    """Return the server of the admin port."""
    metrics, access = settings.metrics, program.access
    controls = Controls(access, ModePage(program.mode, access), program.changes)
    routes = {
        **Health(program.not_ready, program.remarks).routes(),
        **Scrapes(program.snapshot, Renderer(divide(metrics.max_series, len(metrics.compat)), metrics.compat)).routes(),
        **InstancePages(program.demand, program.changes.hear).routes(),
        **Api(program.state).routes(),
        **Pages(program.state.ask, controls).routes(),
    }

    async def may_read(request: web.BaseRequest) -> None:
        if access.is_closed and not program.is_of_instance(request.headers.get("Authorization", ""), request.raw_path):
            await access.who(request, "read")

    return AdminServer(settings.admin.bind, routes, Hosts(_names(settings)), may_read)


def _names(settings: Settings) -> Iterator[str]:
    """Yield the names under which it may be asked, besides those of this machine."""
    yield from settings.admin.hosts
    for listener in settings.listeners:
        yield listener.advertise.host
