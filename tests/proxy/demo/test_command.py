"""``sluice demo``: what it shows, and that nothing of it stays behind."""

import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from proxy.cli import cli
from proxy.demo import command

SLUICE = Path(sys.executable).parent / "sluice"


@pytest.mark.long
def test_demo_with_keep_runs_until_interrupt_and_cleans_up(tmp_path: Path) -> None:
    """Its first throttle: tests/deploy/test_install.py."""
    demo = subprocess.Popen(
        [SLUICE, "demo", "--seconds", "3", "--keep"],
        env={"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with demo, ExitStack() as stack:
        stack.callback(_kill, demo)  # else a failure below would wait for it forever
        assert demo.stdout is not None
        said = ""
        while "--admin" not in said:
            line = demo.stdout.readline()
            assert line, said
            said += line
        assert "It is not Kafka" in said
        assert "  3 s   greedy" in said
        (proxy,) = psutil.Process(demo.pid).children()
        admin = re.search(r"sluice throttled (--admin) (\S+)", said)
        assert admin is not None
        subprocess.run([SLUICE, "throttled", *admin.groups()], check=True)
        demo.send_signal(signal.SIGINT)
        assert demo.wait(60.0) == 0
        assert "Everything is stopped" in demo.stdout.read()
    assert not proxy.is_running()
    assert list(tmp_path.iterdir()) == []


def _kill(demo: "subprocess.Popen[str]") -> None:
    if demo.poll() is None:
        os.killpg(demo.pid, signal.SIGKILL)


@pytest.mark.long
def test_a_proxy_that_does_not_start_is_told_with_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_CONFIGURATION", "cluster: {{}}\n")
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    done = CliRunner().invoke(cli, ["demo"])
    assert done.exit_code == 1
    assert "Sluice has not started" in done.stderr
    assert "sluice.yaml:1" in done.stderr


class OfTest:
    """A proxy and a producer, as far as a demo reads them."""

    def __init__(self, throttled_s: float = 0.0, error: Exception | None = None) -> None:
        self.client_id = "greedy"
        self.sent_bytes = 0
        self.error = error
        self._throttled_s = throttled_s

    def throttled_s(self, client_id: str) -> float:
        assert client_id == self.client_id
        return self._throttled_s


@pytest.fixture
def _no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "sleep", lambda _: None)


@pytest.mark.usefixtures("_no_sleep")
@pytest.mark.parametrize("throttled_s", [0.0, 0.5])
def test_demo_prints_first_throttle_only_when_one_happened(
    throttled_s: float, capsys: pytest.CaptureFixture[str]
) -> None:
    at: Any = OfTest(throttled_s)
    assert command._watch(at, [at], 3) == bool(throttled_s)
    assert capsys.readouterr().out.count("The first throttle") == bool(throttled_s)


@pytest.mark.usefixtures("_no_sleep")
def test_a_producer_that_fails_ends_the_demo() -> None:
    at: Any = OfTest(error=OSError("no route"))
    with pytest.raises(command.DemoError, match="greedy has failed: OSError"):
        command._watch(at, [at], 3)
