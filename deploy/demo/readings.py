"""Readings of the clients: their own throughput, and Sluice's metrics about them."""

from dataclasses import dataclass
from typing import Final

from deploy.demo.scenario import AVERAGED_S, Participant
from tests.harness.clients.process import ClientProcess
from tests.harness.measure import Series
from tests.harness.sluice import Metrics

STEPS_PER_S: Final = 4
START_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Reading:
    """The state of one client at one moment."""

    participant: Participant
    quota_bytes_per_s: float
    """The quota in force, from Sluice's metrics; 0 until the client has been seen."""
    rate_bytes_per_s: float
    throttle_s: float


class Meter:
    """Measures one client: payload bytes acknowledged to a producer or received by a consumer."""

    def __init__(self, participant: Participant, client: ClientProcess) -> None:
        self.participant = participant
        self.client = client
        self._series = Series([(0.0, 0.0)])
        self._read_events = 0
        self._throttle_s: list[tuple[float, float]] = []

    def wait_for_first_bytes(self) -> None:
        """Wait for the first payload. Raises ClientError if the client ends first."""
        self.client.wait_for(lambda client: bool(client.of_kind("progress")), "the first bytes", START_TIMEOUT_S)

    def read(self, now_s: float, metrics: Metrics) -> Reading:
        """Return a reading, with all events reported so far."""
        self._take_in()
        labels = {"client_id": self.participant.client_id, "kind": self.participant.quota_kind}
        limits = metrics.samples("sluice_quota_limit_bytes_per_second", **labels)
        throttle_s = metrics.value("sluice_quota_throttle_seconds_total", **labels)
        self._throttle_s.append((now_s, throttle_s))
        return Reading(
            self.participant,
            max((limit.value for limit in limits), default=0.0),
            self._series.rate(now_s - AVERAGED_S, now_s),
            throttle_s,
        )

    def throttle_s(self, from_s: float, to_s: float) -> float:
        """Return the throttle time added between the readings of a period."""
        within = [throttle_s for at_s, throttle_s in self._throttle_s if from_s <= at_s <= to_s]
        return within[-1] - within[0] if within else 0.0

    def mean_rate(self, from_s: float, to_s: float) -> float:
        """Return the mean of the moving averages in a period that begin within it.

        Averages as long as the period of bursts do not depend on how many bursts they happen to include.
        """
        self._take_in()
        first_s = from_s + AVERAGED_S
        steps = int((to_s - first_s) * STEPS_PER_S) + 1
        ends_s = [first_s + step / STEPS_PER_S for step in range(steps)]
        return sum(self._series.rate(end_s - AVERAGED_S, end_s) for end_s in ends_s) / steps

    def _take_in(self) -> None:
        events = self.client.events[self._read_events :]
        self._read_events += len(events)
        for event in events:
            if event["event"] == "progress":
                self._series.append(event["at_s"], event["bytes"])
