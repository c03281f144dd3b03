"""The command and configuration of each proxy."""

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.errors import BenchError
from tests.harness.certificates import Identity

DIRECT, HAPROXY, RELAY, PURE, SLUICE = "direct", "haproxy", "relay", "pure", "sluice"
"""``sluice`` is the compiled wheel, ``pure`` the same sources uncompiled."""
NO_QUOTAS: Final = "no-quotas"
"""The compiled wheel without quotas: the baseline for kinds of quotas."""
SLUICES: Final = (PURE, SLUICE)
COMPILED: Final = Path(f"{sys.prefix}-compiled/bin")
"""The environment into which ``make test-compiled`` and ``make bench`` install the wheel."""
PORTS: Final = 3
"""Consecutive ports that a proxy may need: the broker's, and two of Sluice's own."""

QUOTA_BYTES_PER_S: Final = 10**12
"""High enough never to throttle; every byte is still charged."""

_BYTES: Final = f"producer_byte_rate: {QUOTA_BYTES_PER_S}, consumer_byte_rate: {QUOTA_BYTES_PER_S}"
_TIME: Final = "request_percentage: 1000000"
_MUTATIONS: Final = "controller_mutation_rate: 1000000"
_CONNECTIONS: Final = "  - {entity: {ip: {default: true}}, connection_creation_rate: 1000000}\n"
KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "none": ("", ""),
    "bytes": (_BYTES, ""),
    "time": (_TIME, ""),
    "mutations": (_MUTATIONS, ""),
    "connections": ("", _CONNECTIONS),
    "all": (f"{_BYTES}, {_TIME}, {_MUTATIONS}", _CONNECTIONS),
    "stacked": (_BYTES, ""),
}
"""For each set of kinds: the limits per client-id, and further quotas, all as high."""
_CAPS: Final = f"caps:\n  - {{entity: {{user: {{default: true}}}}, {_BYTES}}}\n"
"""The user's caps in "stacked"."""

HAPROXY_BUFSIZE, HAPROXY_TLS_BUFSIZE = 65536, 32768
"""The sizes between 16 and 128 KiB with HAProxy's best figures; over TLS, 32 KiB is a fifth better for bodies
of 1 MiB.
"""

_HAPROXY_CFG: Final = """\
global
    nbthread 1
    maxconn 3000
    tune.bufsize {bufsize}
defaults
    mode tcp
    option splice-auto
    timeout connect 5s
    timeout client 1h
    timeout server 1h
listen kafka
    bind 127.0.0.1:{port}{tls}
    server broker 127.0.0.1:{broker_port}
"""
_SLUICE_YAML: Final = """\
cluster: {{name: bench, bootstrap: ["127.0.0.1:{broker_port}"]}}
listeners:
  - name: BENCH
    bind: "127.0.0.1:{bootstrap_port}"
    advertise: 127.0.0.1
    brokers: {{"0": "{port}"}}
{tls}quotas: {{store: {{type: file, path: quotas.yaml}}}}
admin: {{bind: "127.0.0.1:{admin_port}"}}
drain: {{delay: 0s, timeout: 1s}}
"""


@dataclass(frozen=True, slots=True)
class Variant:
    """The set-up of a proxy: the number of client-ids with quotas (in Sluice only), TLS to its clients, a real broker
    behind it, and the kinds of its quotas (``KINDS``).
    """

    entities: int = 1
    tls: bool = False
    real: bool = False
    kinds: str = "bytes"


@dataclass(frozen=True, slots=True)
class Launch:
    """The parameters of a proxy's start. ``identity``: TLS to its clients; ``wrap``: precedes Sluice's own
    arguments.
    """

    folder: Path
    port: int
    broker_port: int
    entities: int
    identity: Identity | None
    wrap: tuple[str, ...]
    kinds: str = "bytes"


def haproxy(place: Launch) -> list[str]:
    config = place.folder / "haproxy.cfg"
    tls = f" ssl crt {place.identity.both}" if place.identity else ""
    bufsize = HAPROXY_TLS_BUFSIZE if place.identity else HAPROXY_BUFSIZE
    text = _HAPROXY_CFG.format(port=place.port, broker_port=place.broker_port, tls=tls, bufsize=bufsize)
    config.write_text(text, encoding="utf-8")
    return [find_program("haproxy"), "-db", "-f", str(config)]


def relay(place: Launch) -> list[str]:
    files = [str(place.identity.certificate), str(place.identity.key)] if place.identity else []
    return [sys.executable, "-m", "bench.relay", str(place.port), str(place.broker_port), *files]


def sluice(place: Launch) -> list[str]:
    return [require_compiled("python"), *place.wrap, "-m", "kafka_sluice", *_run_words(place)]


def pure(place: Launch) -> list[str]:
    return [sys.executable, *place.wrap, "-m", "proxy", *_run_words(place)]


def _run_words(place: Launch) -> list[str]:
    config = place.folder / "sluice.yaml"
    tls = ""
    if place.identity:
        tls = f'    tls: {{certificate: "{place.identity.certificate}", key: "{place.identity.key}"}}\n'
    config.write_text(
        _SLUICE_YAML.format(
            port=place.port,
            bootstrap_port=place.port + 1,
            admin_port=place.port + 2,
            broker_port=place.broker_port,
            tls=tls,
        ),
        encoding="utf-8",
    )
    with (place.folder / "quotas.yaml").open("w", encoding="ascii") as quotas:
        limits, others = KINDS[place.kinds]
        quotas.write(f"quotas:\n{others}" if limits or others else "quotas: []\n")
        for number in range(place.entities if limits else 0):
            quotas.write(f"  - {{entity: {{client-id: bench-{number:06}}}, {limits}}}\n")
        if place.kinds == "stacked":
            quotas.write(_CAPS)
    return ["run", "-c", str(config)]


COMMANDS: Final[Mapping[str, Callable[[Launch], list[str]]]] = {
    HAPROXY: haproxy,
    RELAY: relay,
    PURE: pure,
    SLUICE: sluice,
    NO_QUOTAS: sluice,
}
PROXIES: Final = (HAPROXY, RELAY, PURE, SLUICE)


def require_compiled(program: str) -> str:
    """Return the path of a program in the compiled wheel's environment."""
    path = COMPILED / program
    if not path.exists():
        raise BenchError(f"there is no {path}: the compiled build, which `make bench` builds. --targets leaves it out")
    return str(path)


def find_program(name: str) -> str:
    """Return the path of an installed program; Debian keeps servers outside a user's PATH."""
    found = shutil.which(name) or shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        raise BenchError(f"{name} is not installed; on Debian: sudo apt-get install -y {name}")
    return found
