"""Commands run on asyncio's own loop."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from tests.proxy.live.fake_admin import admin

__all__ = ["admin"]


@pytest.hookimpl(tryfirst=True)
def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop}
