"""The process ends at the second signal, whatever hangs in it."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.harness.ports import free_ports
from tests.proxy.test_supervisor import CONFIG
from tests.proxy.workers.test_workers import asked

pytestmark = [pytest.mark.asyncio, pytest.mark.long]

HANGS = {
    "loop": "async def hang(*_): time.sleep(600)\nSupervisor._finish = hang",
    "step": "async def hang(*_): await asyncio.Event().wait()\nWorker.stop = hang",
    "thread": "async def hang(*_): await asyncio.to_thread(time.sleep, 600)\nStateFile.keep = hang",
}
PROGRAM = """\
import asyncio, sys, time
from pathlib import Path
from config.loader import load_settings
from proxy import app
from proxy.control.state_file import StateFile
from proxy.supervisor import Supervisor
from proxy.worker import Worker
{hang}
path = Path(sys.argv[1])
sys.exit(app.run(load_settings(path), path))
"""


@pytest.mark.parametrize(("hang", "workers"), [("loop", 1), ("step", 2), ("thread", 1)])
async def test_second_signal_ends_the_process_whatever_hangs(tmp_path: Path, hang: str, workers: int) -> None:
    bind, port, admin = free_ports(3)
    text = CONFIG.replace("refresh: 50ms", "refresh: 50ms, state: state/brokers.json")
    text = text.format(broker=1, bind=bind, port=port, admin=admin, mode="enforce", more="")
    (tmp_path / "sluice.yaml").write_text(f"{text}workers: {workers}\n")
    (tmp_path / "quotas.yaml").write_text("quotas: []\n")
    arguments = ("-P", "-c", PROGRAM.format(hang=HANGS[hang]), str(tmp_path / "sluice.yaml"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60.0):
            while "cluster test" not in await asyncio.to_thread(asked, admin, "/api/v1/instance"):
                await asyncio.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            async for line in process.stdout:
                if b"stopping" in line:
                    break
            process.send_signal(signal.SIGTERM)
            await process.stdout.read()  # to its end: no worker is left that has it open
            # A step is bounded by 5 s itself, and may end first; then the stop is a usual one.
            assert await process.wait() in ({0, 1} if hang == "step" else {1})
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
