"""The two ends of the demo that are not the broker: the proxy, as a process of its own, and producers, as threads."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from proxy.checks.health import ask, get
from proxy.demo.stand_in import HOST, NODE_ID
from proxy.runtime.clock import monotonic_s

_START_S: Final = 60.0
_STOP_S: Final = 15.0
_ANSWER_S: Final = 30.0
_RECORD_BYTES: Final = 8 * 1024
_RECORDS_AT_ONCE: Final = 8
_THROTTLED: Final = "sluice_quota_throttle_seconds_total"
_CONFIGURATION: Final = """\
cluster: {{name: stand-in, bootstrap: ["{host}:{broker}"]}}
listeners:
  - {{name: PLAIN, bind: "{host}:{bootstrap}", advertise: "{host}", brokers: {{"{node_id}": "{leader}"}}}}
quotas:
  store: {{path: quotas.yaml}}
  window: {{samples: 11, size: 100ms}}  # a tenth of Kafka's, so that a client's first burst is short
admin: {{bind: "{host}:{admin}"}}
drain: {{delay: 0s, timeout: 2s}}
"""


class DemoError(Exception):
    """The proxy or a producer has failed; the text says how."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """A running proxy."""

    folder: Path
    bootstrap: str
    admin_url: str

    def throttled_s(self, client_id: str) -> float:
        """Return for how long the client has been throttled so far. Raises DemoError."""
        try:
            text = get(f"{self.admin_url}/metrics", within_s=_ANSWER_S).body.decode()
        except OSError as error:
            raise DemoError(f"Sluice does not answer any more: {error}") from None
        samples = (each for family in text_string_to_metric_families(text) for each in family.samples)
        return sum(each.value for each in samples if each.name == _THROTTLED and each.labels["client_id"] == client_id)


@contextmanager
def proxy_before(broker_port: int, quotas: str) -> Iterator[Proxy]:
    """Run ``sluice run`` in front of the broker; its files are removed at the end. Raises DemoError."""
    with TemporaryDirectory(prefix="sluice-demo-") as name, ExitStack() as stack:
        folder = Path(name)
        with ExitStack() as free:
            sockets = [free.enter_context(socket.create_server((HOST, 0))) for _ in range(3)]
            bootstrap, leader, admin = (each.getsockname()[1] for each in sockets)
        ports = {"broker": broker_port, "bootstrap": bootstrap, "leader": leader, "admin": admin}
        (folder / "sluice.yaml").write_text(_CONFIGURATION.format(host=HOST, node_id=NODE_ID, **ports), "utf-8")
        (folder / "quotas.yaml").write_text(quotas, "utf-8")
        log = stack.enter_context((folder / "sluice.log").open("wb"))
        command = (sys.executable, "-P", "-c", "from proxy.__main__ import main; main()", "run", "-c")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
        process = subprocess.Popen((*command, folder / "sluice.yaml"), env=environment, stdout=log, stderr=log)  # noqa: S603  ourselves
        stack.callback(_end, process)
        proxy = Proxy(folder, f"{HOST}:{bootstrap}", f"http://{HOST}:{admin}")
        end_s = monotonic_s() + _START_S
        while not ask(proxy.admin_url, "/readyz")[0]:
            if process.poll() is not None or monotonic_s() > end_s:
                raise DemoError(f"Sluice has not started:\n{(folder / 'sluice.log').read_text('utf-8')}")
            sleep(0.05)
        yield proxy


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_S)
    process.kill()


class Producer:
    """A kafka-python producer that sends until ``stop``; ``pace_bytes_per_s`` None: as fast as it can."""

    def __init__(self, bootstrap: str, client_id: str, pace_bytes_per_s: float | None) -> None:
        self.client_id = client_id
        self.sent_bytes = 0
        """Acknowledged so far."""
        self.error: Exception | None = None
        """Why it ended by itself."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(bootstrap, pace_bytes_per_s), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop it, and wait until it has closed its connections."""
        self._stopped.set()
        self._thread.join(_STOP_S)

    def _run(self, bootstrap: str, pace_bytes_per_s: float | None) -> None:
        from kafka import KafkaProducer

        try:
            producer = KafkaProducer(bootstrap_servers=bootstrap, client_id=self.client_id)
            self._send(producer, pace_bytes_per_s)
            producer.close(timeout=1)
        except Exception as error:  # noqa: BLE001  the command tells it, whatever it is
            self.error = error

    def _send(self, producer: Any, pace_bytes_per_s: float | None) -> None:
        started_s = monotonic_s()
        while not self._stopped.is_set():
            sent = [producer.send("demo", bytes(_RECORD_BYTES)) for _ in range(_RECORDS_AT_ONCE)]
            for each in sent:
                each.get(_ANSWER_S)
            self.sent_bytes += _RECORDS_AT_ONCE * _RECORD_BYTES
            if pace_bytes_per_s is not None:
                self._stopped.wait(max(0.0, started_s + self.sent_bytes / pace_bytes_per_s - monotonic_s()))
