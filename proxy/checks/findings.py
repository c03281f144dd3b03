"""What was found, how bad it is, and at which setting."""

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from config.document import Document
from config.problems import InvalidValue, Problem, Steps


class Severity(StrEnum):
    """What a finding means for the proxy."""

    UNUSABLE = "unusable"
    """It cannot run with this."""
    REFUSED = "refused"
    """It runs, and those on the other end refuse what they are shown: an expired certificate."""
    WARNING = "warning"
    """It works as it is."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem, at the setting that names what is wrong."""

    severity: Severity
    problem: Problem


class Findings:
    """Everything found in one configuration, at the time ``now``."""

    def __init__(self, document: Document, now: datetime) -> None:
        self.now = now
        self._document = document
        self._found: list[Finding] = []

    def add(self, severity: Severity, at: Steps, message: str, fix: str = "") -> None:
        self._found.append(Finding(severity, self._document.problem(at, InvalidValue(message, fix))))

    @contextmanager
    def at(self, *steps: str | int) -> Iterator[None]:
        """Take an InvalidValue raised within as UNUSABLE, so that the next thing is looked at too."""
        try:
            yield
        except InvalidValue as invalid:
            self._found.append(Finding(Severity.UNUSABLE, self._document.problem(steps, invalid)))

    def secret(self, at: Steps, path: Path) -> None:
        """Warn of a file that holds a secret, and that everybody on the machine can read."""
        if path.stat().st_mode & stat.S_IROTH:
            self.add(Severity.WARNING, at, f"every user of this machine can read {path}", f"chmod o-rwx {path}")

    def unusable(self) -> bool:
        return any(finding.severity is Severity.UNUSABLE for finding in self._found)

    def in_order(self) -> list[Finding]:
        """Return the findings in the order of the file."""
        return sorted(self._found, key=lambda finding: (finding.problem.line, finding.problem.column))
