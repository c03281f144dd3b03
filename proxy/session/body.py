"""A request whose end is still to come: counted, and a Produce charged, as far as it came.

A claim is not a use. What a Produce announces is charged on its header where the quota has that much left, and what of
it never came is taken back; where it has not, each part is charged when it comes.
"""

from typing import Final

from proxy.session.in_flight import Entry
from proxy.usage.meters import Meter
from quotas.engine import Bound
from quotas.rate import Sample

COMING_MS: Final = 100
"""How long others wait for a request to come that is more than its quota has left, before what has come of it says how
long. A claim that nothing follows keeps them no longer."""


class Body:
    """``bound`` is what a Produce is charged to; None of other requests, which are only counted.

    ``mark`` says where the whole of it has been charged already; None: it is charged as it comes.
    """

    __slots__ = ("bound", "entry", "mark", "meter")

    def __init__(
        self, meter: Meter, bound: Bound | None, mark: tuple[Sample, int] | None, entry: Entry | None = None
    ) -> None:
        self.meter = meter
        self.bound = bound
        self.mark = mark
        self.entry = entry
        """That expects the answer which is to tell the throttle time; None with acks=0."""

    def count(self, size: int) -> None:
        """Take note of ``size`` bytes that have come; or that have not, after all."""
        if self.bound is not None:
            self.meter.produce_bytes += size
        else:
            self.meter.other_bytes += size

    def charge(self, size: int, now_ms: int) -> int:
        """Charge ``size`` bytes that have come; returns the throttle time that the counter now asks for."""
        if self.bound is None or self.mark is not None:
            return 0
        return self.bound.charge(size, now_ms)

    def leave(self, missing: int) -> None:
        """Take back what never came."""
        if self.bound is not None:
            if self.mark is not None:
                self.bound.take_back(missing, self.mark)
            if self.bound.live.streamer is self:
                self.bound.live.streamer = None
