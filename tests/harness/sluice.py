"""The proxy itself: the command that an operator types, in a folder of its own.

with SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=greedy_yaml) as sluice:
    ... sluice.bootstrap ... sluice.write_quotas(other_yaml) ... sluice.metrics() ...
"""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import yaml
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.harness.polling import wait_until
from tests.harness.ports import LOOPBACK, free_port, free_ports
from tests.harness.process import Program
from tests.harness.wire import Address

NO_QUOTAS: Final = "quotas: []\n"
READY_TIMEOUT_S: Final = 90.0
HTTP_TIMEOUT_S: Final = 5.0
_SLUICE: Final = str(Path(sys.executable).parent / "sluice")


class _Written(yaml.SafeDumper):
    """Writes out what is used twice: the configuration takes no aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


class Metrics:
    """One scrape."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def samples(self, name: str, **labels: str) -> list[Sample]:
        """All samples of that full name (with `_total` on counters) that carry these labels."""
        return [sample for sample in self._samples if sample.name == name and labels.items() <= sample.labels.items()]

    def value(self, name: str, **labels: str) -> float:
        """The sum over those samples; 0 when there is none."""
        return sum(sample.value for sample in self.samples(name, **labels))


@dataclass(frozen=True, slots=True)
class ListenerAddresses:
    """Where one listener of the proxy is."""

    address: Address
    brokers: Mapping[int, Address]
    """By node id; empty where host names stand for brokers."""

    @property
    def bootstrap(self) -> str:
        """What a client is given as `bootstrap.servers`."""
        return str(self.address)


class SluiceProcess:
    """`sluice run` in front of the brokers at `bootstrap`, as a context manager.

    `node_ids` get a port each; `settings` are laid over the configuration file, section by section. `advertise` is the
    host that clients are told. `listeners` are more of them beside the plaintext one: the keys of a listener in
    sluice.yaml by its name, of which bind, advertise and brokers are given where they are left out. `plain` are more
    keys of the plaintext one.
    """

    def __init__(
        self,
        bootstrap: str,
        node_ids: Sequence[int],
        *,
        quotas: str = NO_QUOTAS,
        settings: Mapping[str, Any] | None = None,
        advertise: str = LOOPBACK,
        listeners: Mapping[str, Mapping[str, Any]] | None = None,
        plain: Mapping[str, Any] | None = None,
    ) -> None:
        self.admin = Address(LOOPBACK, free_port())
        self.address, self.broker_addresses = _choose_addresses(node_ids)
        self.listeners = {name: _listener_addresses(given, node_ids) for name, given in (listeners or {}).items()}
        self._listeners = dict(listeners or {})
        self._plain = dict(plain or {})
        self._bootstrap = bootstrap
        self._advertise = advertise
        self._quotas = quotas
        self.settings = dict(settings or {})
        """Sections of the configuration, written when it starts."""
        self.environment: Mapping[str, str] = {}
        """Variables beside those of this process."""
        self.log: Path | None = None
        """Where its output goes from the next start on: by default a file in its folder."""
        self._folder: Path | None = None
        self._program: Program | None = None

    @property
    def bootstrap(self) -> str:
        """What a client is given as `bootstrap.servers`."""
        return str(self.address)

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def is_running(self) -> bool:
        return self._program is not None and self._program.is_running

    @property
    def config_path(self) -> Path:
        return self._place() / "sluice.yaml"

    @property
    def quotas_path(self) -> Path:
        return self._place() / "quotas.yaml"

    @property
    def metrics_url(self) -> str:
        return f"http://{self.admin}/metrics"

    def start(self) -> None:
        """Until /readyz answers 200; ProcessError with the end of its log when it does not."""
        try:
            self.launch()
            self.wait_ready()
        except BaseException:
            self.close()
            raise

    def launch(self) -> None:
        """Start the process, which may have to wait for something before it serves; again, with the same files."""
        if self._folder is None or not self._folder.exists():
            self._folder = Path(tempfile.mkdtemp(prefix="sluice-"))
        self.write_quotas(self._quotas)
        self.config_path.write_text(yaml.dump(self._configuration(), Dumper=_Written, sort_keys=False), "utf-8")
        command = [_SLUICE, "run", "-c", str(self.config_path)]
        log = self.log or self._folder / "sluice.log"
        self._program = Program("sluice", command, log, environment=self.environment)

    def wait_ready(self) -> None:
        self._running().wait_until(self.is_ready, "answer 200 of /readyz", READY_TIMEOUT_S)

    def stop(self, timeout_s: float = 40.0) -> int:
        """SIGTERM; the exit status. Files and log stay until `close`."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def wait(self, timeout_s: float = 40.0) -> int:
        """The exit status of one that is stopping."""
        return self._running().wait(timeout_s)

    def signal(self, number: signal.Signals) -> None:
        self._running().signal(number)

    def close(self) -> None:
        """End it, whatever it is doing, and remove its folder."""
        if self._program is not None:
            self._program.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def write_quotas(self, text: str) -> None:
        """Replace the quota file as an editor or a deployment does: a new file, renamed into place."""
        fresh = self.quotas_path.with_suffix(".new")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(self.quotas_path)

    def is_ready(self) -> bool:
        return self.get("/readyz")[0] == 200

    def metrics(self) -> Metrics:
        return Metrics(self.get("/metrics")[1])

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of an admin page; status 0 while nothing listens."""
        try:
            with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=HTTP_TIMEOUT_S) as answer:
                return int(answer.status), answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def logs(self) -> list[dict[str, Any]]:
        """Every log line so far; a line that is not a JSON object is an error of the proxy's."""
        return [json.loads(line) for line in self._running().output().splitlines()]

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The lines whose event begins so, once there is one: a process answers before its log is written."""
        return wait_until(
            lambda: [line for line in self.logs() if line["event"].startswith(event)], f"a line {event!r}"
        )

    def output(self) -> str:
        """The log as it is: everything that the process has written."""
        return self._running().output()

    def command(self, name: str, config: str, *options: str) -> str:
        """What another command of the proxy's says to a file in its folder, on both streams."""
        command = [_SLUICE, name, "-c", str(self._place() / config), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=READY_TIMEOUT_S, check=False)
        return done.stdout + done.stderr

    def log_tail(self) -> str:
        return self._running().tail()

    def _configuration(self) -> dict[str, Any]:
        plain = self._listener("PLAIN", ListenerAddresses(self.address, self.broker_addresses), self._plain)
        others = [self._listener(name, self.listeners[name], given) for name, given in self._listeners.items()]
        sections: dict[str, Any] = {
            "cluster": {"name": "harness", "bootstrap": self._bootstrap.split(",")},
            "listeners": [plain, *others],
            "quotas": {"store": {"type": "file", "path": self.quotas_path.name}},
            "admin": {"bind": str(self.admin)},
            "drain": {"delay": "0s", "timeout": "5s"},
            "log": {"format": "json"},
        }
        for name, section in self.settings.items():
            sections[name] = {**sections[name], **section} if isinstance(sections.get(name), dict) else section
        return sections

    def _listener(self, name: str, at: ListenerAddresses, given: Mapping[str, Any]) -> dict[str, Any]:
        brokers = {str(node_id): str(address.port) for node_id, address in at.brokers.items()}
        ports = {"brokers": brokers} if brokers else {}
        return {"name": name, "bind": str(at.address), "advertise": self._advertise, **ports, **given}

    def _place(self) -> Path:
        if self._folder is None:
            raise RuntimeError("sluice has not been started")
        return self._folder

    def _running(self) -> Program:
        if self._program is None:
            raise RuntimeError("sluice has not been started")
        return self._program

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _choose_addresses(node_ids: Sequence[int]) -> tuple[Address, dict[int, Address]]:
    """For bootstrap, and for each node."""
    bind, *ports = free_ports(len(node_ids) + 1)
    brokers = {node_id: Address(LOOPBACK, port) for node_id, port in zip(sorted(node_ids), ports, strict=True)}
    return Address(LOOPBACK, bind), brokers


def _listener_addresses(given: Mapping[str, Any], node_ids: Sequence[int]) -> ListenerAddresses:
    return ListenerAddresses(*_choose_addresses([] if "broker_host" in given else node_ids))
