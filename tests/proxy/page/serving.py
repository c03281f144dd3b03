"""An admin port with the page over a state by hand, and everything that can be changed, by hand too."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from config.settings import Admin, Mode
from config.units import Address
from proxy.admin.access import Access
from proxy.admin.endpoints import Scrapes
from proxy.admin.metrics import Renderer
from proxy.admin.series import divide
from proxy.admin.server import AdminServer, Hosts
from proxy.control.mode import ModeSwitch
from proxy.control.temporary_limits import TemporaryLimits
from proxy.owners.messages import ChangeMessage
from proxy.page.actions import Controls
from proxy.page.changes import Changes
from proxy.page.open_pages import Streams
from proxy.page.pages import Pages
from quotas.policy import Policy
from quotas.stores.alteration import Alteration, Altered
from tests.harness.ports import free_port
from tests.proxy.admin.test_server import empty
from tests.proxy.page.fake_state import FakeState

TOKEN = "0123456789abcdef"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


class FakeGroup:
    """Other instances, by name and why they make no change."""

    def __init__(self) -> None:
        self.errors: dict[str, str | None] = {}
        self.told: list[tuple[str, dict[str, str], str, str]] = []

    async def tell(self, what: str, form: Mapping[str, str], who: str, source: str) -> Mapping[str, str | None]:
        self.told.append((what, dict(form), who, source))
        return self.errors

    def hear(self, data: bytes) -> ChangeMessage:
        raise NotImplementedError


class Served:
    """The page on a port, and what it has changed."""

    def __init__(self, token_file: Path | None = None, streams: Streams | None = None) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.state = FakeState()
        self.switch = ModeSwitch("enforce", self._change_mode)
        self.now_ms = 1000
        self.policy = Policy()
        self.temporary = TemporaryLimits(self._renew, self._tell, lambda: self.now_ms)
        self.told: list[tuple[Altered, Alteration]] = []
        self.closed: list[tuple[str | None, ...]] = []
        self.began_to_close = False
        self.wait_before_closing: Callable[[], Awaitable[object]] = partial(asyncio.sleep, 0)
        self.access = access = Access(Admin(token_file=token_file))
        self.group = FakeGroup()
        changes = Changes(self.temporary, self._close, self.group)
        controls = Controls(access, self.switch, changes)
        routes = {
            **Scrapes(empty, Renderer(divide(20_000))).routes(),
            **Pages(self.state.ask, controls, streams).routes(),
        }
        self.server = AdminServer(Address("127.0.0.1", self.port), routes, Hosts(("admin.example",)))

    async def _change_mode(self, mode: Mode) -> None:
        self.state.instance["mode"] = mode

    async def _renew(self) -> tuple[Policy, Policy]:
        old, self.policy = self.policy, self.temporary.over(Policy())
        return old, self.policy

    def _tell(self, altered: Any, by: Alteration) -> None:
        self.told += [(each, by) for each in altered]

    async def _close(self, *wanted: str | None) -> int:
        self.began_to_close = True
        await self.wait_before_closing()
        self.closed.append(wanted)
        return 12


@asynccontextmanager
async def serving(
    token_file: Path | None = None, streams: Streams | None = None
) -> AsyncIterator[tuple[Served, aiohttp.ClientSession]]:
    served = Served(token_file, streams)
    await served.server.start()
    try:
        jar = aiohttp.CookieJar(unsafe=True)  # cookies of an address, too
        async with aiohttp.ClientSession(served.url, cookie_jar=jar) as client:
            yield served, client
    finally:
        await served.server.stop()
