"""Building the load generator with gcc, if its sources have changed."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from bench.errors import BenchError

SOURCES: Final = Path(__file__).parent / "native"
PROGRAMS: Final = Path(__file__).parent / "bin"
GENERATOR: Final = PROGRAMS / "generator"
FLAGS: Final = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")
LIBRARIES: Final = ("-lssl", "-lcrypto")


def build() -> None:
    if shutil.which("gcc") is None:
        raise BenchError("gcc is not installed; on Debian: sudo apt-get install -y gcc")
    PROGRAMS.mkdir(exist_ok=True)
    newest = max(path.stat().st_mtime for path in SOURCES.iterdir())
    if GENERATOR.exists() and GENERATOR.stat().st_mtime >= newest:
        return
    sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
    made = GENERATOR.with_suffix(f".{os.getpid()}")  # another process may build it, or run it, at the same time
    done = subprocess.run(
        ["gcc", *FLAGS, "-o", str(made), *sources, *LIBRARIES], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise BenchError(f"gcc could not build the load generator (it needs libc6-dev and libssl-dev):\n{done.stderr}")
    made.replace(GENERATOR)
