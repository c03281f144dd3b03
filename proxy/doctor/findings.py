"""What the doctor says: one line for each thing looked at."""

from dataclasses import asdict, dataclass
from enum import StrEnum


class Status(StrEnum):
    """How a thing is. FAIL stands in capitals, to be found in a screenful of lines."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"
    SKIP = "skip"
    """An earlier failure, or what was not given, makes it pointless to look."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line; ``fix`` says what to do, and is there in every FAIL."""

    status: Status
    check: str
    text: str
    fix: str = ""

    def __str__(self) -> str:
        said = f"{self.text}: {self.fix}" if self.fix else self.text
        return f"{self.status:<5} {self.check:<12} {said}"


class DoctorFindings:
    """All of them, in the order in which they were found."""

    def __init__(self) -> None:
        self.all: list[Finding] = []

    def ok(self, check: str, text: str) -> None:
        self._add(Status.OK, check, text)

    def warn(self, check: str, text: str, fix: str) -> None:
        self._add(Status.WARN, check, text, fix)

    def fail(self, check: str, text: str, fix: str) -> None:
        self._add(Status.FAIL, check, text, fix)

    def broken(self, check: str, text: str, why: str, fix: str) -> None:
        """Fail because of an error: ``why`` is what ``failures.describe`` says of it, often with a better fix."""
        said, _, better = why.partition(": ")
        self.fail(check, f"{text}: {said}", better or fix)

    def skip(self, check: str, text: str) -> None:
        self._add(Status.SKIP, check, text)

    def not_tried(self, cause: str, *checks: str) -> None:
        """Skip those of ``checks`` that nothing has been said of: what came of ``cause`` makes them pointless."""
        skipped = any(finding.check == cause and finding.status is Status.SKIP for finding in self.all)
        for check in checks:
            if not self.seen(check):
                self.skip(check, f"not tried, because {cause} {'was skipped' if skipped else 'failed'}")

    def seen(self, check: str) -> bool:
        return any(finding.check == check for finding in self.all)

    @property
    def first_failure(self) -> Finding | None:
        """What to mend first: things are looked at in the order in which one makes the next fail."""
        return next((finding for finding in self.all if finding.status is Status.FAIL), None)

    @property
    def failed(self) -> bool:
        return self.first_failure is not None

    def summary(self) -> str:
        """Return the last line: empty where nothing has failed."""
        first = self.first_failure
        return f"mend {first.check} first: {first.text}: {first.fix}" if first is not None else ""

    def as_data(self) -> dict[str, object]:
        """Return what ``--json`` prints."""
        first = self.first_failure
        return {
            "ok": first is None,
            "first_failure": first.check if first is not None else None,
            "findings": [asdict(finding) for finding in self.all],
        }

    def _add(self, status: Status, check: str, text: str, fix: str = "") -> None:
        self.all.append(Finding(status, check, _printable(text), _printable(fix)))


def _printable(text: str) -> str:
    """Return one line that moves no cursor: names and errors come from the other end."""
    return "".join(character if character.isprintable() else "?" for character in " ".join(text.split()))
