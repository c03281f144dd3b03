import gc
from collections.abc import Iterator

import pytest

from proxy.runtime import collector
from proxy.runtime.collector import _Collector


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_collector_waits_until_the_last_answer_is_made() -> None:
    paused = _Collector()
    first, second = paused.pause(), paused.pause()
    with first:
        assert not gc.isenabled()
        second.__enter__()
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_answers_that_never_cease_do_not_stop_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    monkeypatch.setattr(collector, "monotonic_s", lambda: now_s[0])
    paused = _Collector()
    with paused.pause():
        for now_s[0], works in ((9.0, False), (11.0, True), (12.0, True)):
            with paused.pause():
                pass
            assert gc.isenabled() is works
    with paused.pause():
        assert not gc.isenabled()
