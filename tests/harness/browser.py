"""Chromium without a window, through its DevTools protocol; files are shown without a network."""

import asyncio
import base64
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp

from tests.harness.polling import until

START_TIMEOUT_S = 60
ANSWER_TIMEOUT_S = 60


def installed() -> str | None:
    return shutil.which("chromium")


def axe() -> Path:
    """Return axe-core's script (``tests.harness.setup`` installs it)."""
    spec = find_spec("axe_playwright_python")
    assert spec is not None, "axe-core is not installed: run `make setup`"
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "axe.min.js"


class Page:
    """One page. ``complaints`` are console messages and exceptions, ``requests`` the URLs asked for."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self.complaints: list[str] = []
        self.requests: list[str] = []

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": params})
        return await self._until(lambda message: message.get("id") == self._number)

    async def open(self, where: Path | str, *, width: int, dark: bool = False, javascript: bool = True) -> None:
        """Show a file or a URL, in a window as wide as a phone or a wall."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        network = {"offline": isinstance(where, Path), "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        await self.call("Network.emulateNetworkConditions", **network)
        await self.call("Emulation.setScriptExecutionDisabled", value=not javascript)
        await self.resize(width, 900)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        await self.go(where.as_uri() if isinstance(where, Path) else where)

    async def go(self, url: str) -> None:
        """Show another URL in the same window."""
        await self.call("Page.navigate", url=url)
        await self.loaded()

    async def loaded(self) -> None:
        """Wait for a page that something has begun to load."""
        await self._until(lambda message: message.get("method") == "Page.loadEventFired")

    async def press(self, key: str, text: str = "") -> None:
        """Press a key: ``Tab``, ``Enter``."""
        code = {"Tab": 9, "Enter": 13, " ": 32}.get(key, 0)
        down = {"type": "keyDown", "key": key, "windowsVirtualKeyCode": code} | ({"text": text} if text else {})
        await self.call("Input.dispatchKeyEvent", **down)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    async def until(self, expression: str) -> Any:
        """Wait until a JavaScript expression is true, and return its value."""
        return await until(lambda: self.evaluate(expression), expression, ANSWER_TIMEOUT_S)

    async def resize(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        await self.call("Emulation.setDeviceMetricsOverride", **metrics)

    async def evaluate(self, expression: str, *, wait: bool = False) -> Any:
        """Return the value of a JavaScript expression; ``wait``: of the promise that it is."""
        asked = {"expression": expression, "returnByValue": True, "awaitPromise": wait}
        answer = await self.call("Runtime.evaluate", **asked)
        assert "exceptionDetails" not in answer["result"], answer
        return answer["result"]["result"].get("value")

    async def violations(self) -> list[str]:
        """Return what axe-core complains of: rule and element."""
        await self.evaluate(axe().read_text(encoding="utf-8"))
        said = "each.id + ': ' + each.nodes.map(node => node.html.slice(0, 200)).join(', ')"
        found: list[str] = await self.evaluate(
            f"axe.run().then(result => result.violations.map(each => {said}))", wait=True
        )
        return found

    async def screenshot(self) -> bytes:
        """Take a picture of the whole page, a PNG."""
        size = await self.call("Page.getLayoutMetrics")
        clip = {**size["result"]["cssContentSize"], "scale": 1}
        answer = await self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(answer["result"]["data"])

    async def _until(self, wanted: Any) -> dict[str, Any]:
        while True:
            message: dict[str, Any] = await self._socket.receive_json(timeout=ANSWER_TIMEOUT_S)
            self._note(message)
            if wanted(message):
                return message

    def _note(self, message: dict[str, Any]) -> None:
        match message.get("method"):
            case "Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Log.entryAdded":
                self.complaints.append(json.dumps(message["params"]))
            case "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])


@asynccontextmanager
async def page() -> AsyncIterator[Page]:
    """Start a browser for one page, and end it."""
    program = installed()
    assert program is not None, "chromium is not installed: run `make setup`"
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = await asyncio.create_subprocess_exec(
            program,
            "--headless",
            "--disable-gpu",
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
            *as_root,
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            port = await _port(Path(profile) / "DevToolsActivePort")
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
                async with session.get("/json/list") as answer:
                    [target] = [each for each in await answer.json() if each["type"] == "page"]
                # A picture of a long page is larger than the 4 MiB that are aiohttp's bound.
                async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    yield Page(socket)
        finally:
            browser.terminate()
            await browser.wait()


async def _port(file: Path) -> int:
    written = await until(lambda: _text(file), f"its port in {file.name}", START_TIMEOUT_S)
    return int(written.split()[0])


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""
