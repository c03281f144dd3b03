"""The command: ``python -m tests.conformance FILE…``. Exit 0: all passed, 1: some failed, 2: a file is unusable."""

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.conformance.model import Failure, Format, Outcome, Skipped

# A format is told by the members of the file's outermost object; a file need not have all of them.
FORMATS = {
    "quotas": {"cases"},
    "frames": {"requests", "responses", "api_versions", "lenient", "malformed", "streams"},
    "principals": {"x509_names", "ssl_mapping", "kerberos", "scram_first", "oauth_first"},
}


class UnusableFileError(Exception):
    """A file that is missing, not JSON, or of no known format."""


def load(path: Path) -> dict[str, Any]:
    """Read a vector file. Raises UnusableFileError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnusableFileError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise UnusableFileError(f"{path}: not JSON: {error}") from error
    if not isinstance(document, dict):
        raise UnusableFileError(f"{path}: no known format: not an object but a {type(document).__name__}")
    return document


def format_of(document: dict[str, Any], path: Path) -> Format:
    """Return the module that runs this document's cases. Raises UnusableFileError."""
    for name, members in FORMATS.items():
        if any(isinstance(document.get(member), list) for member in members):
            module: Any = import_module(f"tests.conformance.{name}")
            return module  # type: ignore[no-any-return]  # a module as the Protocol it follows
    known = "; ".join(f"{name}: {', '.join(sorted(members))}" for name, members in FORMATS.items())
    raise UnusableFileError(f"{path}: no known format: none of the members (lists) that tell one ({known})")


def outcomes(module: Format, document: dict[str, Any], path: Path) -> Iterator[tuple[str, Outcome]]:
    """Yield what the format module yields; if it raises itself, that is one more failure."""
    try:
        yield from module.run(document)
    except Exception as error:  # noqa: BLE001  the files after this one still have to run
        yield f"{path}", Failure(f"{path}", "a runnable file", error, type(error).__name__)


def describe(title: str, outcome: Outcome) -> str:
    """Return the lines that name a failed or skipped case; empty for one that passed."""
    match outcome:
        case Failure():
            note = f"\n  at:       {outcome.note}" if outcome.note else ""
            return f"FAILED {title}\n  expected: {outcome.expected!r}\n  got:      {outcome.got!r}{note}"
        case Skipped():
            return f"SKIPPED {title}\n  reason:   {outcome.reason}"
        case None:
            return ""


def main(arguments: list[str]) -> int:
    """Run all files and print the report; return the exit status."""
    if not arguments:
        print("usage: python -m tests.conformance FILE…", file=sys.stderr)
        return 2
    passed = failed = skipped = 0
    unusable = False
    for argument in arguments:
        path = Path(argument)
        try:
            document = load(path)
            module = format_of(document, path)
        except UnusableFileError as error:
            print(error, file=sys.stderr)
            unusable = True
            continue
        for title, outcome in outcomes(module, document, path):
            passed += outcome is None
            failed += isinstance(outcome, Failure)
            skipped += isinstance(outcome, Skipped)
            if outcome is not None:
                print(describe(title, outcome))
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""), flush=True)
    return 2 if unusable else int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
