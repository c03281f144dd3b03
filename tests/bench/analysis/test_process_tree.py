"""What processes cost must be counted whoever started them, or the figures are too good."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from bench.analysis.process_tree import run
from bench.errors import BenchError

BURN_S = 0.3
BURN = f"""
import time
while time.process_time() < {BURN_S}:
    pass
"""
START = "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', {code!r}])"


@pytest.mark.parametrize(
    "code",
    [
        BURN,
        START.format(code=BURN) + "; child.wait()",
        START.format(code=BURN),
        START.format(code=START.format(code=BURN)),
        "import os\n" + "if os.fork() == 0:\n    os.setsid()\n    " + BURN.strip().replace("\n", "\n    "),
    ],
    ids=["itself", "a child", "an orphan", "an orphan's child", "a daemon"],
)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_cpu_of_all_processes_is_counted(code: str, tmp_path: Path) -> None:
    cost = run([sys.executable, "-c", code], tmp_path / "log")
    assert cost.cpu_s >= BURN_S
    assert not [process for process in psutil.process_iter(["cmdline"]) if code in (process.info["cmdline"] or ())]


def test_cpu_of_children_without_wait_is_counted(tmp_path: Path) -> None:
    """Workers of pyspark.daemon are such: the kernel does not add up what they used."""
    ignores = "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
    burns = BURN.replace(str(BURN_S), "1.0")
    cost = run([sys.executable, "-c", ignores + START.format(code=burns) + "; child.wait()"], tmp_path / "log")
    assert cost.cpu_s >= 0.6  # looked at every quarter of a second


def test_memory_of_all_processes_is_counted(tmp_path: Path) -> None:
    held = 64 << 20
    hold = f"import time; held = b'x' * {held}; time.sleep(1)"
    cost = run([sys.executable, "-c", START.format(code=hold) + f"; {hold}; child.wait()"], tmp_path / "log")
    assert cost.peak_bytes >= 2 * held
    assert cost.peak_jvm_bytes == 0


def test_a_command_that_fails_has_no_figures(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"failed with 3:\nno such topic$"):
        run([sys.executable, "-c", "import sys; print('no such topic'); sys.exit(3)"], tmp_path / "log")


def test_stopped_measurement_ends_all_its_processes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    waits = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    starts = START.format(code=waits) + "; child.wait()"
    meter = [sys.executable, "-m", "bench.analysis.process_tree", str(log), sys.executable, "-c", starts]
    with subprocess.Popen(meter, stdout=subprocess.DEVNULL) as process:
        while not log.exists() or not log.read_text(encoding="utf-8").strip():
            assert process.poll() is None
        process.terminate()
    assert process.returncode == 130
    assert not psutil.pid_exists(int(log.read_text(encoding="utf-8")))
