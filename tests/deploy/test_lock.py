"""deploy/requirements.txt: the image installs what pyproject.toml asks for, as tested, each file with its hash."""

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IMAGE = {"python_version": "3.11", "python_full_version": "3.11.16", "extra": ""}
"""The Python of the image, whichever runs this."""


def pins(text: str) -> dict[str, str]:
    """Return name → version of each line ``name==version``."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", text, flags=re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


LOCK = (ROOT / "deploy" / "requirements.txt").read_text()
LOCKED = pins(LOCK)
CONSTRAINTS = pins((ROOT / "deploy" / "constraints.txt").read_text())


def needed(requirements: list[str], extras: frozenset[str] = frozenset()) -> dict[str, Requirement]:
    """Return what has to be installed for these, by name: with what they need in turn."""
    found: dict[str, Requirement] = {}
    for each in map(Requirement, requirements):
        ways = [IMAGE, *({**IMAGE, "extra": extra} for extra in extras)]
        if each.marker is None or any(each.marker.evaluate(way) for way in ways):
            found[canonicalize_name(each.name)] = each
            found |= needed(requires(each.name) or [], frozenset(each.extras))
    return found


def test_it_has_what_the_proxy_needs_and_nothing_else() -> None:
    """`make lock` writes it again."""
    assert set(LOCKED) == set(needed(PROJECT["dependencies"]))


def test_its_versions_are_those_that_are_tested() -> None:
    assert {name: CONSTRAINTS.get(name) for name in LOCKED} == LOCKED


def test_its_versions_are_those_that_pyproject_allows() -> None:
    asked = map(Requirement, PROJECT["dependencies"])
    assert [str(each) for each in asked if LOCKED[canonicalize_name(each.name)] not in each.specifier] == []


def test_each_library_has_hashes_and_none_has_an_address() -> None:
    entries = [line for line in LOCK.replace("\\\n", "").splitlines() if line and line[0] != "#"]
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []
    assert len(entries) == len(LOCKED)
    assert "://" not in LOCK


def test_the_release_runs_targets_that_there_are() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    run = re.findall(r"^ *make ([a-z ]+)", (ROOT / ".ci" / "release").read_text(), flags=re.MULTILINE)
    assert {name for names in run for name in names.split()} == {"audit", "dist", "sbom", "wheels"} <= targets
