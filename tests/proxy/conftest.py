"""Whatever runs on a loop runs on both: uvloop, which the proxy takes, and asyncio's own, its fallback."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import uvloop

from proxy.runtime import faults
from proxy.session.flow import watched_by
from tests.conftest import COMPILED
from tests.proxy.pki import Pki
from tests.proxy.transitions import check

watched_by(check)  # every session that a test plays


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"uvloop": uvloop.new_event_loop}
    # What is compiled does not know which loop calls it: those of the sources say that either does.
    return loops if COMPILED else {"asyncio": asyncio.new_event_loop, **loops}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make test` has the loop that the proxy takes, `make test-slow` its fallback."""
    for item in items:
        parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        if asyncio.new_event_loop in parameters.values():
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def own_faults_alone() -> None:
    """Internal errors are counted for the whole process: what a test before this one left is forgotten."""
    faults.counts.clear()


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    """An authority of the test's own, and a listener's certificate by it."""
    return Pki(tmp_path)
