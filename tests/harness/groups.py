"""What became of a group of consumers: one run of a program of many, by what it reported."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from statistics import fmean

from tests.harness.clients.process import ClientProcess, Event
from tests.harness.measure import LEAD_S, WINDOW_S, Series

FIRST_S = 10.0
REPORT_S = 1.0
TREND_WINDOWS = 5
_TIME_OUTS = ("due to request timeout", "setup timeout", "timed out", "session expired")
"""What Java's log says of them."""


@dataclass(frozen=True)
class GroupRun:
    """Rates are those of the wire: all that reached the members, records or not.

    A fetch that ends within a batch is charged, and its rest is thrown away by every client.
    """

    limit: int
    partitions: int
    members: int
    events: Sequence[Event]
    stderr: str
    window_s: float = WINDOW_S

    @classmethod
    def of(
        cls,
        client: ClientProcess,
        *,
        limit: int,
        partitions: int,
        members: int,
        timeout_s: float,
        window_s: float = WINDOW_S,
    ) -> "GroupRun":
        """When the program has ended."""
        client.event("closing", timeout_s)
        return cls(limit, partitions, members, list(client.events), client.stderr(), window_s)

    @cached_property
    def series(self) -> Series:
        progress = self._of_kind("progress")
        return Series([(progress[0]["at_s"] - 1.0, 0), *((event["at_s"], event["bytes"]) for event in progress)])

    @cached_property
    def settled_s(self) -> float:
        """When every partition had its member, for the first time."""
        owners: dict[int, int] = {}
        for event in self.events:
            if event["event"] == "assigned":
                owners |= dict.fromkeys(event["partitions"], event["member"])
            elif event["event"] == "revoked":
                gone = {each for each in event["partitions"] if owners.get(each) == event["member"]}
                owners = {partition: member for partition, member in owners.items() if partition not in gone}
            if len(owners) == self.partitions and len(set(owners.values())) == min(self.members, self.partitions):
                return float(event["at_s"])
        raise ValueError(f"{len(owners)} of {self.partitions} partitions had a member at the end")

    @property
    def rebalances(self) -> int:
        """Assignments and revocations behind that, as long as nobody leaves."""
        changes = [event for event in self._while_open() if event["event"] in {"assigned", "revoked"}]
        return sum(event["at_s"] > self.settled_s and bool(event["partitions"]) for event in changes)

    @property
    def troubles(self) -> list[str]:
        """What the clients complained of, and lost connections as they count them."""
        said = [event["text"] for event in self._while_open() if event["event"] == "trouble"]
        lost = [f"{self.closing[kind]} {kind}" for kind in ("disconnects", "timeouts") if self.closing[kind]]
        timed_out = sum(any(words in line for words in _TIME_OUTS) for line in self.stderr.splitlines())
        return [*said, *lost, *([f"{timed_out} lines of time-outs"] if timed_out else [])]

    @property
    def closing(self) -> Event:
        return self._of_kind("closing")[-1]

    @property
    def told_ms(self) -> tuple[float, float]:
        """Throttle times that the clients report: mean and most."""
        return self.closing["told_mean_ms"], self.closing["told_most_ms"]

    def rate(self, windows: int, settled_s: float | None = None) -> float:
        """Against the quota, over whole windows behind the first one, and behind the group's settling.

        Bursts follow the first bytes, a window and some tenths of a second apart: a few windows are counted from there,
        and over many, whose ends come to lie within bursts, the trend says more.
        """
        settled_s = self.settled_s if settled_s is None else settled_s
        begin_s = self.series.start_s() + self.window_s - LEAD_S
        begin_s += max(ceil((settled_s - begin_s) / self.window_s), 0) * self.window_s
        end_s = begin_s + windows * self.window_s
        if self.series.end_s() < end_s - 2 * REPORT_S:
            raise ValueError(f"the group was settled too late, at {settled_s:.1f} s")
        measure = self.series.rate if windows < TREND_WINDOWS else self.series.trend
        return measure(begin_s, end_s) / self.limit

    @property
    def first(self) -> float:
        """Records of the first ten seconds, in seconds' worth of the quota: joining takes its bytes, too."""
        useful = Series([(event["at_s"], sum(event["useful"])) for event in self._of_kind("progress")])
        return useful.bytes_at(useful.start_s() + FIRST_S - REPORT_S) / self.limit

    @property
    def parts(self) -> tuple[float, float]:
        """The least and the most that a member got, against a fair part; members without a partition left out."""
        useful = sorted(self.closing["useful"])[-min(self.members, self.partitions) :]
        return useful[0] / fmean(useful), useful[-1] / fmean(useful)

    def _of_kind(self, kind: str) -> list[Event]:
        return [event for event in self.events if event["event"] == kind]

    def _while_open(self) -> list[Event]:
        end_s = self.closing["at_s"]
        return [event for event in self.events if event["at_s"] < end_s]
