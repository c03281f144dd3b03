"""Faults of the proxy's own: counted each time, logged once a minute, and never passed on."""

import pytest
from structlog.testing import capture_logs

from proxy.runtime import faults
from proxy.runtime.faults import contained, report
from proxy.runtime.log_lines import MINUTE_MS


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


def fail(*_: object) -> None:
    raise KeyError("x")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time in ms, as its one item."""
    now_ms = [1_000_000]
    monkeypatch.setattr(faults, "now_ms", lambda: now_ms[0])
    for state in ("counts", "_lines"):
        monkeypatch.setattr(faults, state, type(getattr(faults, state))())
    return now_ms


def test_contained_call_without_fault_returns_its_result(clock: list[int]) -> None:
    assert contained("here", divmod, 7, 2) == (3, 1)
    assert faults.counts == {}


def test_contained_fault_is_counted_and_logged_by_place(clock: list[int]) -> None:
    with capture_logs() as logs:
        assert contained("here", fail, 1) is None
        assert contained("there", fail) is None
    assert faults.counts == {"here": 1, "there": 1}
    assert [(line["where"], line["log_level"], line["exc_info"].args) for line in logs] == [
        ("here", "error", ("x",)),
        ("there", "error", ("x",)),
    ]


def test_repeated_faults_are_logged_once_a_minute_with_count(clock: list[int]) -> None:
    with capture_logs() as logs:
        for _ in range(1000):
            contained("here", fail)
        clock[0] += MINUTE_MS
        contained("here", fail)
    assert faults.counts == {"here": 1001}
    assert [line["repeated"] for line in logs] == [0, 999]


def test_fault_in_fallback_of_a_fault_is_contained(clock: list[int]) -> None:
    called: list[str] = []
    contained("here", fail, otherwise=lambda: called.append("otherwise"))
    contained("here", fail, otherwise=fail)
    contained("here", len, "x", otherwise=lambda: called.append("not after what went well"))
    assert (called, faults.counts) == (["otherwise"], {"here": 3})


def test_an_error_that_cannot_be_shown_is_counted_all_the_same(clock: list[int]) -> None:
    report("here", UnspeakableError())
    assert faults.counts == {"here": 1}


def test_keyboard_interrupt_is_not_contained_as_fault(clock: list[int]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        contained("here", interrupted)
