"""What the page of a client shows, and its tables hold: bounded, whatever the client did."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from analysis.client.asked import Asked
from analysis.client.counters import Counter, Panel
from analysis.client.courses import Course
from analysis.client.scaled import Scaled
from analysis.metrics.period import Period


@dataclass(frozen=True, slots=True)
class Sums:
    """Of the client's rows in a period."""

    rows: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    requests: int = 0
    request_time_ms: int = 0
    connections_opened: int = 0
    throttled: int = 0
    muted_ms: int = 0
    attempts: int = 0
    """To connect, of an address."""
    episodes: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """Who the client is, and where: each with how many bytes, or attempts, it moved there; the most first."""

    clusters: Sequence[str]
    clients: Sequence[tuple[str, str]]
    """(user, client-id): the largest; of an address none."""
    how_many_clients: int
    instances: Sequence[str]
    listeners: Sequence[str]
    brokers: Sequence[int]
    modes: Sequence[str]
    first: datetime
    last: datetime
    exempt_rows: int
    shadow_rows: int
    """In which a limit in shadow was measured."""


@dataclass(frozen=True, slots=True)
class Companion:
    """Who else was charged to a counter while an episode lasted."""

    user: str | None
    client_id: str | None
    used: int


@dataclass(frozen=True, slots=True)
class OneEpisode:
    """See ``analysis.metrics.episodes``."""

    user: str | None
    client_id: str | None
    broker: int
    kind: str
    rule: str | None
    mode: str
    begin: datetime
    end: datetime
    muted_ms: int
    throttled: int
    limit: float | None
    used: int
    """By the client."""
    companions: Sequence[Companion] = ()
    """The largest."""
    how_many_companions: int = 0


@dataclass(frozen=True, slots=True)
class Busy:
    """Who moved bytes on a broker while the client was delayed there."""

    user: str
    client_id: str | None
    broker: int
    bytes_per_s_then: float
    """In the moments in which the client was delayed."""
    bytes_per_s: float
    """In all moments."""
    share_then: float
    """Of all bytes of the broker in those moments."""
    peaks: int
    score: float | None
    """The part of the client's delay that is in its peaks beyond what is expected there; None: it cannot be said."""
    p: float | None
    """How likely such a score is by chance, corrected for all that were looked at."""
    verdict: str
    """Of ``analysis.metrics.neighbours``: COINCIDES, CHANCE, TOO_FEW."""


@dataclass(frozen=True, slots=True)
class Before:
    """The period before, of the same length; without ``sums`` where it is not stored."""

    begin: datetime
    sums: Sums | None
    muted_ms_by_kind: Mapping[str, int]
    used_by_kind: Mapping[str, int]
    note: str = ""
    """What makes it less than it seems."""


@dataclass(frozen=True, slots=True)
class ClientFindings:
    asked: Asked
    period: Period
    begin: datetime
    end: datetime
    """As asked for."""
    facts: Facts
    sums: Sums
    before: Before
    counters: Sequence[Counter]
    panels: Sequence[Panel]
    """Those with a course first."""
    courses: Mapping[int, Course]
    step_s: int
    gap_ms: int
    episodes: Sequence[OneEpisode]
    busy: Sequence[Busy]
    scaled: Scaled | None
    missing: tuple[int, int]
    """Documents of the period that are missing, of how many."""
    notes: Sequence[str]
    tables: str
    """Where all of it is."""

    @property
    def step(self) -> timedelta:
        return timedelta(seconds=self.step_s)

    @property
    def shadow(self) -> bool:
        """Whether nothing was delayed in truth."""
        return set(self.facts.modes) <= {"shadow", "off"} and "shadow" in self.facts.modes

    def shared_by_others(self, panel: Panel) -> bool:
        """Return whether others were charged to the counters of a panel."""
        course = self.courses[panel.number]
        return bool(course.shared.sum() > course.mean.sum() * (1 + 1e-9))
