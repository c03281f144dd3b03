"""The commands of README and docs/install.md that set something up, typed where nothing is: new folders, an empty HOME
and an empty environment. ``make demo`` and ``make test`` are typed so by continuous integration (``.ci/run``).
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.test_packages import ROOT, let_in, tracked

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TIMEOUT_S: Final = 600
CERTIFICATES: Final = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE")


class Newcomer:
    """A checkout, and a shell with an empty HOME that finds the system's programs and this Python."""

    def __init__(self, folder: Path, files: Iterable[str]) -> None:
        self.checkout = folder / "sluice"
        for name in files:
            (self.checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.checkout / name)
        home, programs = folder / "home", folder / "bin"
        for each in (home, programs, folder / "tmp"):
            each.mkdir()
        for name in ("python", "python3"):
            (programs / name).symlink_to(Path(sys.executable).resolve())
        certificates = {name: os.environ[name] for name in CERTIFICATES if name in os.environ}
        self._environment = {"HOME": str(home), "PATH": f"{programs}:/usr/bin:/bin", **certificates}

    def type(self, commands: str) -> str:
        """Return what the commands print; each must succeed."""
        done = subprocess.run(
            ["bash", "--norc", "-euo", "pipefail", "-c", commands],
            cwd=self.checkout,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"$ {commands}\n{done.stdout[-4000:]}"
        return done.stdout


@pytest.fixture
def newcomer(tmp_path: Path) -> Newcomer:
    return Newcomer(tmp_path, tracked())


def test_commands_of_the_readme_install_sluice_and_show_a_throttle(newcomer: Newcomer) -> None:
    [commands] = re.findall(r"^## Try it\n.*?^```sh\n(.*?)^```$", _read("README.md"), flags=re.MULTILINE | re.DOTALL)
    assert "The first throttle" in newcomer.type(commands)
    assert "compiled" in newcomer.type(".venv-sluice/bin/sluice --version")


@pytest.mark.parametrize("tool", ["pipx", "uv"])
def test_tool_of_the_install_page_installs_a_sluice_that_runs(newcomer: Newcomer, tool: str) -> None:
    """Without compiling, as the page says how; the test above compiles."""
    [command] = re.findall(rf"`({tool}(?: tool)? install \.)`", _read("docs/install.md"))
    tools = f"python3 -m venv tools && tools/bin/pip install -q {tool} && PATH=$PWD/tools/bin:$PATH"
    newcomer.type(f"{tools}; export HATCH_BUILD_NO_HOOKS=true; {command}")
    assert "pure Python" in newcomer.type("~/.local/bin/sluice --version")


def test_recipe_of_the_image_builds_a_compiled_sluice_that_throttles(tmp_path: Path) -> None:
    """The build stage of the Dockerfile, but for what installs the compiler, with / moved to a folder."""
    newcomer = Newcomer(tmp_path, [name for name in tracked() if let_in(name)])
    text = re.sub(r"\\\n\s*", "", _read("Dockerfile"))
    stage = text.partition(" AS build\n")[2].partition("\nFROM ")[0]
    for commands in re.findall("^RUN (.*)", stage, flags=re.MULTILINE):
        if "apt-get" not in commands:
            newcomer.type(re.sub(r"(?<!\S)/(opt|tmp)/", rf"{tmp_path}/\1/", commands))
    assert "The first throttle" in newcomer.type(f"{tmp_path}/opt/sluice/bin/sluice demo --seconds 5")


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")
