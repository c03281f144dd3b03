"""For all tests: Hypothesis judges what the code does, not how fast a busy machine did it.

``fixed`` tries the same examples each time, so that a test that fails says something of the change before it.
``explore`` (``make test-all``) tries others each time, and 25 times as many.

``make test-compiled`` sets SLUICE_EXPECT_COMPILED: then it is the installed wheel that is tested, and not the sources,
with half as many examples.
"""

import gc
import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.harness.examples import FEW, MANY

_UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)

settings.register_profile("fixed", _UNTIMED, derandomize=True, max_examples=FEW)
settings.register_profile("explore", _UNTIMED, max_examples=MANY)
settings.register_profile("compiled", _UNTIMED, derandomize=True, max_examples=FEW // 2)

COMPILED = bool(os.environ.get("SLUICE_EXPECT_COMPILED"))
settings.load_profile("compiled" if COMPILED else "fixed")
if COMPILED:
    from tests.harness.compiled import use_installed

    use_installed()


# A shell starts what runs in its background with SIGINT ignored, and so would every program be that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Ten thousand tests are looked at by no garbage collection: a tenth of the time of the unit tests."""
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if COMPILED and (mark := item.get_closest_marker("uncompiled")) is not None:
            item.add_marker(pytest.mark.skip(reason=f"compiled: {mark.args[0]}"))
