"""The man page and the completions in deploy/share: current, readable, and completing what they should."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.command_files import SHARE
from tests.deploy.test_examples import ROOT, tool

BASH = SHARE / "bash-completion" / "completions" / "sluice"
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def test_man_page_and_completions_match_the_commands() -> None:
    """`make man` writes them again.

    In a process of its own: click keeps the help option that a command was first asked with, by whichever test.
    """
    found = {str(path.relative_to(SHARE)): path.read_text() for path in SHARE.rglob("*") if path.is_file()}
    program = "import json; from deploy.command_files import files; print(json.dumps(files()))"
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found == json.loads(made.stdout)


def test_man_prints_the_page_without_a_warning() -> None:
    page = subprocess.run(
        [tool("man"), "--warnings=w", "--local-file", SHARE / "man" / "man1" / "sluice.1"],
        env={"PATH": PATH, "LC_ALL": "C.UTF-8", "MANWIDTH": "100"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert page.stderr == ""
    assert "      sluice quotas delete --file quotas.yaml user=alice\n" in page.stdout
    for line in ("sluice run [OPTIONS]", "sluice quotas alter [OPTIONS]", "sluice analyze ingest [OPTIONS]"):
        assert f"   {line}" in page.stdout


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("sluice he", ["health"]),
        ("sluice health --", ["--config", "--url", "--ca", "--live", "--help"]),
        ("sluice quotas al", ["alter"]),
        ("sluice quotas alter --user", ["--user", "--user-defaults"]),
        ("sluice explain --user", ["--user"]),
        ("sluice analyze rep", ["report"]),
    ],
)
def test_bash_completes_commands_and_options_of_sluice(words: str, completed: list[str]) -> None:
    script = (
        f". {BASH}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _sluice_completion sluice; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    said = subprocess.run(
        ["bash", "--norc", "-c", script], env={"PATH": PATH}, capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == completed


@pytest.mark.parametrize(("shell", "words"), [("zsh", "sluice quotas al"), ("fish", "sluice quotas al")])
def test_the_command_answers_other_shells(shell: str, words: str) -> None:
    asked = {
        "_SLUICE_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": "2" if shell == "zsh" else "al",
    }
    said = subprocess.run(["sluice"], env={"PATH": PATH, **asked}, capture_output=True, text=True, check=True)
    assert "alter" in said.stdout
    assert "apply" not in said.stdout
