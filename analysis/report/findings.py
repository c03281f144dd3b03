"""What a page shows: a few hundred numbers and names, whatever the size of the tables they were taken from."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class PeriodTotals:
    """Of all rows of the period; ``throttled`` clients are (user, client-id) pairs with a muted connection."""

    rows: int = 0
    clients: int = 0
    throttled: int = 0
    episodes: int = 0
    muted_ms: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    requests: int = 0
    refused: int = 0
    attempts: int = 0
    """To connect, as far as records have addresses."""
    attempts_refused: int = 0
    """For the rate of their address."""
    counters: int = 0
    """Limits that something was used of: one for each counter, on one broker and one proxy instance."""
    close: int = 0
    """Of them, those whose p99 is 90 % or more."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Documents of a part of the period (``step``), or of a proxy's boot in an hour of it; see ``metrics.loss``."""

    begin: datetime | None
    """None: of what does not say when."""
    end: datetime | None
    expected: int
    missing: int
    dropped: int = 0
    late: int = 0
    rejected: int = 0
    wrong_clock: int = 0
    cluster: str | None = None
    instance: str | None = None

    @property
    def share(self) -> float:
        return self.missing / self.expected if self.expected else 0.0


@dataclass(frozen=True, slots=True)
class Loss:
    """What is missing of the period, in all and where."""

    expected: int = 0
    missing: int = 0
    dropped: int = 0
    late: int = 0
    rejected: int = 0
    wrong_clock: int = 0
    rows_of_others: int = 0
    worst: Missing | None = None
    """The hour with most that is missing."""
    steps: Sequence[Missing] = ()
    """The whole period, in steps of one length."""
    places: Sequence[Missing] = ()
    """Where anything is missing, late or rejected, most missing first."""

    @property
    def share(self) -> float:
        return self.missing / self.expected if self.expected else 0.0


@dataclass(frozen=True, slots=True)
class Throttled:
    """A client that was throttled on a broker by a rule; ``shares`` is how much of each step, 0 to 1."""

    user: str | None
    client_id: str | None
    broker: int
    kind: str
    rule: str
    muted_ms: int
    shares: Sequence[float]


@dataclass(frozen=True, slots=True)
class Episode:
    user: str | None
    client_id: str | None
    broker: int
    kind: str
    rule: str
    mode: str
    begin: datetime
    end: datetime
    muted_ms: int
    throttled: int
    limit: float | None


@dataclass(frozen=True, slots=True)
class UnderCap:
    """A client that was charged to a cap, on all brokers."""

    user: str | None
    client_id: str | None
    used: int
    muted_ms: int


@dataclass(frozen=True, slots=True)
class OfRule:
    """See ``analysis.metrics.rules``."""

    kind: str
    rule: str | None
    exempt: bool
    shadow: bool
    mode: str
    used: int
    throttled: int
    muted_ms: int
    least_limit: float | None
    most_limit: float | None
    clients: int = 0
    """Of a cap: how many were charged to it."""
    most: Sequence[UnderCap] = ()
    """And who of them used most of it."""

    @property
    def is_cap(self) -> bool:
        """It holds besides the quota that wins."""
        return self.clients > 0


@dataclass(frozen=True, slots=True)
class Connected:
    """See ``analysis.metrics.addresses``; without an address it is the waits of a listener."""

    ip: str | None
    listener: str
    exempt: bool
    mode: str
    rule: str | None
    limit: float | None
    attempts: int
    refused: int
    held_ms: int
    waits: int
    wait_ms: int


@dataclass(frozen=True, slots=True)
class Headroom:
    """Used over limit of one counter; 1 is the limit."""

    unit_user: str | None
    unit_client_id: str | None
    instance: str
    broker: int
    kind: str
    rule: str
    limit: float
    p50: float
    p95: float
    p99: float
    max: float
    over: float
    active: float
    """Share of the intervals in which anything was used; the percentiles of these alone follow."""
    active_p50: float | None
    active_p99: float | None


@dataclass(frozen=True, slots=True)
class Talker:
    user: str | None
    client_id: str | None
    bytes_in: int
    bytes_out: int
    requests: int


@dataclass(frozen=True, slots=True)
class RateSeries:
    """Bytes in and out of one client in each step; ``label`` is None for all the others together."""

    label: str | None
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Victim:
    """See ``analysis.metrics.evidence``."""

    user: str | None
    client_id: str | None
    delay_ms: int
    shared: bool
    """Whether the two are charged to a counter together."""


@dataclass(frozen=True, slots=True)
class AroundBurst:
    """What happens so many seconds after a burst begins, on average; delays are those of each second."""

    offset_s: int
    bytes_per_s: float
    others_ms: float
    expected_ms: float


@dataclass(frozen=True, slots=True)
class Neighbour:
    """See ``analysis.metrics.neighbours``."""

    user: str
    client_id: str | None
    broker: int
    measure: str
    score: float
    low: float
    high: float
    p_adjusted: float
    coincidence: float
    expected: float
    lag_s: int
    bursts: int
    others_in_peaks_ms: int
    others_expected_ms: int
    others_requests_in_peaks: int
    share_of_bytes: float
    victims: Sequence[Victim] = ()
    around: Sequence[AroundBurst] = ()
    together: Sequence[tuple[str | None, str | None]] = ()
    """Clients that peak with it, and of which nothing else is to be said."""


@dataclass(frozen=True, slots=True)
class Trend:
    """See ``analysis.metrics.trend``; ``points`` are (day, p99)."""

    unit_user: str | None
    unit_client_id: str | None
    instance: str
    broker: int
    kind: str
    rule: str
    days: int
    slope_per_day: float | None
    now: float
    days_left: float | None
    verdict: str
    points: Sequence[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class Charge:
    user: str
    bytes_in: int
    bytes_out: int
    requests: int
    cost: float | None


@dataclass(frozen=True, slots=True)
class Sums:
    """Of a period that is compared."""

    clients: int = 0
    throttled: int = 0
    muted_ms: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    requests: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class ChangedClient:
    """See ``analysis.metrics.comparison``."""

    user: str
    client_id: str | None
    seen: str
    bytes: int
    bytes_before: int
    muted_ms: int
    muted_ms_before: int


@dataclass(frozen=True, slots=True)
class ChangedLimit:
    """Used over limit, of the proxy instance that has most of it."""

    unit_user: str | None
    unit_client_id: str | None
    broker: int
    kind: str
    rule: str
    limit: float
    limit_before: float
    p99: float
    p99_before: float


@dataclass(frozen=True, slots=True)
class ChangedQuota:
    """The last limits of its counters; None where it was not in use."""

    kind: str
    rule: str
    least_limit: float | None
    most_limit: float | None
    least_limit_before: float | None
    most_limit_before: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The period against another, from ``begin`` to ``end``."""

    begin: datetime
    end: datetime
    stored: bool = True
    """Else nothing more is known."""
    scale: float = 1.0
    """How much longer this period is than the other."""
    modes: Sequence[str] = ()
    """Of the other."""
    unrecorded_s: int = 0
    unrecorded_before_s: int = 0
    now: Sums = Sums()
    before: Sums = Sums()
    new: int = 0
    new_clients: Sequence[tuple[str, str | None]] = ()
    """Those that moved most."""
    gone: int = 0
    gone_clients: Sequence[tuple[str, str | None]] = ()
    clients: Sequence[ChangedClient] = ()
    limits: Sequence[ChangedLimit] = ()
    quotas: Sequence[ChangedQuota] = ()


@dataclass(frozen=True, slots=True)
class ReportFindings:
    clusters: Sequence[str]
    begin: datetime
    end: datetime
    modes: Sequence[str]
    step_s: int
    steps: Sequence[datetime]
    gap_ms: int
    instances: int
    brokers: int
    tables: str
    """Where all of it is."""
    totals: PeriodTotals = PeriodTotals()
    loss: Loss = Loss()
    throttled: Sequence[Throttled] = ()
    episodes: Sequence[Episode] = ()
    rules: Sequence[OfRule] = ()
    connected: Sequence[Connected] = ()
    headroom: Sequence[Headroom] = ()
    talkers: Sequence[Talker] = ()
    series: Sequence[RateSeries] = ()
    neighbours: Sequence[Neighbour] = ()
    neighbours_since: datetime | None = None
    """From when on they were looked for; None: from the begin."""
    compared: int = 0
    """How many clients, each on a broker, peaked often enough to be held against others' delays."""
    trends: Sequence[Trend] = ()
    days: int = 0
    """Of the period that are long enough for a trend."""
    charges: Sequence[Charge] = ()
    currency: str | None = None
    comparison: Comparison | None = None

    @property
    def length(self) -> timedelta:
        return self.end - self.begin

    @property
    def steps_end(self) -> datetime:
        """Where the last step of the plots ends."""
        return self.steps[-1] + timedelta(seconds=self.step_s)

    @property
    def shadow(self) -> bool:
        """Whether nothing was delayed in truth."""
        return set(self.modes) <= {"shadow", "off"} and "shadow" in self.modes
