"""The two C programs: built with gcc when their sources are newer than they are."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

from bench.errors import BenchError

SOURCES: Final = Path(__file__).parent / "native"
PROGRAMS: Final = Path(__file__).parent / "bin"
LOAD: Final = PROGRAMS / "load"
STUB_BROKER: Final = PROGRAMS / "stub_broker"
FLAGS: Final = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")
SHARED: Final = ("stream.c", "messages.c")


def build() -> None:
    if shutil.which("gcc") is None:
        raise BenchError("gcc is not installed; on Debian: sudo apt-get install -y gcc")
    PROGRAMS.mkdir(exist_ok=True)
    newest = max(path.stat().st_mtime for path in SOURCES.iterdir())
    for program in (LOAD, STUB_BROKER):
        if not program.exists() or program.stat().st_mtime < newest:
            _compile(program)


def _compile(program: Path) -> None:
    sources = [str(SOURCES / name) for name in (f"{program.name}.c", *SHARED)]
    done = subprocess.run(["gcc", *FLAGS, "-o", str(program), *sources], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"gcc could not build {program.name}:\n{done.stderr}")
