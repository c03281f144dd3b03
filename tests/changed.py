"""The unit tests that a change can break: ``python -m tests.changed`` prints their files.

These are the tests of the changed folders (the tests mirror the tree), and all that import a changed module, directly
or through others. Changed is what differs from the commit at which this branch left main, committed or not.
"""

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import grimp

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = ("analysis", "bench", "config", "deploy", "protocol", "proxy", "quotas", "tests")


def affected_tests(changed: Iterable[str]) -> list[str]:
    """Return files of tests for changed paths; all are relative to the repository."""
    graph = grimp.build_graph(*PACKAGES)
    found: set[str] = set()
    for path in map(Path, changed):
        found.update(_beside(path))
        module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        if module in graph.modules:
            importers = graph.find_downstream_modules(module) | {module}
            found |= {f"{importer.replace('.', '/')}.py" for importer in importers}
    return sorted(file for file in found if Path(file).name.startswith("test_") and (ROOT / file).is_file())


def _beside(path: Path) -> list[str]:
    """Return the tests of a file's folder, or of the nearest one above; tests/deploy for what is in no package."""
    folder = path.parent if path.parts[0] in PACKAGES else Path("deploy")
    mirror = folder if folder.parts[0] == "tests" else "tests" / folder
    found = next(filter(None, ([*(ROOT / each).glob("test_*.py")] for each in (mirror, *mirror.parents))), [])
    return [str(file.relative_to(ROOT)) for file in found]


def _changed() -> list[str]:
    for main in ("origin/main", "main"):
        base = _git("merge-base", "HEAD", main)
        if base:
            break
    return [*_git("diff", "--name-only", *base), *_git("ls-files", "--others", "--exclude-standard")]


def _git(*words: str) -> list[str]:
    """Return the lines of a command's output; none if it fails."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()


if __name__ == "__main__":
    print(*affected_tests(_changed()))
