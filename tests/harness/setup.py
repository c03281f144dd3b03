"""Install what the demo, or all of tests and benchmarks, need beside Python: `python -m tests.harness.setup [demo]`.

Programs come from Debian packages when run as root (else the line to type is printed and the exit status is 2), jars
from Maven Central into the user's cache, and python-gssapi, which is built against such packages, into this
environment. Where nothing is missing it does nothing, at once. A download that fails is tried three times.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.harness import object_store
from tests.harness.jars import ALL_SETS, DEMO_SETS, JarError, JarSet, cache_dir, fetch, missing

OLDEST_JAVA: Final = 17  # Kafka 4 brokers start on nothing older
JAVA: Final = ("java", "javac")
APT_TIMEOUT_S: Final = 900
PIP_TIMEOUT_S: Final = 600
PAUSES_S: Final = (10.0, 30.0)  # before the second try, and before the third
CONSTRAINTS: Final = Path(__file__).parents[2] / "deploy" / "constraints.txt"
HEADERS: Final = (Path(sysconfig.get_path("include")), Path("/usr/include"))


class SetupError(Exception):
    """Something is missing and cannot be installed from here; the text says what to type."""


DOWNLOAD_ERRORS: Final = (SetupError, JarError, subprocess.TimeoutExpired)


@dataclass(frozen=True, slots=True)
class Program:
    """A command (or a header, as C includes it), and the Debian packages that bring it."""

    command: str
    package: str


DEMO_PROGRAMS: Final = (Program("java", "default-jre-headless"), Program("mvn", "maven"))
ALL_PROGRAMS: Final = (
    *DEMO_PROGRAMS,
    Program("javac", "default-jdk-headless"),
    Program("curl", "curl"),  # pages of docs/ are typed
    Program("gcc", "gcc libc6-dev"),  # the headers are only recommended by gcc, and recommendations are left out
    Program("openssl/ssl.h", "libssl-dev"),
    Program("haproxy", "haproxy"),
    Program("promtool", "prometheus"),
    Program("systemd-analyze", "systemd"),
    Program("chromium", "chromium"),
    Program("faketime", "faketime"),
    Program("/usr/sbin/kadmin.local", "krb5-kdc krb5-admin-server"),
    Program("krb5-config", "libkrb5-dev"),
    Program("Python.h", "python3-dev"),
)


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["demo"]):
        print("usage: python -m tests.harness.setup [demo]", file=sys.stderr)
        return 2
    programs, sets = (DEMO_PROGRAMS, DEMO_SETS) if arguments else (ALL_PROGRAMS, ALL_SETS)
    try:
        install_programs(programs)
        fetch_jars(sets)
        if programs is ALL_PROGRAMS:
            install_gssapi()
            install_axe()
            with_retries(object_store.install)
    except DOWNLOAD_ERRORS as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def install_programs(programs: tuple[Program, ...]) -> None:
    absent = [program for program in programs if not is_installed(program)]
    if not absent:
        return
    packages = " ".join(program.package for program in absent)
    commands = ", ".join(program.command for program in absent)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise SetupError(
            f"missing: {commands}. On Debian, type:\n"
            f"  sudo apt-get update && sudo apt-get install -y --no-install-recommends {packages}"
        )
    print(f"installing {packages} (for {commands})", flush=True)
    with_retries(lambda: _apt_get("update"))
    with_retries(lambda: _apt_get("install", "-y", "--no-install-recommends", *packages.split()))
    for program in absent:
        if not is_installed(program):
            raise SetupError(f"{program.package} is installed, but there is still no usable {program.command}")


def fetch_jars(sets: tuple[JarSet, ...]) -> None:
    if wanted := missing(sets):
        names = ", ".join(one.name for one in wanted)
        print(f"fetching {names} from Maven Central into {cache_dir() / 'jars'}", flush=True)
        with_retries(lambda: fetch(wanted))


def install_gssapi() -> None:
    """Not of the extra `dev`: for Linux it is source alone, which needs packages that only now are there."""
    if importlib.util.find_spec("gssapi") is not None:
        return
    print("building gssapi", flush=True)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--constraint", str(CONSTRAINTS)]
    with_retries(lambda: _run([*pip, "gssapi"], PIP_TIMEOUT_S))


def install_axe() -> None:
    """The script that checks pages for accessibility: without the package's dependency, a browser that drives it."""
    if importlib.util.find_spec("axe_playwright_python") is None:
        print("installing axe-core", flush=True)
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--constraint", str(CONSTRAINTS)]
        with_retries(lambda: _run([*pip, "axe-playwright-python"], PIP_TIMEOUT_S))


def is_installed(program: Program) -> bool:
    if program.command.endswith(".h"):
        return any((folder / program.command).exists() for folder in HEADERS)
    found = shutil.which(program.command)
    return found is not None and (program.command not in JAVA or _java_version(Path(found)) >= OLDEST_JAVA)


def with_retries(download: Callable[[], None]) -> None:
    """Call it up to three times, with a pause between. Raises what the last call raised."""
    for pause_s in PAUSES_S:
        try:
            return download()
        except DOWNLOAD_ERRORS as error:
            print(f"{error}\ntrying again in {pause_s:g} s", file=sys.stderr, flush=True)
            time.sleep(pause_s)
    return download()


def _java_version(program: Path) -> int:
    """The major version, from Java's `release` file: asking `java -version` costs a start of a JVM."""
    release = program.resolve().parent.parent / "release"
    try:
        found = re.search(r'^JAVA_VERSION="(\d+)', release.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return OLDEST_JAVA  # a Java without that file: believe it, and let the broker complain
    return int(found[1]) if found else OLDEST_JAVA


def _apt_get(*arguments: str) -> None:
    _run(["apt-get", "-q", *arguments], APT_TIMEOUT_S)


def _run(command: list[str], timeout_s: float) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-10:])
        raise SetupError(f"{' '.join(command)} failed:\n{said}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
