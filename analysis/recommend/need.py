"""The limit that a quota needs, how far to trust it, and both in words."""

from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from analysis.kernel.censoring import Answer
from analysis.kernel.units import Unit
from analysis.page.words import limit, plain
from quotas.kinds import BYTES, QuotaKind


class Confidence(StrEnum):
    """How far a need can be trusted, by how much was recorded."""

    LOW = "low"
    """Less than a day, or held up by a quota until the recording ended, or much is missing."""
    MEDIUM = "medium"
    """Less than a week, or held up by a quota meanwhile."""
    HIGH = "high"


@dataclass(frozen=True, slots=True)
class Need:
    """The limit that one quota needs, on the broker where it needs most. Rates are in the limit's unit."""

    kind: QuotaKind
    limit: float
    """With headroom, rounded up."""
    needed: float
    """0: less than the least limit, and not looked for."""
    unit: Unit
    p99: float
    """The p99 of the seconds with use."""
    most: float
    """In any second."""
    surge: float
    """Over any window of enforcement."""
    confidence: Confidence
    answer: Answer
    capped: bool = False
    """Whether its clients were charged to caps besides, while recorded."""
    by_caps: float = 0.0
    """The share of the time held up for which caps held it."""
    low_because: str = ""
    """Why the confidence is low, where it is."""
    refused: str = ""
    """Why nothing is recommended, where nothing is."""

    @property
    def by_caps_alone(self) -> bool:
        return self.by_caps >= 0.99  # intervals are whole milliseconds

    def words(self) -> str:
        """Return what is needed, what it is found from, and how far to trust it."""
        doubt = (
            "" if self.answer is Answer.EXACT else f" (held up while recorded: {self.answer.word}, sized for the most)"
        )
        return f"{self.needed_words()}; confidence {self.confidence}{doubt}{self._words_of_caps()}"

    def needed_words(self) -> str:
        if not self.needed:
            return "needs less than the least quota"
        rate = _rate if self.kind.row.unit is BYTES else partial(limit, self.kind)
        where = f"broker {self.unit.broker}" + (f", {plain(self.unit.instance)}" if self.unit.instance else "")
        return (
            f"needs {rate(self.needed)} ({where}); recorded "
            f"p99 {rate(self.p99)}, most {rate(self.most)} in a second and {rate(self.surge)} over the window"
        )

    def _words_of_caps(self) -> str:
        """Say what caps meant: clients that only a cap held need no other quota for that."""
        if self.by_caps:
            whom = "by these alone, not by a quota" if self.by_caps_alone else "by these among others"
            return f"; held by caps while recorded, {whom}: a quota above them changes nothing"
        return "; under caps besides, which held nobody" if self.capped else ""


def _rate(bytes_per_s: float) -> str:
    for unit, most in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if bytes_per_s >= most:
            return f"{bytes_per_s / most:.3g} {unit}/s"
    return f"{bytes_per_s:.0f} B/s"
