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


class Findings:
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
        """Fail because of an error: ``why`` is what ``proxy.failures.describe`` says of it, often with a better fix."""
        said, _, better = why.partition(": ")
        self.fail(check, f"{text}: {said}", better or fix)

    def skip(self, check: str, text: str) -> None:
        self._add(Status.SKIP, check, text)

    @property
    def failed(self) -> bool:
        return any(finding.status is Status.FAIL for finding in self.all)

    def as_data(self) -> dict[str, object]:
        """Return what ``--json`` prints."""
        return {"ok": not self.failed, "findings": [asdict(finding) for finding in self.all]}

    def _add(self, status: Status, check: str, text: str, fix: str = "") -> None:
        self.all.append(Finding(status, check, _printable(text), _printable(fix)))


def _printable(text: str) -> str:
    """Return one line that moves no cursor: names and errors come from the other end."""
    return "".join(character if character.isprintable() else "?" for character in " ".join(text.split()))
