"""A Ctrl-C of the demo's ends it, wherever it falls; in a process of its own, whose signals are its own."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

BEGIN = """
import os, signal, time
from deploy.demo.stopping import Interrupted, ignore_signals, obey_signals

def ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000): pass  # handled here

class Putting:
    def __del__(self):
        ctrl_c()

obey_signals()
"""

IN_A_DESTRUCTOR = """
try:
    for step in range(3000):
        one = Putting() if not step else None
        time.sleep(0.01)
    print("lost")
except Interrupted:
    ignore_signals()
    time.sleep(1.2)
    print("interrupted")
"""

WHILE_THINGS_ARE_PUT_AWAY = """
try:
    try:
        ctrl_c()
    finally:
        try:
            raise OSError
        except OSError:
            time.sleep(1.2)
        print("put away")
except Interrupted:
    ignore_signals()
    print("interrupted")
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("program", "expected"),
    [(IN_A_DESTRUCTOR, ["interrupted"]), (WHILE_THINGS_ARE_PUT_AWAY, ["put away", "interrupted"])],
    ids=["in-a-destructor", "while-things-are-put-away"],
)
def test_ctrl_c_interrupts_the_demo_exactly_once(program: str, expected: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout.split("\n")[:-1]) == (0, expected), done.stderr
