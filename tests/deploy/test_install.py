"""docs/install.md, typed: a fresh environment from the wheel and the locked libraries, and ``sluice demo`` in it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.test_packages import ROOT, build

pytestmark = pytest.mark.long

PAGE = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")


def block(heading: str) -> str:
    """Return the first block of commands below a heading of the page."""
    found = re.search(rf"^## {heading}\n.*?^```sh\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def type_in(commands: str) -> str:
    """Run commands in the checkout; all must succeed."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-euo", "pipefail", "-c", commands],
        cwd=ROOT,
        env={**os.environ, "PATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow  # half a minute of pip
def test_installation_by_the_page_runs_the_demo(tmp_path: Path) -> None:
    """To its first throttle, without Java and without the sources; one test, as it takes half a minute to install."""
    installed = tmp_path / "sluice"
    wheel = build("wheel", ROOT, tmp_path / "wheel")
    commands = block("With the tested libraries") + block("Completion and the man page") + "complete -p sluice\n"
    assert "kafka_sluice-*.whl" in commands
    assert "--require-hashes" in commands
    said = type_in(commands.replace("/opt/sluice", str(installed)).replace("kafka_sluice-*.whl", str(wheel)))
    assert "_sluice_completion" in said
    for path in ("share/man/man1/sluice.1", *re.findall(r"/opt/sluice/(share/[\w./-]+)", PAGE)):
        assert (installed / path).exists(), path
    shows_a_throttle(installed / "bin", tmp_path / "empty")


def shows_a_throttle(programs: Path, folder: Path) -> None:
    folder.mkdir()
    environment = {"TMPDIR": str(folder), "PATH": str(programs)}
    command = [str(programs / "sluice"), "demo", "--seconds", "200"]
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        said = ""
        while "The first throttle" not in said:
            line = demo.stdout.readline()
            assert line, said
            said += line
        demo.terminate()
    assert list(folder.iterdir()) == []


def test_files_and_targets_named_in_install_page_exist() -> None:
    for path in set(re.findall(r"(?<![\w/.])(?:deploy|\.ci)/[\w./-]+\w", PAGE)):
        assert (ROOT / path).exists(), path
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`make ([a-z-]+)`", PAGE)):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
