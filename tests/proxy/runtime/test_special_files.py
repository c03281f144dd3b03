"""Named pipes, sockets and devices in place of a file: each is refused, and none is waited for."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from config.cluster import BrokerTls
from config.problems import ConfigError, InvalidValue
from config.stores import ZooKeeperTls
from proxy.brokers.login import LoginError, read_password
from proxy.brokers.tls import broker_context
from proxy.checks.certificates import read_certificates, read_key
from proxy.edge.tls import client_context
from proxy.identity.kerberos.keytab import principals
from quotas.stores.base import UnreadableError
from quotas.stores.file_store import FileStore
from quotas.stores.zookeeper.sockets import Sockets
from tests.config.test_document import special_files
from tests.harness.ports import free_ports
from tests.proxy.pki import Pki

CONFIG = """\
cluster: {{name: demo, bootstrap: ["127.0.0.1:1"]}}
listeners:
  - {{name: PLAIN, bind: "127.0.0.1:{}", advertise: 127.0.0.1, brokers: {{"0": "{}"}}}}
quotas: {{store: {{type: file, path: quotas.yaml}}}}
admin: {{bind: "127.0.0.1:{}"}}
drain: {{delay: 0s}}
"""


def clients(pki: Pki, **files: Path) -> object:
    settings = pki.settings(client_authentication="required")
    return client_context(settings.model_copy(update=files))


def brokers(pki: Pki, **files: Path) -> object:
    settings = BrokerTls.model_validate({"ca": pki.ca_file, "certificate": pki.certificate, "key": pki.key})
    return broker_context(settings.model_copy(update=files))


def zookeeper(pki: Pki, **files: Path) -> object:
    settings = ZooKeeperTls.model_validate({"ca": pki.ca_file, "certificate": pki.certificate, "key": pki.key})
    return Sockets(settings.model_copy(update=files))


READERS: dict[str, Callable[[Pki, Path], object]] = {
    "quotas": lambda _, path: FileStore(path).load(0),
    "password": lambda _, path: read_password(path),
    "keytab": lambda _, path: principals(path),
    "checked certificate": lambda _, path: read_certificates(path),
    "checked key": lambda _, path: read_key(path),
    "certificate": lambda pki, path: clients(pki, certificate=path),
    "key": lambda pki, path: clients(pki, key=path),
    "client_ca": lambda pki, path: clients(pki, client_ca=path),
    "ca of brokers": lambda pki, path: brokers(pki, ca=path),
    "certificate for brokers": lambda pki, path: brokers(pki, certificate=path),
    "key for brokers": lambda pki, path: brokers(pki, key=path),
    "ca of ZooKeeper": lambda pki, path: zookeeper(pki, ca=path),
    "certificate for ZooKeeper": lambda pki, path: zookeeper(pki, certificate=path),
    "key for ZooKeeper": lambda pki, path: zookeeper(pki, key=path),
}


@pytest.mark.parametrize("reader", READERS)
def test_pipe_socket_or_device_is_refused_by_every_reader(tmp_path: Path, reader: str) -> None:
    pki = Pki(tmp_path)
    for path, said in special_files(tmp_path):
        with pytest.raises((ConfigError, InvalidValue, LoginError, OSError, UnreadableError), match=said):
            READERS[reader](pki, path)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("place", ["at the start", "while it runs"])
def test_a_file_that_is_never_read_to_its_end_does_not_keep_the_process_from_ending(tmp_path: Path, place: str) -> None:
    """As on a network file system whose server is gone: the thread that reads is lost."""
    (tmp_path / "sluice.yaml").write_text(CONFIG.format(*free_ports(3)))
    (tmp_path / "quotas.yaml").write_text("quotas: []\n")
    program = f"""
import sys, threading
from proxy.cli import cli
from quotas.stores import file_store
read, loads = file_store.read_text, []
def read_text(path):
    loads.append(path)
    if len(loads) > {int(place == "while it runs")}:
        print("waits", flush=True)
        threading.Event().wait()
    return read(path)
file_store.read_text = read_text
sys.argv = ["sluice", "run", "-c", "sluice.yaml"]
cli()
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as run:
        try:
            assert run.stdout is not None
            assert run.stderr is not None
            if place == "while it runs":
                assert any(b'"listening"' in line for line in run.stderr)
                run.send_signal(signal.SIGHUP)
            assert run.stdout.readline() == b"waits\n"
            run.send_signal(signal.SIGTERM)
            assert run.wait(60) == 0
        finally:
            run.kill()
