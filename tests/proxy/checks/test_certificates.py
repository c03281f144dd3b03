"""Certificates and keys as they are found on disks."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import (
    Certificate,
    CertificateBuilder,
    DNSName,
    ExtendedKeyUsage,
    ExtensionType,
    IPAddress,
    Name,
    NameAttribute,
    ObjectIdentifier,
    SubjectAlternativeName,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from config.problems import InvalidValue
from proxy.checks.certificates import (
    CLIENT,
    SERVER,
    covers,
    lapse,
    name_of,
    names_in,
    out_of_order,
    read_certificates,
    read_key,
    refuses_purpose,
    require_match,
)

AUTHORITY = trustme.CA()
ISSUED = AUTHORITY.issue_cert("kafka.example.com", common_name="kafka")
CERTIFICATE = ISSUED.cert_chain_pems[0].bytes()
KEY = ISSUED.private_key_pem.bytes()
PARAMETERS = b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
NOW = datetime(2030, 6, 1, tzinfo=UTC)


def certificate(*extensions: ExtensionType, common_name: str | None = "kafka") -> Certificate:
    """Return a certificate signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = Name([] if common_name is None else [NameAttribute(NameOID.COMMON_NAME, common_name)])
    builder = CertificateBuilder(name, name, key.public_key(), 0xABC, NOW - timedelta(days=1), NOW + timedelta(days=10))
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(key, hashes.SHA256())


def named(*hosts: str) -> Certificate:
    return certificate(
        SubjectAlternativeName(
            [
                IPAddress(ip_address(host)) if host.replace(".", "").isdecimal() or ":" in host else DNSName(host)
                for host in hosts
            ]
        )
    )


@pytest.mark.parametrize(
    "content",
    [KEY, b"some words\n" + KEY, PARAMETERS + KEY, KEY.replace(b"\n", b"\r\n"), CERTIFICATE + KEY, KEY + CERTIFICATE],
)
def test_private_key_is_found_beside_other_pem_content(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "pem").write_bytes(content)
    require_match(read_certificates_of(CERTIFICATE, tmp_path)[0], read_key(tmp_path / "pem"))


def read_certificates_of(content: bytes, folder: Path) -> list[Certificate]:
    (folder / "certificates.pem").write_bytes(content)
    return read_certificates(folder / "certificates.pem")


def test_a_chain_keeps_its_order_and_may_stand_beside_a_key(tmp_path: Path) -> None:
    child = AUTHORITY.create_child_ca()
    leaf = child.issue_cert("a.example")
    chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
    read = read_certificates_of(leaf.private_key_pem.bytes() + b"words\n" + chain, tmp_path)
    assert [one.public_bytes(Encoding.PEM) for one in read] == [blob.bytes() for blob in leaf.cert_chain_pems]
    assert len(read) == 2
    assert out_of_order(read) is None
    wrong = out_of_order(read[::-1])
    assert wrong is not None
    assert wrong.endswith("which did not issue it")


ENCRYPTED = ec.generate_private_key(ec.SECP256R1()).private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"canary")
)
DER_KEY = ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
TORN = KEY[: len(KEY) // 2] + b"\n-----END EC PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    ("read", "content", "said", "fix"),
    [
        (read_certificates, b"", "is empty", ""),
        (read_certificates, b" \n", "is empty", ""),
        (read_certificates, b"\x30\x82", "is not a PEM file", "openssl x509 -inform der"),
        (read_certificates, KEY, "holds no certificate", "-----BEGIN CERTIFICATE-----"),
        (read_certificates, CERTIFICATE[:-40], "holds a broken certificate", ""),
        (read_key, b"", "is empty", ""),
        (read_key, CERTIFICATE, "holds no private key", "-----BEGIN PRIVATE KEY-----"),
        (read_key, DER_KEY, "holds no private key", "-----BEGIN PRIVATE KEY-----"),
        (read_key, TORN, "holds a broken private key", ""),
        (read_key, ENCRYPTED, "is encrypted", "openssl pkey"),
    ],
)
def test_unusable_pem_file_is_refused_with_path_and_fix(
    tmp_path: Path, read: Callable[[Path], object], content: bytes, said: str, fix: str
) -> None:
    path = tmp_path / "file.pem"
    path.write_bytes(content)
    with pytest.raises(InvalidValue, match=said) as caught:
        read(path)
    assert str(path) in caught.value.message
    assert fix in caught.value.hint


def test_missing_pem_file_or_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="cannot be read: no such file or directory"):
        read_key(tmp_path / "absent")
    with pytest.raises(InvalidValue, match="cannot be read: is a directory"):
        read_certificates(tmp_path)


def test_private_key_of_other_certificate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(AUTHORITY.issue_cert("other").private_key_pem.bytes())
    with pytest.raises(InvalidValue, match=r"is not the key of the first certificate, .*CN=kafka"):
        require_match(read_certificates_of(CERTIFICATE, tmp_path)[0], read_key(tmp_path / "key"))


def test_certificate_purpose_follows_its_extended_key_usage() -> None:
    of_servers = certificate(ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]))
    assert refuses_purpose(of_servers, SERVER) is None
    assert refuses_purpose(of_servers, CLIENT) == (
        "CN=kafka is not for clients: its extended key usage leaves that out"
    )
    for free in (certificate(), certificate(ExtendedKeyUsage([ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE]))):
        assert refuses_purpose(free, SERVER) is None
    other = certificate(ExtendedKeyUsage([ObjectIdentifier("1.2.3")]))
    assert refuses_purpose(other, SERVER) is not None


@pytest.mark.parametrize(
    ("names", "host", "covered"),
    [
        (["kafka.example.com"], "kafka.example.com", True),
        (["Kafka.Example.com"], "kafka.EXAMPLE.com.", True),
        (["kafka.example.com"], "b1.kafka.example.com", False),
        (["*.kafka.example.com"], "b1.kafka.example.com", True),
        (["*.kafka.example.com"], "kafka.example.com", False),
        (["*.kafka.example.com"], "a.b1.kafka.example.com", False),
        (["b*.kafka.example.com"], "b1.kafka.example.com", False),
        (["*"], "kafka", False),
        (["10.0.0.1", "::1"], "10.0.0.1", True),
        (["10.0.0.1", "::1"], "::1", True),
        (["10.0.0.1"], "10.0.0.2", False),
        (["other", "kafka"], "kafka", True),
    ],
)
def test_certificate_covers_exact_wildcard_and_ip_names(names: list[str], host: str, covered: bool) -> None:
    assert covers(named(*names), host) is covered


def test_the_common_name_covers_nothing() -> None:
    assert not covers(certificate(common_name="kafka"), "kafka")
    assert names_in(certificate()) == []
    assert names_in(named("a", "::1", "b")) == ["a", "b", "::1"]


def test_lapse_counts_whole_days() -> None:
    one = certificate()
    assert lapse(one, NOW) == (True, f"expires on {NOW + timedelta(days=10):%Y-%m-%d}, in 10 days", "renew it")
    [ends_today, expired] = [
        lapse(one, NOW + timedelta(days=9, hours=1)),
        lapse(one, NOW + timedelta(days=10, seconds=1)),
    ]
    assert ends_today is not None
    assert ends_today.message.endswith("in 0 days")
    assert expired is not None
    assert not expired.is_valid


def test_a_name_stays_one_line() -> None:
    assert name_of(certificate(common_name="Jürgen")) == "CN=Jürgen"
    assert name_of(certificate(common_name="a\n\x1b[2J")).isprintable()
    assert name_of(certificate(common_name=None)) == "serial number abc"


def test_error_about_broken_key_shows_no_key_material(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(TORN)
    with pytest.raises(InvalidValue) as caught:
        read_key(path)
    assert all(line.decode() not in str(caught.value) for line in TORN.splitlines() if b"--" not in line)
    assert caught.value.__cause__ is None
