"""deploy/*requirements.txt: what pyproject.toml asks for, as tested, each file with its hash."""

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
IMAGE = {"python_version": "3.11", "python_full_version": "3.11.16", "extra": ""}
"""The Python of the image, whichever runs this."""
BUILD = PYPROJECT["build-system"]["requires"]
COMPILE = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["dependencies"]
ASKED = {
    "requirements.txt": PYPROJECT["project"]["dependencies"],
    "build-requirements.txt": [*BUILD, *COMPILE],
}
"""File → requirements in pyproject.toml. `make lock` writes both again."""


def text(file: str) -> str:
    return (ROOT / "deploy" / file).read_text(encoding="utf-8")


def pins(file: str) -> dict[str, str]:
    """Return name → version of each line ``name==version``."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", text(file), flags=re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


def needed(requirements: list[str], extras: frozenset[str] = frozenset()) -> set[str]:
    """Return the names of what has to be installed for these: with what they need in turn."""
    found: set[str] = set()
    for each in map(Requirement, requirements):
        ways = [IMAGE, *({**IMAGE, "extra": extra} for extra in extras)]
        if each.marker is None or any(each.marker.evaluate(way) for way in ways):
            found |= {canonicalize_name(each.name), *needed(requires(each.name) or [], frozenset(each.extras))}
    return found


@pytest.mark.parametrize("file", ASKED)
def test_requirements_file_locks_exactly_the_needed_packages(file: str) -> None:
    assert set(pins(file)) == needed(ASKED[file])


@pytest.mark.parametrize("file", ASKED)
def test_locked_versions_are_the_tested_and_allowed_ones(file: str) -> None:
    locked, constraints = pins(file), pins("constraints.txt")
    assert {name: constraints.get(name) for name in locked} == locked
    asked = map(Requirement, ASKED[file])
    assert [str(each) for each in asked if locked[canonicalize_name(each.name)] not in each.specifier] == []


@pytest.mark.parametrize("file", ASKED)
def test_locked_entries_have_hashes_and_no_address(file: str) -> None:
    entries = [line for line in text(file).replace("\\\n", "").splitlines() if line and line[0] != "#"]
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []
    assert len(entries) == len(pins(file))
    assert "://" not in text(file)


def test_release_script_runs_existing_make_targets() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    run = re.findall(r"^ *make ([a-z ]+)", (ROOT / ".ci" / "release").read_text(), flags=re.MULTILINE)
    assert {name for names in run for name in names.split()} == {"audit", "dist", "sbom", "wheels"} <= targets
