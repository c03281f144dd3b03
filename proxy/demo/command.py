"""Runs the demo, and prints in plain words what happens: a proxy as a process of its own, and producers as threads."""

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import indent
from time import sleep
from typing import Any, Final

import click
from prometheus_client.parser import text_string_to_metric_families

from proxy.checks.health import ask, get
from proxy.demo.stand_in import HOST, NODE_ID, stand_in
from proxy.runtime.clock import monotonic_s
from quotas.texts import duration, rate

MIB: Final = 2**20
QUOTAS: Final = "quotas:\n  - {entity: {client-id: greedy}, producer_byte_rate: 1MiB}\n"
EXIT_FAILED: Final = 1
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
def proxy_before(broker_port: int) -> Iterator[Proxy]:
    """Run ``sluice run`` in front of the broker; its files are removed at the end. Raises DemoError."""
    with TemporaryDirectory(prefix="sluice-demo-") as name, ExitStack() as stack:
        folder = Path(name)
        with ExitStack() as free:
            sockets = [free.enter_context(socket.create_server((HOST, 0))) for _ in range(3)]
            bootstrap, leader, admin = (each.getsockname()[1] for each in sockets)
        ports = {"broker": broker_port, "bootstrap": bootstrap, "leader": leader, "admin": admin}
        (folder / "sluice.yaml").write_text(_CONFIGURATION.format(host=HOST, node_id=NODE_ID, **ports), "utf-8")
        (folder / "quotas.yaml").write_text(QUOTAS, "utf-8")
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


def run(seconds: int, *, keep: bool) -> int:
    """Run the demo for that time, with ``keep`` until it is interrupted; return 0 if a throttle was seen, else 1."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # its log has a line for every throttle
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(EXIT_FAILED))
    try:
        with ExitStack() as stack:
            port = stack.enter_context(stand_in())
            click.echo(f"A stand-in for a broker is at {HOST}:{port}: it drops what producers send. It is not Kafka.")
            proxy = stack.enter_context(proxy_before(port))
            click.echo(
                f"Sluice is at {proxy.bootstrap}, in front of it, with this quota file:\n{indent(QUOTAS, '    ')}"
            )
            click.echo("Two producers (kafka-python) send through Sluice: greedy as fast as it can, modest 256 KiB/s.")
            producers = [Producer(proxy.bootstrap, "greedy", None), Producer(proxy.bootstrap, "modest", MIB / 4)]
            for each in producers:
                stack.callback(each.stop)
            seen = _watch(proxy, producers, seconds)
            if keep:
                click.echo(f"All goes on until Ctrl-C. Change {proxy.folder}/quotas.yaml, or ask who is throttled now:")
                click.echo(f"  sluice throttled --admin {proxy.admin_url}    (also sluice clients, sluice top)")
                click.echo(f"  {proxy.admin_url}/ shows it in a browser")
                signal.pause()
    except DemoError as error:
        click.echo(error, err=True)
        return EXIT_FAILED
    except KeyboardInterrupt:
        seen = True
    click.echo("Everything is stopped." if seen else "No throttle was seen.")
    return 0 if seen else EXIT_FAILED


def _watch(proxy: Proxy, producers: Sequence[Producer], seconds: int) -> bool:
    """Print what happens each second; return whether a throttle was seen."""
    at_s, before = monotonic_s(), [(0, 0.0) for _ in producers]
    seen = False
    for second in range(1, seconds + 1):
        sleep(1.0)
        was_at_s, at_s = at_s, monotonic_s()
        now = [(each.sent_bytes, proxy.throttled_s(each.client_id)) for each in producers]
        if not seen and now[0][1] > 0:
            seen = True
            click.echo(
                "The first throttle: greedy is over its quota. Sluice's answer has Kafka's throttle_time_ms, and"
            )
            click.echo("Sluice reads nothing from greedy for that time. modest has no quota, and is not delayed.")
        said = f"{second:3} s"
        for producer, (sent, throttled_s), (sent_before, throttled_before_s) in zip(
            producers, now, before, strict=True
        ):
            if producer.error is not None:
                raise DemoError(f"the producer {producer.client_id} has failed: {producer.error!r}")
            sends, throttled = rate((sent - sent_before) / (at_s - was_at_s)), throttled_s - throttled_before_s
            said += f"   {producer.client_id} {sends}, throttled {duration(throttled)}"
        click.echo(said)
        before = now
    return seen
