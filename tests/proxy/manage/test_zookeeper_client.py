"""``--zookeeper-config``: what it asks for, and what it is told where that cannot be done."""

from pathlib import Path

import pytest

from config.problems import ConfigError
from proxy.manage import zookeeper_client
from tests.proxy.manage.conftest import Run

LOGIN = 'sasl.jaas.config=org.apache.zookeeper.server.auth.DigestLoginModule required username="u" password="canary";\n'
TLS = "zookeeper.ssl.client.enable=true\nzookeeper.ssl.truststore.location=/ca.pem\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sasl.jaas.config=canary", "sasl.jaas.config: does not begin like"),
        (LOGIN.replace("Digest", "Plain"), "sasl.jaas.config: is no login by DIGEST-MD5; write org.apache.zookeeper"),
        (LOGIN.replace("username", "user"), "sasl.jaas.config: is no login by DIGEST-MD5"),
        ("zookeeper.ssl.client.enable=true", "zookeeper.ssl.truststore.location: is missing; name a PEM file"),
        (TLS.replace(".pem", ".jks"), "truststore.location: /ca.jks is no PEM file; convert it (keytool"),
        (TLS + "zookeeper.ssl.truststore.type=PKCS12", "truststore.location: /ca.pem is no PEM file"),
        (TLS + "zookeeper.ssl.keystore.location=/own.p12", "keystore.location: /own.p12 is no PEM file"),
        (TLS + "zookeeper.ssl.protocol=TLSv1.3", "zookeeper.ssl.protocol: is not supported; leave it out"),
    ],
)
def test_unsupported_zookeeper_client_setting_is_refused_without_password(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "zk.properties"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        zookeeper_client.open_zookeeper("zk:2181", file)
    assert said in str(caught.value).removeprefix(f"{file}: ")
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "set_acl"),
    [
        ("", False),
        ("zookeeper.ssl.protocol=without TLS it says nothing", False),
        (TLS, False),
        (LOGIN, True),
        (TLS + "zookeeper.ssl.keystore.location=/own.pem", True),
        (LOGIN + "zookeeper.set.acl=false", False),
        ("zookeeper.set.acl=true", True),
    ],
)
def test_zookeeper_acl_default_follows_login_and_client_certificate(
    tmp_path: Path, text: str, *, set_acl: bool
) -> None:
    file = tmp_path / "zk.properties"
    file.write_text(text)
    assert zookeeper_client.settings_of("zk:2181", file)[0].set_acl == set_acl


def test_zookeeper_config_errors_name_file_and_setting(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "zk.properties"
    file.write_text(TLS)
    done = run("describe --zookeeper zk:2181 --zookeeper-config {}", file)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "/ca.pem: zookeeper.ssl.truststore.location: no such file or directory" in done.stderr
    assert run("describe --file {} --zookeeper-config {}", file, file).exit_code == 2
    done = run(
        "import --from zookeeper --from-address zk:2181 --from-command-config {} --file {}", file, tmp_path / "q.yaml"
    )
    assert "/ca.pem: zookeeper.ssl.truststore.location: no such file or directory" in done.stderr
