"""How long a broker was at the requests of one connection, as far as that can be seen from here."""

from typing import TYPE_CHECKING, Final

from proxy.session.timed import Timed
from proxy.usage.request_times import HANDED_ON_NS, BrokerTimes, ClientTimes, RequestTimes

if TYPE_CHECKING:
    from proxy.session.pair import Pair

USUAL_AT_MOST: Final = 2.0
"""What takes no more than so many times what is usual is taken for usual: a broker is not always equally fast."""


class TimeSeen:
    """The requests under way, and what their answers say: a broker works on one of them at a time, in order."""

    __slots__ = ("_blind", "_pair", "_seen_ns", "_under_way")

    def __init__(self, pair: "Pair") -> None:
        self._pair = pair
        self._under_way: list[Timed] | None = None
        """Of the entries in flight that are TIMED, in their order; from the first one on."""
        self._seen_ns = 0
        """When the last answer came."""
        self._blind = False
        """The broker was not read for a while: when the next answer came is not known."""

    def lose_sight(self) -> None:
        """Take note that the broker was not read: what comes next may have come before."""
        self._blind = bool(self._under_way)

    def _took_us(self, timed: Timed, known: ClientTimes, size: int, now_ms: int) -> tuple[int, int]:
        """Return the time of the broker's threads as it was seen and as it is usual: one where it cannot be seen."""
        times, api = self._pair.rules.times, timed.api
        usual, unseen = api.usual_ns(timed.size, size), timed.may_wait or self._blind
        came_ns = times.clock_ns()
        self._look(times, timed, known.broker, came_ns, now_ms)
        self._blind, self._seen_ns = False, came_ns
        times.chunks += 1
        if not unseen:
            api.note(timed.work_ns)
            usual = max(usual, api.certain_ns(timed.work_ns))
        usual_us = round(usual / 1000)
        if unseen or timed.elapsed_ns <= max(times.blur_ns, usual * USUAL_AT_MOST):
            return usual_us, usual_us
        return timed.elapsed_ns // 1000, usual_us

    def _look(self, times: RequestTimes, timed: Timed, broker: BrokerTimes, came_ns: int, now_ms: int) -> None:
        """Find out how long the oldest request took, whose answer has come."""
        before_ns = self._seen_ns
        if timed.start_ns < before_ns:  # it stood behind another one here, and the way there was behind it already
            timed.elapsed_ns = came_ns - before_ns
            timed.work_ns = float(timed.elapsed_ns - HANDED_ON_NS)
            return
        elapsed_ns = came_ns - timed.start_ns
        if not self._blind:
            elapsed_ns -= broker.floor_ns(timed.api.api_key, elapsed_ns, now_ms)
        timed.elapsed_ns = elapsed_ns
        timed.work_ns = elapsed_ns - times.meanwhile_ns(timed.chunks)
