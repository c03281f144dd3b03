"""Signals, and brokers that are away, without brokers; with them it is tests/integration/test_ingest_outage.py."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator

import pytest

from analysis.errors import AnalysisError, AwayError
from analysis.ingest.outage import Outage, Signals, duration


class Brokers:
    """They fail so often, each time for the next reason, and then answer."""

    def __init__(self, *reasons: str) -> None:
        self._reasons = list(reasons)
        self.asked = 0

    def probe(self) -> None:
        self.asked += 1
        if self._reasons:
            raise AwayError(self._reasons.pop(0))


@pytest.fixture
def signals() -> Iterator[Signals]:
    found = Signals()
    with found.heard():
        yield found


def test_an_outage_is_told_once_and_its_end(signals: Signals) -> None:
    told: list[str] = []
    brokers = Brokers("refused", "refused", "no answer", "no answer")
    outage = Outage(signals, brokers.probe, told.append, first_s=0.001)
    outage.wait("refused")
    assert brokers.asked == 5
    assert outage.lasts
    outage.wait("refused")
    outage.over()
    outage.over()
    assert told == [
        "brokers are away, waiting for them: refused",
        "brokers are still away: no answer",
        "brokers are still away: refused",
        "brokers answer again, after 0 s: going on",
    ]
    assert not outage.lasts


def test_what_has_not_begun_has_no_end(signals: Signals) -> None:
    told: list[str] = []
    Outage(signals, Brokers().probe, told.append).over()
    assert told == []


@pytest.mark.parametrize("asks", [True, False])
def test_a_signal_ends_the_wait_at_once(signals: Signals, *, asks: bool) -> None:
    """Whether the brokers are being asked, in a loop of asyncio, or nothing is done until they are asked again."""
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM))

    def probe() -> None:
        if not timer.is_alive():
            timer.start()
        asyncio.run(asyncio.sleep(600 if asks else 0))
        raise AnalysisError("away")

    outage = Outage(signals, probe, lambda _: None, first_s=0.001 if asks else 0.04)
    outage.wait("away")
    timer.join()
    assert signals.came


def test_after_a_signal_nothing_is_waited_for(signals: Signals) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    brokers = Brokers()
    Outage(signals, brokers.probe, lambda _: None).wait("away")
    assert brokers.asked == 0


def test_signals_are_given_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Signals().heard():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(("seconds", "said"), [(0.4, "0 s"), (59, "59 s"), (190, "3 min 10 s"), (7300, "2 h 1 min")])
def test_durations(seconds: float, said: str) -> None:
    assert duration(seconds) == said
