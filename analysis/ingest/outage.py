"""What interrupts ingestion: signals, and brokers that are away for a while."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from analysis.errors import AnalysisError

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 30.0


class _EndedError(KeyboardInterrupt):  # what asyncio lets through, whatever it is at
    """A signal has come while nothing was under way."""


class Signals:
    """SIGTERM and SIGINT: noted, and while brokers are waited for, obeyed at once."""

    def __init__(self) -> None:
        self.came = False
        self._interrupted = False
        self._at_once = False

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Have them noted, and no more."""
        before = {each: signal.signal(each, self._note) for each in _SIGNALS}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def at_once(self, work: Callable[[], None]) -> None:
        """Do something, and leave it when one comes."""
        self._at_once = True
        try:
            if not self.came:
                work()
        except _EndedError:
            pass
        finally:
            self._at_once = False

    def raise_interrupt(self) -> None:
        """Raise KeyboardInterrupt if it was SIGINT that came: what was under way has ended."""
        if self._interrupted:
            raise KeyboardInterrupt

    def _note(self, number: int, __: FrameType | None) -> None:
        self.came = True
        self._interrupted = number == signal.SIGINT
        if self._at_once:
            self._at_once = False
            raise _EndedError


class Outage:
    """What is done while brokers are away.

    ``probe`` asks them, and raises AnalysisError until they answer. ``tell`` gets a line when it begins, when its
    reason is another, and when it is over.
    """

    def __init__(
        self, signals: Signals, probe: Callable[[], None], tell: Callable[[str], None], first_s: float = _FIRST_WAIT_S
    ) -> None:
        self._signals = signals
        self._probe = probe
        self._tell = tell
        self._first_s = self._wait_s = first_s
        self._since_s: float | None = None
        self._said = ""

    @property
    def lasts(self) -> bool:
        """Whether it has begun, and is not known to be over."""
        return self._since_s is not None

    def wait(self, why: str) -> None:
        """Return when the brokers answer, or a signal has come."""
        self._say(why)
        self._signals.at_once(self._wait)

    def over(self) -> None:
        """Note that what was wanted from the brokers has been had."""
        if self._since_s is not None:
            passed_s = time.monotonic() - self._since_s  # noqa: TID251  as above
            self._tell(f"brokers answer again, after {duration(passed_s)}: going on")
        self._since_s, self._said, self._wait_s = None, "", self._first_s

    def _wait(self) -> None:
        while True:
            # Also before they are asked: they may answer this question, and not the one that failed.
            time.sleep(self._wait_s)
            self._wait_s = min(2 * self._wait_s, _LONGEST_WAIT_S)
            try:
                self._probe()
            except AnalysisError as error:
                self._say(str(error))
            else:
                return

    def _say(self, why: str) -> None:
        if self._since_s is None:
            self._since_s = time.monotonic()  # noqa: TID251  as above
            self._tell(f"brokers are away, waiting for them: {why}")
        elif why != self._said:
            self._tell(f"brokers are still away: {why}")
        self._said = why


def duration(seconds: float) -> str:
    """Return how long something took, in words."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
