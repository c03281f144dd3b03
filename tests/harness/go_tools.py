"""Programs written in Go that tests use: those on the PATH, or else built with `go install` into the user's cache."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.harness.jars import cache_dir

MODULES: Final = {
    "helm": "helm.sh/helm/v3/cmd/helm@v3.16.4",
    "kustomize": "sigs.k8s.io/kustomize/kustomize/v5@v5.4.3",
}
_BUILD_S: Final = 900


def go_tool(name: str) -> Path:
    """Return the path of a program; skips the test if there is none and it cannot be built."""
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    folder = cache_dir() / "go" / MODULES[name].replace("/", "_")
    built = folder / name
    if built.exists():
        return built
    if shutil.which("go") is None:
        pytest.skip(f"{name} is not on the PATH, and there is no go to build it")
    done = subprocess.run(
        ["go", "install", MODULES[name]],
        env={**os.environ, "GOBIN": str(folder)},
        capture_output=True,
        text=True,
        timeout=_BUILD_S,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"{name} is not on the PATH, and go install {MODULES[name]} says {done.stderr[-500:]}")
    return built
