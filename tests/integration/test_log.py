"""A proxy whose log nobody reads."""

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.harness.polling import wait_until
from tests.harness.ports import LOOPBACK, free_ports

pytestmark = pytest.mark.integration

CONFIGURATION = """
cluster: {{name: demo, bootstrap: ["{host}:{nowhere}"]}}
listeners:
  - {{name: PLAIN, bind: "{host}:{port}", advertise: "{host}", brokers: {{"1": "{broker}"}}}}
quotas: {{store: {{path: quotas.yaml}}}}
admin: {{bind: "{host}:{admin}"}}
"""


def test_a_pipe_that_nobody_reads_stops_neither_the_proxy_nor_its_end(tmp_path: Path) -> None:
    port, broker, admin, nowhere = free_ports(4)
    config = CONFIGURATION.format(host=LOOPBACK, port=port, broker=broker, admin=admin, nowhere=nowhere)
    (tmp_path / "sluice.yaml").write_text(config, encoding="utf-8")
    (tmp_path / "quotas.yaml").write_text("quotas: []\n", encoding="utf-8")
    reading_end, writing_end = os.pipe()
    os.set_blocking(writing_end, False)
    with pytest.raises(BlockingIOError):
        fill(writing_end)
    os.set_blocking(writing_end, True)
    command = [sys.executable, "-m", "proxy", "run", "-c", str(tmp_path / "sluice.yaml")]
    with subprocess.Popen(command, stderr=writing_end) as running:
        try:
            wait_until(lambda: lives(admin), "a proxy that is alive", timeout_s=90.0)
            running.send_signal(signal.SIGTERM)
            assert running.wait(60) == 0
        finally:
            running.kill()
            os.close(reading_end)
            os.close(writing_end)


def fill(descriptor: int) -> None:
    while True:
        os.write(descriptor, b"x" * 4096)


def lives(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/livez", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
