"""`.ci/release VERSION`, in a clone: the version, its date, a commit and a tag; errors say what to do."""

import os
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from deploy.release import PLACES, CannotReleaseError, dated, release

ROOT: Final = Path(__file__).parents[2]
NEXT: Final = "7.8.9"
HEAD: Final = "# Changelog\n\n## Unreleased\n"


def git(clone: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=clone, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository of the files that take part, as they are now, with a change that is not released yet."""
    folder = tmp_path / "clone"
    for name in (".ci/release", ".gitignore", "CHANGELOG.md", "deploy/__init__.py", "deploy/release.py", *PLACES):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
        (folder / name).chmod((ROOT / name).stat().st_mode)
    git(folder, "init", "--quiet")
    git(folder, "config", "user.name", "Somebody")
    git(folder, "config", "user.email", "somebody@example.com")
    changelog = folder / "CHANGELOG.md"
    changelog.write_text(f"{HEAD}\n- Something new.\n")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Before the release")
    return folder


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A stand-in for `make` that builds one file and notes its targets; no container engine."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "make").write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/targets\n'
        'case " $* " in *" dist "*) mkdir -p dist && git describe --tags > dist/built;; esac\n'
    )
    for name in ("docker", "podman"):
        (folder / name).write_text("#!/bin/sh\nexit 1\n")
    for program in folder.iterdir():
        program.chmod(0o755)
    return folder


def run(clone: Path, programs: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    command = [str(clone / ".ci/release"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def versions(folder: Path) -> dict[str, str]:
    """Return the version that each file says."""
    found = {}
    for name, lines in PLACES.items():
        pattern = re.escape(lines.format("VERSION")).replace("VERSION", r"(\d+\.\d+\.\d+)")
        match = re.search(pattern, (folder / name).read_text())
        found[name] = match[1] if match else ""
    return found


def test_release_sets_version_and_date_commits_and_tags(clone: Path, programs: Path) -> None:
    days = [datetime.now(UTC).date()]
    done = run(clone, programs, NEXT)
    days.append(datetime.now(UTC).date())
    assert done.returncode == 0, done.stderr
    assert versions(clone) == dict.fromkeys(PLACES, NEXT)
    text = (clone / "CHANGELOG.md").read_text()
    sections = [f"## Unreleased\n\n## {NEXT} ({day})\n\n- Something new.\n" for day in days]
    assert any(each in text for each in sections), text[:400]
    assert git(clone, "status", "--short") == ""
    assert git(clone, "show", "--no-patch", "--format=%s", f"v{NEXT}^{{commit}}") == f"Release {NEXT}"
    assert (clone / "dist/built").read_text() == f"v{NEXT}\n"


def test_release_hashes_every_file_but_the_list_of_hashes(clone: Path, programs: Path) -> None:
    assert run(clone, programs, NEXT).returncode == 0
    assert run(clone, programs).returncode == 0  # builds the same commit again
    checked = subprocess.run(
        ["sha256sum", "--check", "SHA256SUMS"], cwd=clone / "dist", capture_output=True, text=True, check=True
    )
    assert checked.stdout == "built: OK\n"


def test_release_audits_before_it_changes_anything(clone: Path, programs: Path, tmp_path: Path) -> None:
    (programs / "make").write_text("#!/bin/sh\nexit 3\n")
    assert run(clone, programs, NEXT).returncode == 3
    assert NEXT not in versions(clone).values()
    assert git(clone, "tag") == ""


def test_release_of_a_tagged_version_is_refused(clone: Path, programs: Path) -> None:
    git(clone, "tag", f"v{NEXT}")
    done = run(clone, programs, NEXT)
    assert (done.returncode, done.stdout) == (1, "")
    assert "give the next version" in done.stderr
    assert NEXT not in versions(clone).values()


def test_release_with_uncommitted_changes_is_refused(clone: Path, programs: Path) -> None:
    (clone / "pyproject.toml").write_text("")
    done = run(clone, programs, NEXT)
    assert done.returncode == 1
    assert "commit or stash them first" in done.stderr


@pytest.mark.parametrize(
    ("changelog", "version", "advice"),
    [
        (f"{HEAD}\n## 0.1.0 (2026-01-02)\n\n- a\n", "0.2.0", "nothing under Unreleased: write there"),
        (HEAD, "0.1.0", "nothing under Unreleased: write there"),
        (f"{HEAD}\n## 0.1.0\n", "0.1.0", "nothing under Unreleased: write there"),
        (f"{HEAD}\n- b\n\n## 0.1.0 (2026-01-02)\n\n- a\n", "0.1.0", "released on 2026-01-02: give the next version"),
        (f"{HEAD}\n## 0.1.0\n\n- a\n", "0.2.0", "heading '0.1.0' without a date"),
        ("# Changelog\n", "0.1.0", "no line '## Unreleased': add it"),
        (f"{HEAD}\n- a\n", "v1", "write three numbers, as 0.2.0"),
    ],
)
def test_changelog_that_cannot_be_released_says_what_to_do(changelog: str, version: str, advice: str) -> None:
    with pytest.raises(CannotReleaseError, match=re.escape(advice)):
        dated(changelog, version, "2026-11-28")


def test_changelog_of_a_second_release_keeps_the_first() -> None:
    first = dated(f"{HEAD}\n- b\n\n## 0.1.0\n\n- a\n", "0.1.0", "2026-01-02")
    assert first == f"{HEAD}\n## 0.1.0 (2026-01-02)\n\n- b\n\n- a\n"
    second = dated(first.replace(HEAD, f"{HEAD}\n- c\n"), "0.2.0", "2026-02-03")
    assert second == f"{HEAD}\n## 0.2.0 (2026-02-03)\n\n- c\n\n## 0.1.0 (2026-01-02)\n\n- b\n\n- a\n"


def test_release_with_a_version_missing_somewhere_changes_nothing(clone: Path) -> None:
    (clone / "proxy/__init__.py").write_text("")
    before = (clone / "CHANGELOG.md").read_text()
    with pytest.raises(CannotReleaseError, match=r"proxy/__init__\.py has no line"):
        release(clone, NEXT, "2026-11-28")
    assert (clone / "CHANGELOG.md").read_text() == before


def test_all_places_say_the_same_version() -> None:
    assert len(set(versions(ROOT).values())) == 1
