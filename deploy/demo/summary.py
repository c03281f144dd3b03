"""The summary: quota against measured rate, and the verdict."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table

from deploy.demo.display import quota
from deploy.demo.readings import Meter
from deploy.demo.scenario import AFTER, BEFORE, SETTLING_S, Participant, Quotas
from quotas.texts import duration, rate

GREEDY_TOLERANCE: Final = 0.10
PACE_TOLERANCE: Final = 0.05


@dataclass(frozen=True, slots=True)
class Span:
    """A period with its quotas, on the monotonic clock."""

    quotas: Quotas
    from_s: float
    to_s: float


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one client in one period."""

    participant: Participant
    quota_bytes_per_s: int
    rate_bytes_per_s: float
    throttle_s: float

    @property
    def expected_bytes_per_s(self) -> int:
        """The quota of a greedy client, the own pace of others."""
        return self.participant.pace_bytes_per_s or self.quota_bytes_per_s

    @property
    def deviation(self) -> float:
        return self.rate_bytes_per_s / self.expected_bytes_per_s - 1

    @property
    def is_good(self) -> bool:
        if self.participant.is_greedy:
            return abs(self.deviation) <= GREEDY_TOLERANCE
        return abs(self.deviation) <= PACE_TOLERANCE and self.throttle_s == 0

    @property
    def verdict(self) -> str:
        if self.participant.is_greedy:
            return "held" if self.is_good else "NOT HELD"
        return "untouched" if self.is_good else "SLOWED"


def findings(meters: Sequence[Meter], before: Span, after: Span) -> Iterator[Finding]:
    """Yield two results for a client whose quota changed, and one over the whole time for every other.

    The first seconds of a period are excluded: the burst that a fresh quota allows, and a consumer's start.
    """
    for meter in meters:
        spans = [before, after]
        if BEFORE.bytes_per_s(meter.participant) == AFTER.bytes_per_s(meter.participant):
            spans = [Span(before.quotas, before.from_s, after.to_s)]
        for span in spans:
            yield Finding(
                meter.participant,
                span.quotas.bytes_per_s(meter.participant),
                meter.mean_rate(span.from_s + SETTLING_S, span.to_s),
                meter.throttle_s(span.from_s, span.to_s),
            )


def print_summary(console: Console, found: Sequence[Finding]) -> None:
    """Print a table with a row for each result."""
    table = Table(title="Quota against measured; steady clients against their pace", title_justify="left")
    table.add_column("client", no_wrap=True)
    for name in ("quota", "measured", "off by", "throttled"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for one in found:
        table.add_row(
            one.participant.client_id,
            quota(one.quota_bytes_per_s),
            rate(one.rate_bytes_per_s),
            f"{one.deviation:+.1%}",
            duration(one.throttle_s),
            one.verdict,
            style="green" if one.is_good else "bold red",
        )
    console.print(table)
