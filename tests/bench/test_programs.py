"""What the proxies are started with: TLS for all of them, or for none."""

import sys
from pathlib import Path

import pytest

from bench.errors import BenchError
from bench.programs import Launch, haproxy, pure, relay, sluice
from config.loader import load_settings
from tests.harness.certificates import Authority, common_name


@pytest.fixture
def plain(tmp_path: Path) -> Launch:
    return Launch(tmp_path, 19100, 19092, entities=3, identity=None, wrap=())


@pytest.fixture
def secured(tmp_path: Path) -> Launch:
    identity = Authority(tmp_path).issue("server", common_name("localhost"))
    return Launch(tmp_path, 19100, 19092, entities=3, identity=identity, wrap=())


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.programs.find_program", lambda name: name)
    monkeypatch.setattr("bench.programs.require_compiled", lambda name: f"compiled/{name}")


def test_haproxy_ends_tls_where_there_is_a_certificate(plain: Launch, secured: Launch) -> None:
    *_, file = haproxy(plain)
    assert "bind 127.0.0.1:19100\n" in Path(file).read_text()
    haproxy(secured)
    assert f"bind 127.0.0.1:19100 ssl crt {secured.folder}/server.both.pem\n" in Path(file).read_text()


def test_relay_with_tls_gets_certificate_and_key(plain: Launch, secured: Launch) -> None:
    assert relay(plain)[-2:] == ["19100", "19092"]
    assert relay(secured)[-2:] == [f"{secured.folder}/server.pem", f"{secured.folder}/server.key"]


def test_sluice_is_configured_with_tls_and_quotas_of_launch(plain: Launch, secured: Launch) -> None:
    *_, file = sluice(plain)
    (listener,) = load_settings(Path(file)).listeners
    assert listener.tls is None
    sluice(secured)
    (listener,) = load_settings(Path(file)).listeners
    assert listener.tls is not None
    assert listener.tls.certificate == secured.folder / "server.pem"
    assert (plain.folder / "quotas.yaml").read_text().count("client-id") == plain.entities


def test_the_compiled_wheel_and_the_sources_run_alike(plain: Launch) -> None:
    compiled, from_sources = sluice(plain), pure(plain)
    assert compiled[:3] == ["compiled/python", "-m", "kafka_sluice"]
    assert from_sources[:3] == [sys.executable, "-m", "proxy"]
    assert compiled[3:] == from_sources[3:]


def test_missing_compiled_wheel_names_the_make_target(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, plain: Launch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr("bench.programs.COMPILED", tmp_path)
    with pytest.raises(BenchError, match="make bench"):
        sluice(plain)
