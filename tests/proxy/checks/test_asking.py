"""`sluice check` of quotas that are in several stores, or elsewhere."""

from pathlib import Path

import pytest

from config.problems import Problem
from config.settings import Settings
from proxy.checks import report
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.stores.base import Loaded, UnreadableError
from tests.proxy.checks.secure import AUTHORITY, NOW_S, secret

RATE = QuotaKind.PRODUCER_BYTE_RATE
CONFIG = """\
cluster: {name: demo, bootstrap: ["127.0.0.1:1"], sasl: {mechanism: SCRAM-SHA-256, username: u, password_file: pw}}
listeners:
  - {name: A, bind: "127.0.0.1:1000", advertise: a.example, authentication: sasl, brokers: {"1": "1001"}}
quotas: {QUOTAS}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pw").write_text("secret")
    (tmp_path / "pw").chmod(0o600)
    (tmp_path / "top.yaml").write_text("quotas:\n  - {entity: {user: alice}, producer_byte_rate: 10MB}\n")
    (tmp_path / "base.yaml").write_text(
        "quotas:\n  - {entity: {user: alice}, producer_byte_rate: 20MB, consumer_byte_rate: 30MB}\n"
    )
    return tmp_path


def check(folder: Path, quotas: str, load: report.Load | None = None) -> report.Report:
    config = folder / "sluice.yaml"
    config.write_text(CONFIG.replace("{QUOTAS}", quotas))
    return report.check(config, 0.0, None, load)


def load(settings: Settings) -> Loaded:
    limits = {Entity(user="alice"): {RATE: 5e6}, Entity(user="bob"): {RATE: 5e6}}
    return Loaded(Policy(limits), "1", "kafka://b:9092", {entity: entity.describe() for entity in limits})


def test_layers_of_files_are_each_looked_at(folder: Path) -> None:
    found = check(folder, "{stores: [{path: top.yaml}, {path: base.yaml}]}")
    assert found.problems == []
    assert found.lines("it")[0] == "it: ok (1 quota, 1 listener)"
    (folder / "base.yaml").write_text("quotas: 5\n")
    (folder / "top.yaml").unlink()
    found = check(folder, "{stores: [{path: top.yaml}, {path: base.yaml}]}")
    assert ["quotas.stores[0].path: " in str(found.problems[0]), "must be a list" in str(found.problems[1])] == [
        True
    ] * 2


def test_quotas_in_cluster_are_checked_only_with_loader(folder: Path) -> None:
    layers = "{stores: [{path: top.yaml}, {type: cluster}]}"
    found = check(folder, layers)
    assert found.lines("it") == ["it: ok (quotas in cluster not checked, 1 listener)"]
    found = check(folder, "{store: {type: cluster}}", load)
    assert "it: ok (2 quotas, 1 listener)" in found.lines("it")


def test_a_store_that_is_away_is_a_problem(folder: Path) -> None:
    def away(settings: Settings) -> Loaded:
        raise UnreadableError([Problem("kafka://b:9092", 0, 0, "", "no answer in time")])

    assert check(folder, "{store: {type: cluster}}", away).lines("it") == ["kafka://b:9092: no answer in time"]


@pytest.mark.parametrize(("mode", "told"), [("enforce", 1), ("shadow", 0)])
def test_quotas_that_brokers_enforce_too_are_told(folder: Path, mode: str, told: int) -> None:
    warnings = check(folder, f"{{mode: {mode}, store: {{type: cluster}}}}", load).warnings
    assert sum("the brokers enforce these quotas as well" in str(each) for each in warnings) == told


def test_a_rate_of_all_addresses_is_one_of_the_proxy_s_at_the_brokers(folder: Path) -> None:
    def rates(settings: Settings) -> Loaded:
        limits = {Entity(ip=Default.DEFAULT): {QuotaKind.CONNECTION_CREATION_RATE: 5.0}}
        return Loaded(Policy(limits), "1", "kafka://b:9092", dict.fromkeys(limits, ""))

    [_, warning] = check(folder, "{store: {type: cluster}}", rates).warnings
    assert "ip=<default>: connection_creation_rate of ip=<default> applies to the proxy's address" in str(warning)
    assert "set 2147483647 at the brokers" in str(warning)


STATIC = "{store: {type: cluster}, when_unavailable: static, static: static.yaml}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "sluice.yaml:4:68: quotas.static: static.yaml: no such file; write it, with `quotas: []`"),
        ("quotas: 5\n", "static.yaml:1:9: quotas: must be a list"),
        ("quotas: [{entity: {user: a}, produce: 5}]\n", "static.yaml:1:30: quotas[0].produce: unknown"),
        ("quotas: [\n", "static.yaml:2:1: "),
    ],
)
def test_broken_static_quota_file_is_reported_with_position(folder: Path, text: str | None, said: str) -> None:
    if text is not None:
        (folder / "static.yaml").write_text(text)
    [problem] = check(folder, STATIC, load).problems
    assert str(problem).replace(f"{folder}/", "").startswith(said)


def test_the_file_that_stands_in_is_not_counted_but_doubted(folder: Path) -> None:
    (folder / "static.yaml").write_text("quotas: [{entity: {user: alice}, producer_byte_rate: 5}]\n")
    found = check(folder, STATIC)
    assert found.lines("it")[-1].startswith("it: ok (quotas in cluster not checked")
    assert any("static.yaml:1" in str(warning) for warning in found.warnings)
    found = check(folder, "{store: {path: base.yaml}, when_unavailable: static, static: static.yaml}")
    assert "it: ok (1 quota, 1 listener)" in found.lines("it")


ZOOKEEPER = """{store: {type: zookeeper, connect: "zk:2181",
  sasl: {username: u, password_file: zk.password},
  tls: {ca: ca.pem, certificate: own.pem}}}"""


def test_the_files_of_a_zookeeper_are_looked_at(folder: Path) -> None:
    found = [str(each).replace(f"{folder}/", "") for each in check(folder, ZOOKEEPER).problems]
    assert found == [
        "sluice.yaml:5:38: quotas.store.sasl.password_file: zk.password: no such file or directory",
        "sluice.yaml:6:13: quotas.store.tls.ca: ca.pem cannot be read: no such file or directory",
        "sluice.yaml:6:34: quotas.store.tls.certificate: own.pem cannot be read: no such file or directory",
    ]


def test_valid_zookeeper_tls_files_give_no_problem(folder: Path) -> None:
    """The key in the file of its certificate, or in another one."""
    AUTHORITY.cert_pem.write_to_path(str(folder / "ca.pem"))
    own = AUTHORITY.issue_cert("sluice.example")
    secret(folder / "zk.password", b"secret")
    secret(folder / "own.pem", own.cert_chain_pems[0].bytes() + own.private_key_pem.bytes())
    secret(folder / "own.key", own.private_key_pem.bytes())
    for text in (ZOOKEEPER, ZOOKEEPER.replace("own.pem}", "own.pem, key: own.key}")):
        (folder / "sluice.yaml").write_text(CONFIG.replace("{QUOTAS}", text))
        found = report.check(folder / "sluice.yaml", NOW_S)
        assert found.problems == []
        assert [each for each in found.warnings if "quotas.store" in str(each)] == []
