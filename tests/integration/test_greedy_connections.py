"""Ways around connection_creation_rate: from any port, at any listener, with nothing said, by another spelling.

What counts is how many connections the proxy has served, and how many were answered.
"""

import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import cycle
from typing import Final

import pytest

from tests.harness.kafka import KafkaCluster
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import API_VERSIONS, Address, frame

SAMPLES: Final = 6
LIMIT_PER_S: Final = 5
DURATION_S: Final = 15.0
THREADS: Final = 4
ANSWER_S: Final = 15.0
REQUEST: Final = frame(API_VERSIONS, 0, 1, "greedy", b"")
BALANCER: Final = "127.0.8.1"
"""Whose word for where a connection comes from is taken."""
CLAIMED: Final = "10.8.0.1"
_RESET: Final = struct.pack("ii", 1, 0)


@dataclass(slots=True)
class Attack:
    """One address that connects as often as it can, at each place in turn."""

    name: str
    source: str
    places: Sequence[Address]
    says: bytes = REQUEST
    headers: Sequence[bytes] = (b"",)
    answered: int = 0
    tried: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def go_on(self, end_s: float) -> None:
        places, headers = cycle(self.places), cycle(self.headers)
        while time.monotonic() < end_s:
            answered = self._once(next(places), next(headers))
            with self._lock:
                self.tried += 1
                self.answered += answered

    def _once(self, place: Address, header: bytes) -> bool:
        """Whether it was answered; one that says nothing is left at once, without a word of farewell."""
        with socket.socket() as client:
            client.settimeout(ANSWER_S)
            client.bind((self.source, 0))
            try:
                client.connect((place.host, place.port))
                if not self.says:
                    time.sleep(0.01)
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    return False
                client.sendall(header + self.says)
                return bool(client.recv(4))
            except OSError:
                return False


def by_protocol(address: str) -> bytes:
    """Version 1 of the PROXY protocol."""
    family = "TCP6" if ":" in address else "TCP4"
    destination = "::1" if ":" in address else "127.0.0.1"
    return f"PROXY {family} {address} {destination} 1000 2000\r\n".encode()


def by_binary_protocol(address: str) -> bytes:
    """Version 2, of IPv6 with an IPv4 address within."""
    within = bytes(10) + b"\xff\xff" + socket.inet_aton(address)
    return b"\r\n\r\n\0\r\nQUIT\n\x21\x21" + struct.pack(">H", 36) + within + within + struct.pack(">HH", 1000, 2000)


@pytest.mark.matrix
@pytest.mark.timeout(240)
def test_greedy_addresses_stay_within_connection_creation_rate(cluster: KafkaCluster) -> None:
    quotas = f"quotas: [{{entity: {{ip: {{default: true}}}}, connection_creation_rate: {LIMIT_PER_S}}}]"
    listeners = {
        "SECOND": {},
        "BALANCED": {"proxy_protocol": {"networks": [f"{BALANCER}/32"]}},
    }
    settings = {"quotas": {"window": {"samples": SAMPLES, "size": "1s"}}}
    with SluiceProcess(
        cluster.bootstrap, cluster.node_ids, quotas=quotas, settings=settings, listeners=listeners
    ) as sluice:
        everywhere = [sluice.address, *sluice.broker_addresses.values(), sluice.listeners["SECOND"].address]
        balanced = [sluice.listeners["BALANCED"].address]
        spellings = [by_protocol(CLAIMED), by_protocol(f"::ffff:{CLAIMED}"), by_binary_protocol(CLAIMED)]
        attacks = [
            Attack("ports", "127.0.8.2", everywhere[:1]),
            Attack("listeners", "127.0.8.3", everywhere),
            Attack("spellings", BALANCER, balanced, headers=spellings),
        ]
        silent = Attack("silent", "127.0.8.4", everywhere, says=b"")
        also_silent = Attack("beside silent ones", "127.0.8.4", everywhere)
        claims = Attack("claims", "127.0.8.5", balanced, headers=[by_protocol(f"10.9.0.{n}") for n in range(1, 250)])
        elapsed_s = _run([*attacks, silent, also_silent, claims])
        most = LIMIT_PER_S * (SAMPLES - 1 + elapsed_s + 1) + 1
        metrics = sluice.metrics()
        accepted = metrics.value("sluice_connections_total", outcome="accepted")
        refused = metrics.value("sluice_frames_rejected_total", cause="connection_rate_per_ip")
    for each in (*attacks, also_silent, claims):
        print(f"{each.name}: {each.answered} of {each.tried} answered / {most:.0f}")
    print(f"{accepted:.0f} accepted in all, {refused:.0f} refused for the rate")
    assert {each.name: each.answered for each in (*attacks, also_silent) if each.answered > most} == {}
    assert min(each.answered for each in attacks) > LIMIT_PER_S
    assert also_silent.answered < most
    assert claims.answered == 0, "nobody but the load balancer says where a connection comes from"
    # Connections of the load balancer have no address, and so no rate, until the header has said it.
    spelled = next(each for each in attacks if each.name == "spellings")
    assert accepted <= 4 * most + spelled.tried
    assert refused > 0


def _run(attacks: Sequence[Attack]) -> float:
    """All at the same time; how long it took until the last one had its answer."""
    begin_s = time.monotonic()
    drive: Callable[[Attack], None] = lambda attack: attack.go_on(begin_s + DURATION_S)  # noqa: E731  for each thread
    with ThreadPoolExecutor(THREADS * len(attacks)) as pool:
        list(pool.map(drive, [each for each in attacks for _ in range(THREADS)]))
    return time.monotonic() - begin_s
