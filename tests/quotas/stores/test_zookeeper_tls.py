"""TLS to a real ZooKeeper: what is believed, and what an operator is told to mend."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from config.stores import ZooKeeperStore as Settings
from config.stores import ZooKeeperTls
from quotas.stores.base import UnreadableError
from quotas.stores.zookeeper.store import ZooKeeperStore
from tests.harness.certificates import STORE_PASSWORD, Authority, common_name
from tests.harness.ports import LOOPBACK, free_port
from tests.harness.zookeeper import ZooKeeper
from tests.proxy.manage.run import quotas
from tests.quotas.stores.zookeeper import QUIET

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(120)]


_ATTEMPTS = 15


@dataclass(frozen=True, slots=True)
class Secured:
    """A server whose certificate is for `localhost`, and the authorities."""

    port: int
    plain: str
    authority: Authority
    stranger: Authority

    def own(self, authority: Authority) -> Mapping[str, Path]:
        """What the proxy shows of itself."""
        identity = authority.issue("sluice", common_name("sluice"))
        return {"certificate": identity.certificate, "key": identity.key}

    def assert_answers(self, **asked: tuple[str, Mapping[str, Path | bool], str]) -> None:
        """Ask all at the same time: where, by which TLS, and what the error says; nothing where quotas are loaded."""
        with ThreadPoolExecutor(len(asked)) as pool:
            given = {name: pool.submit(self._answer, *each) for name, each in asked.items()}
            answers = {name: future.result() for name, future in given.items()}
        for name, (_, _, wanted) in asked.items():
            assert wanted in answers[name] if wanted else not answers[name], name

    def _answer(self, connect: str, tls: Mapping[str, Path | bool], wanted: str) -> str:
        """What comes of a load, or of another one: a machine that is busy may need more than one for its answer."""
        section = {"tls": ZooKeeperTls.model_validate(tls)} if tls else {}
        store = ZooKeeperStore(Settings(connect=connect, **section))
        said = ""
        try:
            for _ in range(_ATTEMPTS):
                try:
                    assert store.load(0).policy.limits == {}
                except UnreadableError as error:
                    said = str(error)
                else:
                    return ""
                if wanted and wanted in said:
                    break
        finally:
            store.close()
        return said


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """It wants a certificate of its clients."""
    with _secured(tmp_path_factory.mktemp("strict"), "need") as secured:
        yield secured


@pytest.fixture(scope="module")
def open_to_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with _secured(tmp_path_factory.mktemp("open"), "none") as secured:
        yield secured


def test_server_that_demands_a_client_certificate_accepts_ours_alone(
    strict: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the authorities of the machine are not believed beside those that are configured."""
    monkeypatch.setenv("SSL_CERT_FILE", str(strict.authority.certificate))  # where OpenSSL looks for them
    there, elsewhere = f"localhost:{strict.port}", f"{LOOPBACK}:{strict.port}"
    ca, own = {"ca": strict.authority.certificate}, strict.own(strict.authority)
    not_accepted = f"{there} does not accept our certificate"
    chain = "self-signed certificate in certificate chain"
    not_trusted = f"{there} shows a certificate that is not trusted ({chain}): see quotas.store.tls.ca"
    not_pem = "is not in PEM form, or the key is not that of the certificate"
    strict.assert_answers(
        good=(there, {**ca, **own}, ""),
        any_name=(elsewhere, {**ca, **own, "verify_hostname": False}, ""),
        none=(there, ca, not_accepted),
        of_a_stranger=(there, {**ca, **strict.own(strict.stranger)}, not_accepted),
        wrong_authority=(there, {"ca": strict.stranger.certificate, **own}, not_trusted),
        wrong_name=(elsewhere, {**ca, **own}, f"{elsewhere} shows a certificate for another name"),
        plaintext=(there, {}, f"{there} accepted the connection but did not answer: is the port for TLS"),
        tls_to_plaintext=(strict.plain, ca, f"{strict.plain} does not speak TLS there: see the port in"),
        no_file=(
            there,
            {"ca": Path("/nowhere/ca.pem")},
            "/nowhere/ca.pem: quotas.store.tls.ca: no such file or directory",
        ),
        no_pem=(there, {"ca": strict.authority.store}, f"quotas.store.tls.ca: {not_pem}"),
        not_its_key=(
            there,
            {**ca, **own, "key": strict.own(strict.stranger)["key"]},
            f"quotas.store.tls.certificate: {not_pem}",
        ),
    )


def test_command_line_presents_certificate_of_zk_tls_config(strict: Secured, tmp_path: Path) -> None:
    """By the file that kafka-configs takes for --zk-tls-config-file, but for its stores, which are PEM."""
    own = strict.own(strict.authority)
    (tmp_path / "own.pem").write_bytes(own["certificate"].read_bytes() + own["key"].read_bytes())
    file = tmp_path / "zk.properties"
    file.write_text(
        "zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty\n"
        "zookeeper.ssl.client.enable=true\n"
        f"zookeeper.ssl.truststore.location={strict.authority.certificate}\n"
        f"zookeeper.ssl.keystore.location={tmp_path}/own.pem\n"
    )
    there = ("--zookeeper", f"localhost:{strict.port}", "--zookeeper-config", file)
    done = quotas("alter", *there, "user=alice", "producer_byte_rate=5")
    assert (done.exit_code, done.output) == (0, "Completed updating config for user alice.\n")
    done = quotas("describe", *there)
    assert done.output == "Quota configs for user-principal 'alice' are producer_byte_rate=5.0\n"
    here = tmp_path / "quotas.yaml"
    here.write_text("quotas: []\n")
    source = ("--from", "zookeeper", "--from-address", there[1], "--from-command-config", file)
    done = quotas("import", *source, "--yes", "--file", here)
    assert (done.exit_code, "user: alice" in here.read_text()) == (0, True)
    assert quotas("delete", *there, "user=alice").exit_code == 0


@pytest.mark.matrix
def test_zookeeper_certificate_is_verified_by_name_and_authority(open_to_all: Secured) -> None:
    there, elsewhere = f"localhost:{open_to_all.port}", f"{LOOPBACK}:{open_to_all.port}"
    ca = {"ca": open_to_all.authority.certificate}
    open_to_all.assert_answers(
        good=(there, ca, ""),
        with_one=(there, {**ca, **open_to_all.own(open_to_all.authority)}, ""),
        wrong_authority=(there, {"ca": open_to_all.stranger.certificate}, "see quotas.store.tls.ca"),
        wrong_name=(elsewhere, ca, "write the name that it is for into quotas.store.connect"),
    )


@pytest.mark.matrix
def test_files_are_read_anew_with_each_connection(open_to_all: Secured, tmp_path: Path) -> None:
    """A store whose authority is replaced by the right one needs no restart."""
    ca = tmp_path / "ca.pem"
    ca.write_bytes(open_to_all.stranger.certificate.read_bytes())
    store = ZooKeeperStore(Settings(connect=f"localhost:{open_to_all.port}", tls=ZooKeeperTls(ca=ca)))
    try:
        with pytest.raises(UnreadableError):
            store.load(0)
        ca.write_bytes(open_to_all.authority.certificate.read_bytes())
        assert store.load(0).policy.limits == {}
    finally:
        store.close()


@contextmanager
def _secured(folder: Path, client_auth: str) -> Iterator[Secured]:
    authority, stranger = Authority(folder), Authority(folder / "stranger", "Another authority")
    shown = authority.issue("zookeeper", common_name("zookeeper"), ["localhost"])
    port = free_port()
    stores = {"keyStore": shown.store, "trustStore": authority.store}
    properties = {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "secureClientPort": str(port),
        "secureClientPortAddress": LOOPBACK,
        "ssl.clientAuth": client_auth,
        **{f"ssl.{name}.location": str(path) for name, path in stores.items()},
        **{f"ssl.{name}.password": STORE_PASSWORD for name in stores},
    }
    with ZooKeeper(properties=properties) as server:
        client = KazooClient(hosts=server.connect, logger=QUIET)
        client.start()
        client.ensure_path("/config/changes")
        client.stop()
        client.close()
        yield Secured(port, server.connect, authority, stranger)
