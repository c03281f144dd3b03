"""Where and with what was measured, without names of machines or paths."""

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path

from bench.targets import Cores, find_program


def describe_machine(cores: Cores) -> dict[str, object]:
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "architecture": platform.machine(),
        "kernel": platform.release(),
        "tcp_congestion_control": Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text(encoding="ascii").strip(),
        "pinned": {"proxy": cores.proxy, "load": cores.load},
        "load_average": os.getloadavg()[0],
    }


def describe_versions(targets: list[str]) -> dict[str, str]:
    """Versions of what was compared, and of what it ran on."""
    found = {
        "kafka-sluice": version("kafka-sluice"),
        "python": platform.python_version(),
        "uvloop": version("uvloop"),
        "gcc": _first_number([find_program("gcc"), "--version"]),
    }
    if "haproxy" in targets:
        found["haproxy"] = _first_number([find_program("haproxy"), "-v"])
    return found


def _cpu_model() -> str:
    match = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return match[1] if match else "unknown"


def _first_number(command: list[str]) -> str:
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    match = re.search(r"\d+(\.\d+)+[^\s)]*", said)
    return match[0] if match else said
