"""Kills executors of a standalone cluster while they work, as the driver says who does (Spark's REST API)."""

import json
import os
import signal
from collections.abc import Sequence
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from time import sleep
from typing import Any

import psutil

from tests.harness.ports import LOOPBACK
from tests.harness.process import Program

_POLL_S = 0.03


def kill_executors(ui_port: int, after: Sequence[int], program: Program) -> int:
    """Kill the busiest executor each time when so many tasks of the program are done; returns how many were killed.

    ``ui_port`` is its ``spark.ui.port``.
    """
    killed: set[str] = set()
    while program.is_running and len(killed) < len(after):
        sleep(_POLL_S)
        app, executors = _executors(ui_port)
        done = sum(each["completedTasks"] for each in executors)
        busy = [each for each in executors if each["activeTasks"] and each["id"] not in killed]
        if busy and done >= after[len(killed)]:
            chosen = max(busy, key=lambda each: each["activeTasks"])["id"]
            if (pid := _pid(app, chosen)) is not None:
                os.kill(pid, signal.SIGKILL)
            killed.add(chosen)
    return len(killed)


def _executors(ui_port: int) -> tuple[str, list[dict[str, Any]]]:
    with suppress(OSError, HTTPException, ValueError, IndexError):  # it has not begun, or has just ended
        app = _asked(ui_port, "applications")[0]["id"]
        found = _asked(ui_port, f"applications/{app}/allexecutors")
        return app, [each for each in found if each["id"] != "driver"]
    return "", []


def _asked(port: int, path: str) -> Any:
    connection = HTTPConnection(LOOPBACK, port, timeout=5)
    with closing(connection):
        connection.request("GET", f"/api/v1/{path}")
        return json.load(connection.getresponse())


def _pid(app: str, executor: str) -> int | None:
    for each in psutil.process_iter():
        with suppress(psutil.Error):
            words = each.cmdline()
            if {"--app-id", app, "--executor-id", executor} <= set(words) and words[0].endswith("java"):
                found: int = each.pid
                return found
    return None
