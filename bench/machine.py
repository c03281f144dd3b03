"""Descriptions of the machine and the versions, without host names or paths."""

import os
import platform
import re
import ssl
import subprocess
from importlib.metadata import version
from pathlib import Path

from bench.programs import find_program
from bench.targets import Cores


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
    """Return the versions of the compared programs and of the platform."""
    found = {
        "kafka-sluice": version("kafka-sluice"),
        "python": platform.python_version(),
        "uvloop": version("uvloop"),
        "openssl": ssl.OPENSSL_VERSION.split()[1],
        "gcc": _first_number(_said([find_program("gcc"), "--version"])),
    }
    if "haproxy" in targets:
        said = _said([find_program("haproxy"), "-vv"])
        found["haproxy"] = _first_number(said)
        found["haproxy's openssl"] = _first_number(said.partition("Running on OpenSSL version")[2])
    return found


def _cpu_model() -> str:
    match = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return match[1] if match else "unknown"


def _said(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _first_number(said: str) -> str:
    line = said.partition("\n")[0]
    match = re.search(r"\d+(\.\d+)+[^\s)]*", line)
    return match[0] if match else line
