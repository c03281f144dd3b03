"""Findings: problems with their severity, at the setting that they are about."""

import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from config.document import Document
from config.problems import InvalidValue, Problem, Steps


class Severity(StrEnum):
    """The effect of a finding on the proxy."""

    UNUSABLE = "unusable"
    """The proxy cannot run."""
    REFUSED = "refused"
    """The proxy runs, but peers refuse its connections, as with an expired certificate."""
    WARNING = "warning"
    """Everything works."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem, at the setting that names its object."""

    severity: Severity
    problem: Problem


class Findings:
    """All findings of one configuration, at the time ``now``."""

    def __init__(self, document: Document, now: datetime) -> None:
        self.now = now
        self._document = document
        self._found: list[Finding] = []

    def add(self, severity: Severity, at: Steps, message: str, fix: str = "") -> None:
        self._found.append(Finding(severity, self._document.problem(at, InvalidValue(message, fix))))

    def warn(self, at: Steps, message: str, fix: str) -> None:
        self.add(Severity.WARNING, at, message, fix)

    @contextmanager
    def at(self, *steps: str | int) -> Iterator[None]:
        """Record an InvalidValue raised inside as UNUSABLE, so that the checks continue."""
        try:
            yield
        except InvalidValue as invalid:
            self._found.append(Finding(Severity.UNUSABLE, self._document.problem(steps, invalid)))

    def secret(self, at: Steps, path: Path, read: Callable[[Path], object]) -> None:
        """Check a file with a secret: ``read`` raises InvalidValue; it should not be readable by all users."""
        with self.at(*at):
            read(path)
            if path.stat().st_mode & stat.S_IROTH:
                self.warn(at, f"every user of this machine can read {path}", f"chmod o-rwx {path}")

    def unusable(self) -> bool:
        return any(finding.severity is Severity.UNUSABLE for finding in self._found)

    def in_order(self) -> list[Finding]:
        """Return the findings in the order of the file."""
        return sorted(self._found, key=lambda finding: (finding.problem.line, finding.problem.column))
