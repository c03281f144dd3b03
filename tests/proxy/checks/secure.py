"""A configuration that names all that there is to name, and the files it names."""

from pathlib import Path
from textwrap import dedent
from typing import Final

import trustme

from tests.proxy.identity.kerberos import keytab

CONFIG: Final = dedent(
    """\
    cluster:
      name: demo
      bootstrap: ["kafka:9093"]
      tls:
        ca: ca.pem
        certificate: proxy.pem
        key: proxy.key
      sasl:
        mechanism: SCRAM-SHA-512
        username: sluice
        password_file: password
    listeners:
      - name: SASL_SSL
        bind: "127.0.0.1:9093"
        advertise: kafka.example.com
        broker_host: b{node_id}.kafka.example.com
        authentication: sasl
        tls:
          certificate: chain.pem
          key: chain.key
          client_authentication: requested
          client_ca: ca.pem
          principal_mapping_rules: "RULE:^CN=(.*?),.*$/$1/L,DEFAULT"
          ciphers: "ECDHE+AESGCM:!RC4"
    quotas: {store: {path: quotas.yaml}}
    """
)
KERBEROS: Final = CONFIG.replace(
    "quotas:",
    """\
    sasl:
      kerberos:
        keytab: kafka.keytab
        default_realm: EXAMPLE.COM
        principal_to_local_rules: ["RULE:[1:$1](.*)s/@.*//", DEFAULT]
quotas:""",
)
"""With GSSAPI besides, which needs an extra that not every machine has."""
QUOTAS: Final = "quotas:\n  - {entity: {user: alice}, producer_byte_rate: 1MiB}\n"
NOW_S: Final = 1_900_000_000.0  # 2030-03-17

AUTHORITY: Final = trustme.CA()


def write(folder: Path, config: str = CONFIG) -> Path:
    """Write the configuration and all that it names into ``folder``; nothing is wrong with any of it."""
    AUTHORITY.cert_pem.write_to_path(str(folder / "ca.pem"))
    show(folder, "chain", AUTHORITY.issue_cert("kafka.example.com", "*.kafka.example.com"))
    show(folder, "proxy", AUTHORITY.issue_cert(common_name="sluice"))
    secret(folder / "password", b"canary\n")
    secret(folder / "kafka.keytab", keytab("kafka/kafka.example.com@EXAMPLE.COM"))
    (folder / "quotas.yaml").write_text(QUOTAS)
    file = folder / "sluice.yaml"
    file.write_text(config)
    return file


def show(folder: Path, name: str, issued: trustme.LeafCert) -> None:
    """Write ``name``.pem and ``name``.key."""
    (folder / f"{name}.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    secret(folder / f"{name}.key", issued.private_key_pem.bytes())


def secret(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    path.chmod(0o600)
