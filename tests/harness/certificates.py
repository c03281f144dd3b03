"""Certificates of a test's own: an authority, and what it signs, as PEM for OpenSSL and as PKCS #12 for Java."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
    serialize_key_and_certificates,
)
from cryptography.x509.oid import NameOID

STORE_PASSWORD: Final = "changeit"
LIFETIME: Final = datetime.timedelta(days=7)
# Every address that a broker or the proxy is reached by; 127.0.0.2 is where the ConnectionWatch stands.
SERVER_HOSTS: Final = ("localhost", "127.0.0.1", "127.0.0.2")


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate and its key: what a server or a client shows."""

    certificate: Path
    key: Path
    """PKCS #8, not encrypted."""
    both: Path
    """Key and chain in one file, as Kafka's `ssl.keystore.type=PEM` wants them."""
    store: Path
    """Both as PKCS #12 with STORE_PASSWORD."""


class Authority:
    """Signs certificates into its folder. `certificate` is its own as PEM, `store` as a Java truststore."""

    def __init__(self, folder: Path, name: str = "Sluice test authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.certificate = folder / "ca.pem"
        self.store = folder / "ca.p12"
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = name
        self._own = self._sign(common_name(name), self._key, [x509.BasicConstraints(ca=True, path_length=0)])
        self.certificate.write_bytes(self._own.public_bytes(Encoding.PEM))
        entry = PKCS12Certificate(self._own, b"ca")
        self.store.write_bytes(serialize_java_truststore([entry], BestAvailableEncryption(STORE_PASSWORD.encode())))

    def issue(self, file_name: str, subject: x509.Name, hosts: Sequence[str] = ()) -> Identity:
        """A certificate of that subject, good for clients and servers alike; `hosts` are its alternative names."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        constraints = x509.BasicConstraints(ca=False, path_length=None)
        certificate = self._sign(subject, key, [constraints, *([names] if hosts else [])])
        place = self._folder / file_name
        identity = Identity(*(place.with_suffix(suffix) for suffix in (".pem", ".key", ".both.pem", ".p12")))
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        chain = certificate.public_bytes(Encoding.PEM)
        identity.key.touch(0o600)
        identity.key.write_bytes(secret)
        identity.certificate.write_bytes(chain)
        identity.both.write_bytes(secret + chain)
        store = serialize_key_and_certificates(
            b"own", key, certificate, [self._own], BestAvailableEncryption(STORE_PASSWORD.encode())
        )
        identity.store.write_bytes(store)
        return identity

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, extensions: Sequence[x509.ExtensionType]
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(common_name(self._name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + LIFETIME)
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return builder.sign(self._key, hashes.SHA256())


def common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
