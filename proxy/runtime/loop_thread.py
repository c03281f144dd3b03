"""An event loop on its own thread, for blocking code that needs the network off the proxy's own loop."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Starts with the first work. ``close`` cancels unfinished work, then awaits ``at_end``."""

    def __init__(self, name: str, at_end: Callable[[], Awaitable[object]]) -> None:
        self._name = name
        self._at_end = at_end
        self._thread: threading.Thread | None = None
        self._running = threading.Event()
        self._starting = threading.Lock()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run ``work`` on the thread; returns immediately."""
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
                self._running.wait()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """End the thread and wait for it. The next ``submit`` starts a new one."""
        with self._starting:
            if self._thread is not None:
                asyncio.run_coroutine_threadsafe(self._end(), self._loop)
                self._thread.join()
                self._thread = None
                self._running.clear()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._running.set()
        await self._over.wait()
        if others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            await asyncio.wait(others)
        await self._at_end()

    async def _end(self) -> None:
        self._over.set()
