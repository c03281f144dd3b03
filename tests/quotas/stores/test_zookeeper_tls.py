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
from tests.quotas.stores.zookeeper import QUIET

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


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

    def answer(self, connect: str, **tls: Path | bool) -> str:
        """What comes of a load: the error, or nothing."""
        section = {"tls": ZooKeeperTls.model_validate(tls)} if tls else {}
        store = ZooKeeperStore(Settings(connect=connect, **section))
        try:
            assert store.load(0).policy.limits == {}
        except UnreadableError as error:
            return str(error)
        finally:
            store.close()
        return ""

    def answers(self, **asked: tuple[str, Mapping[str, Path | bool]]) -> dict[str, str]:
        """All at the same time: an error takes seconds."""
        with ThreadPoolExecutor(len(asked)) as pool:
            given = {name: pool.submit(self.answer, connect, **tls) for name, (connect, tls) in asked.items()}
            return {name: future.result() for name, future in given.items()}


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """It wants a certificate of its clients."""
    with _secured(tmp_path_factory.mktemp("strict"), "need") as secured:
        yield secured


@pytest.fixture(scope="module")
def open_to_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with _secured(tmp_path_factory.mktemp("open"), "none") as secured:
        yield secured


def test_with_a_client_certificate(strict: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the authorities of the machine are not believed beside those that are configured."""
    monkeypatch.setenv("SSL_CERT_FILE", str(strict.authority.certificate))  # where OpenSSL looks for them
    there, elsewhere = f"localhost:{strict.port}", f"{LOOPBACK}:{strict.port}"
    ca, own = {"ca": strict.authority.certificate}, strict.own(strict.authority)
    answers = strict.answers(
        good=(there, {**ca, **own}),
        none=(there, ca),
        of_a_stranger=(there, {**ca, **strict.own(strict.stranger)}),
        wrong_authority=(there, {"ca": strict.stranger.certificate, **own}),
        wrong_name=(elsewhere, {**ca, **own}),
        any_name=(elsewhere, {**ca, **own, "verify_hostname": False}),
        plaintext=(there, {}),
        tls_to_plaintext=(strict.plain, ca),
        no_file=(there, {"ca": Path("/nowhere/ca.pem")}),
        no_pem=(there, {"ca": strict.authority.store}),
        not_its_key=(there, {**ca, **own, "key": strict.own(strict.stranger)["key"]}),
    )
    assert answers["good"] == answers["any_name"] == ""
    does_not_accept = f"{there} does not accept what we show of ourselves"
    for name in ("none", "of_a_stranger"):
        assert does_not_accept in answers[name]
        assert answers[name].endswith("see quotas.store.tls.certificate and .key")
    assert f"{there} shows a certificate that is not trusted" in answers["wrong_authority"]
    assert answers["wrong_authority"].endswith("see quotas.store.tls.ca")
    assert f"{elsewhere} shows a certificate for another name" in answers["wrong_name"]
    assert "quotas.store.connect, or see quotas.store.tls.verify_hostname" in answers["wrong_name"]
    assert f"{there} took the connection and did not answer: is it a port for TLS" in answers["plaintext"]
    assert f"{strict.plain} does not speak TLS there: see the port in" in answers["tls_to_plaintext"]
    assert answers["no_file"] == "/nowhere/ca.pem: quotas.store.tls.ca: no such file or directory"
    assert "quotas.store.tls.ca: is not in PEM form" in answers["no_pem"]
    assert "quotas.store.tls.certificate: is not in PEM form, or the key is not that" in answers["not_its_key"]


@pytest.mark.matrix
def test_without_a_client_certificate(open_to_all: Secured) -> None:
    there, elsewhere = f"localhost:{open_to_all.port}", f"{LOOPBACK}:{open_to_all.port}"
    ca = {"ca": open_to_all.authority.certificate}
    answers = open_to_all.answers(
        good=(there, ca),
        with_one=(there, {**ca, **open_to_all.own(open_to_all.authority)}),
        wrong_authority=(there, {"ca": open_to_all.stranger.certificate}),
        wrong_name=(elsewhere, ca),
    )
    assert answers["good"] == answers["with_one"] == ""
    assert "see quotas.store.tls.ca" in answers["wrong_authority"]
    assert "see quotas.store.tls.verify_hostname" in answers["wrong_name"]


@pytest.mark.matrix
def test_files_are_read_anew_with_each_connection(open_to_all: Secured, tmp_path: Path) -> None:
    """A store whose authority is replaced by the right one needs no restart."""
    ca = tmp_path / "ca.pem"
    ca.write_bytes(open_to_all.stranger.certificate.read_bytes())
    store = ZooKeeperStore(Settings(connect=f"localhost:{open_to_all.port}", tls=ZooKeeperTls(ca=ca)))
    try:
        with pytest.raises(UnreadableError, match="is not trusted"):
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
