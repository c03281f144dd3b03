"""What running the cases of a vector file yields, whatever the file's format."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Failure:
    """A case whose answer was not the expected one; ``note`` says where in the case, if it has several answers."""

    case_id: str
    expected: object
    got: object
    note: str = ""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A case that this code does not claim to satisfy, and why."""

    case_id: str
    reason: str


Outcome = Failure | Skipped | None
"""None: the case passed."""


class Format(Protocol):
    """What a module per file format offers."""

    def run(self, document: dict[str, Any]) -> Iterator[tuple[str, Outcome]]:
        """Yield ``(title, outcome)`` for every case of the file, in order; the title begins with the case's id."""
        ...


def attempt(case_id: str, expected: object, check: Callable[[], Outcome]) -> Outcome:
    """Run one case's check; whatever it raises is a failure with the exception as what was got."""
    try:
        return check()
    except Exception as error:  # noqa: BLE001  the runner has to go on with the next case, whatever this one does
        return Failure(case_id, expected, error, type(error).__name__)
