"""The rules of the route to the brokers, each with its line and its fix."""

from pathlib import Path

import pytest

from config.loader import load_settings
from tests.config.loading import problems

GOOD = """\
cluster:
  name: demo
  bootstrap: ["b:9093"]
  tls:
    ca: ca.pem
    certificate: proxy.pem
    key: proxy.key
  sasl:
    mechanism: SCRAM-SHA-256
    username: sluice
    password_file: secrets/password
listeners:
  - {name: A, bind: ":9092", advertise: h, brokers: {0: 9100}}
quotas: {store: {path: quotas.yaml}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sluice.yaml"


def test_paths_are_beside_the_configuration_or_absolute(file: Path) -> None:
    file.write_text(GOOD.replace("proxy.key", "/etc/ssl/proxy.key"))
    cluster = load_settings(file).cluster
    assert cluster.tls is not None
    assert cluster.sasl is not None
    assert (cluster.tls.ca, cluster.tls.certificate) == (file.parent / "ca.pem", file.parent / "proxy.pem")
    assert cluster.tls.key == Path("/etc/ssl/proxy.key")
    assert cluster.sasl.password_file == file.parent / "secrets" / "password"


def test_a_section_may_be_left_out(file: Path) -> None:
    tls, sasl = GOOD.index("  tls:"), GOOD.index("  sasl:")
    file.write_text(GOOD[:tls] + GOOD[GOOD.index("listeners:") :])
    cluster = load_settings(file).cluster
    assert (cluster.tls, cluster.sasl) == (None, None)
    file.write_text(GOOD[:tls] + "  tls: {}\n" + GOOD[sasl:])
    cluster = load_settings(file).cluster
    assert cluster.tls is not None
    assert cluster.tls.verify_hostname


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("    key: proxy.key\n", "", [
            ":5:5: cluster.tls.key: is missing, but certificate is set; write both or neither"]),
        ("    certificate: proxy.pem\n", "", [
            ":6:10: cluster.tls.key: is set without certificate; write both or neither"]),
        ("certificate: proxy.pem", "certificate: []", [
            ":6:18: cluster.tls.certificate: must be a path; write it like tls/key.pem"]),
        ("ca: ca.pem", 'ca: ""', [
            ":5:9: cluster.tls.ca: '' is not a path; write a path, from the folder of this file or absolute"]),
        ("ca: ca.pem", "verify_hostname: no", [":5:22: cluster.tls.verify_hostname: 'no' is neither true nor false"]),
        ("SCRAM-SHA-256", "SCRAM-SHA256", [
            ":9:16: cluster.sasl.mechanism: 'SCRAM-SHA256' is not known; did you mean SCRAM-SHA-256?"]),
        ("    username: sluice\n", "", [":9:5: cluster.sasl.username: is missing; add `username`"]),
        ("secrets/password", '"a\\0b"', [
            (":11:20: cluster.sasl.password_file: 'a\\x00b' is not a path; "
            "write a path, from the folder of this file or absolute")]),
        ("password_file:", "password:", [
            ":9:5: cluster.sasl.password_file: is missing; add `password_file`",
            ":11:5: cluster.sasl.password: unknown setting; did you mean password_file?"]),
        ("    mechanism: SCRAM-SHA-256\n    username: sluice\n    password_file: secrets/password\n", "", [
            ":8:3: cluster.sasl: has no settings; it takes mechanism, username, password_file"]),
        ("    ca: ca.pem\n    certificate: proxy.pem\n    key: proxy.key\n", "", [
            ":4:3: cluster.tls: has no settings; it takes ca, verify_hostname, certificate, key"]),
    ],
)  # fmt: skip
def test_invalid_cluster_section_is_refused_with_line_and_fix(
    file: Path, old: str, new: str, expected: list[str]
) -> None:
    assert old in GOOD
    assert problems(file, GOOD.replace(old, new)) == expected


def test_a_listener_may_have_its_own_route_by_the_same_rules(file: Path) -> None:
    route = "advertise: h, cluster: {bootstrap: [], tls: {key: k}, sasl: , refresh: 3s}"
    assert problems(file, GOOD.replace("advertise: h", route)) == [
        ":13:65: listeners[0].cluster.bootstrap: is empty; write at least one broker",
        ":13:80: listeners[0].cluster.tls.key: is set without certificate; write both or neither",
        ":13:84: listeners[0].cluster.sasl: has no settings; it takes mechanism, username, password_file",
        ":13:92: listeners[0].cluster.refresh: unknown setting; known here: bootstrap, tls, sasl",
    ]
