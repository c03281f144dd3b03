"""The limit that a quota needs, the confidence in it, and both in words."""

from dataclasses import dataclass
from enum import StrEnum

from analysis.kernel.censoring import Answer
from analysis.kernel.units import Unit
from quotas.kinds import QuotaKind
from quotas.texts import amount, shown


class Confidence(StrEnum):
    """The confidence in a need, by the length and quality of the recording."""

    LOW = "low"
    """Less than a day, or held up by a quota until the recording ended, or many documents missing."""
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
    """0 if it is below the lowest limit and was not searched."""
    unit: Unit
    p99: float
    """The p99 of the seconds with use."""
    most: float
    """The highest rate of any second."""
    surge: float
    """The highest rate over any window of enforcement."""
    confidence: Confidence
    answer: Answer
    capped: bool = False
    """Whether its clients were also charged to caps."""
    by_caps: float = 0.0
    """The share of the muted time that is due to caps."""
    low_because: str = ""
    refused: str = ""
    """The reason for no recommendation."""

    @property
    def by_caps_alone(self) -> bool:
        return self.by_caps >= 0.99  # intervals are whole milliseconds

    def words(self) -> str:
        """Return the need, the recorded rates that it is based on, and the confidence."""
        doubt = ""
        if self.answer is not Answer.EXACT:
            doubt = f" (throttled while recorded: {self.answer.word}; sized for the upper bound)"
        return f"{self.needed_words()}; confidence {self.confidence}{doubt}{self._words_of_caps()}"

    def needed_words(self) -> str:
        if not self.needed:
            return "needs less than the least quota"
        where = f"broker {self.unit.broker}" + (f", {shown(self.unit.instance)}" if self.unit.instance else "")
        return (
            f"needs {self._amount(self.needed)} ({where}); recorded p99 {self._amount(self.p99)}, "
            f"most {self._amount(self.most)} in a second and {self._amount(self.surge)} over the window"
        )

    def _amount(self, rate: float) -> str:
        return amount(rate, self.kind)

    def _words_of_caps(self) -> str:
        """Return the influence of caps: a higher quota does not help clients that only a cap held."""
        if self.by_caps:
            whom = "by caps alone" if self.by_caps_alone else "by caps among others"
            return f"; throttled while recorded, {whom}: a quota above the caps changes nothing"
        return "; also under caps, which throttled nobody" if self.capped else ""
