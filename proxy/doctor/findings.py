"""The doctor's output: one line per check."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

_CHECKS: Final = (
    "config", "client", "tcp", "tls", "certificate", "brokers", "quotas",
    "versions", "login", "whoami", "advertised", "owners",
)  # fmt: skip
"""In an order in which one failure causes the next."""


class Status(StrEnum):
    """The result of a check. FAIL is in capitals, to be found in a screenful of lines."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"
    SKIP = "skip"
    """An earlier failure, or a missing option, makes the check pointless."""


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One line of output; ``fix`` says what to do, and is present in every FAIL."""

    status: Status
    check: str
    text: str
    fix: str = ""

    def __str__(self) -> str:
        said = f"{self.text}: {self.fix}" if self.fix else self.text
        return f"{self.status:<5} {self.check:<12} {said}"


class DoctorFindings:
    def __init__(self) -> None:
        self._found: list[DoctorFinding] = []

    @property
    def all(self) -> list[DoctorFinding]:
        return sorted(self._found, key=lambda finding: _CHECKS.index(finding.check))

    def ok(self, check: str, text: str) -> None:
        self._add(Status.OK, check, text)

    def warn(self, check: str, text: str, fix: str) -> None:
        self._add(Status.WARN, check, text, fix)

    def fail(self, check: str, text: str, fix: str) -> None:
        self._add(Status.FAIL, check, text, fix)

    def broken(self, check: str, text: str, why: str, fix: str) -> None:
        """Add a FAIL for an error: ``why`` is from ``failures.describe``, often with a better fix."""
        said, _, better = why.partition(": ")
        self.fail(check, f"{text}: {said}", better or fix)

    def skip(self, check: str, text: str) -> None:
        self._add(Status.SKIP, check, text)

    def not_tried(self, cause: str, *checks: str) -> None:
        """Skip those of ``checks`` without a finding: the result of ``cause`` makes them pointless."""
        skipped = any(finding.check == cause and finding.status is Status.SKIP for finding in self._found)
        for check in checks:
            if not self.seen(check):
                self.skip(check, f"not tried, because {cause} {'was skipped' if skipped else 'failed'}")

    def seen(self, check: str) -> bool:
        return any(finding.check == check for finding in self._found)

    @property
    def first_failure(self) -> DoctorFinding | None:
        return next((finding for finding in self.all if finding.status is Status.FAIL), None)

    def summary(self) -> str:
        """Return the last line; empty if no check has failed."""
        first = self.first_failure
        return f"Fix {first.check} first: {first.text}: {first.fix}" if first is not None else ""

    def as_data(self) -> dict[str, object]:
        first = self.first_failure
        return {
            "ok": first is None,
            "first_failure": first.check if first is not None else None,
            "findings": [asdict(finding) for finding in self.all],
        }

    def _add(self, status: Status, check: str, text: str, fix: str = "") -> None:
        self._found.append(DoctorFinding(status, check, _printable(text), _printable(fix)))


def _printable(text: str) -> str:
    """Return one line without control characters: names and errors may come from the peer."""
    return "".join(character if character.isprintable() else "?" for character in " ".join(text.split()))
