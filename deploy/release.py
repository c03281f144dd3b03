"""Sets the version of a release, and its date in CHANGELOG.md: ``python3 -m deploy.release VERSION`` (.ci/release).

It needs Python alone. All files are written, or none.
"""

import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

CHANGELOG: Final = "CHANGELOG.md"
PLACES: Final = {
    "pyproject.toml": 'version = "{}"\n',
    "proxy/__init__.py": '__version__ = "{}"\n',
    "deploy/helm/sluice/Chart.yaml": "version: {0}\nappVersion: {0}\n",
    "deploy/kubernetes/kustomization.yaml": "newTag: {}}}\n",
    "deploy/share/man/man1/sluice.1": '.TH SLUICE 1 "" "sluice {}"\n',
}
"""File → its lines with the version."""
_HEADING: Final = "## Unreleased\n"


class CannotReleaseError(Exception):
    """Why, and what to do."""


def dated(changelog: str, version: str, date: str) -> str:
    """Return the changelog with everything that no release has yet under ``## version (date)``."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise CannotReleaseError(f"{version!r} is not a version: write three numbers, as 0.2.0")
    if released := re.search(rf"^## {re.escape(version)} \((.*)\)$", changelog, re.MULTILINE):
        raise CannotReleaseError(f"{version} was released on {released[1]}: give the next version")
    before, heading, behind = changelog.partition(_HEADING)
    if not heading:
        raise CannotReleaseError(f"{CHANGELOG} has no line {_HEADING.strip()!r}: add it above the releases")
    earlier = re.search(r"^## \S+ \(", behind, re.MULTILINE)
    end = earlier.start() if earlier else len(behind)
    new, rest = behind[:end].replace(f"## {version}\n", ""), behind[end:]
    if other := re.search(r"^## (.*)$", new, re.MULTILINE):
        raise CannotReleaseError(f"{CHANGELOG} has a heading {other[1]!r} without a date: is that the version?")
    if not new.strip():
        raise CannotReleaseError(f"{CHANGELOG} has nothing under Unreleased: write there what users will see")
    new = re.sub(r"\n{3,}", "\n\n", new.strip())
    return f"{before}{heading}\n## {version} ({date})\n\n{new}\n" + (f"\n{rest}" if rest else "")


def release(root: Path, version: str, date: str) -> None:
    """Write version and date into the files of the checkout ``root``; CannotReleaseError: none of them is changed."""
    texts = {CHANGELOG: dated((root / CHANGELOG).read_text(encoding="utf-8"), version, date)}
    found = re.search(r'^version = "(.*)"$', (root / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    present = found[1] if found else ""
    for name, lines in PLACES.items():
        text = (root / name).read_text(encoding="utf-8")
        if text.count(lines.format(present)) != 1:
            raise CannotReleaseError(f"{name} has no line {lines.format(present).strip()!r}: make it that of pyproject")
        texts[name] = text.replace(lines.format(present), lines.format(version))
    for name, text in texts.items():
        (root / name).write_text(text, encoding="utf-8")


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python3 -m deploy.release VERSION")
    try:
        release(Path.cwd(), sys.argv[1], datetime.now(UTC).date().isoformat())
    except CannotReleaseError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
