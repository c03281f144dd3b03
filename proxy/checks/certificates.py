"""Certificates and keys in PEM files: whether they are usable, when they expire, and for which names.

OpenSSL reports a mismatched pair in one word; these errors say which of the two files is wrong, and why. Key material
never appears in a message.
"""

import ipaddress
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import (
    Certificate,
    DNSName,
    DuplicateExtension,
    ExtendedKeyUsage,
    ExtensionNotFound,
    IPAddress,
    ObjectIdentifier,
    SubjectAlternativeName,
    load_pem_x509_certificates,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

from config.brokers import node_id_of
from config.files import read_file as read_regular_file
from config.listener import Listener
from config.problems import InvalidValue

SERVER: Final = ExtendedKeyUsageOID.SERVER_AUTH
CLIENT: Final = ExtendedKeyUsageOID.CLIENT_AUTH
OUT_OF_ORDER_FIX: Final = "write the certificate first, then the one that issued it, and so on"
SOON_DAYS: Final = 30

_NO_EXTENSION: Final = (ExtensionNotFound, DuplicateExtension, ValueError)  # ValueError: it is broken
_PURPOSES: Final = {SERVER: "servers", CLIENT: "clients"}


def read_file(path: Path) -> bytes:
    """Return a file's content; raise InvalidValue if the file is unreadable or empty."""
    try:
        content = read_regular_file(path)
    except OSError as error:
        raise InvalidValue(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    if not content.strip():
        raise InvalidValue(f"{path} is empty")
    return content


def read_certificates(path: Path) -> list[Certificate]:
    """Return a PEM file's certificates in order, at least one; raise InvalidValue."""
    content = read_file(path)
    if b"-----BEGIN" not in content:
        fix = "DER: openssl x509 -inform der; PKCS#12: openssl pkcs12 -nokeys"
        raise InvalidValue(f"{path} is not a PEM file", fix)
    if b"CERTIFICATE-----" not in content:
        raise InvalidValue(f"{path} holds no certificate", "it must hold -----BEGIN CERTIFICATE-----")
    try:
        return load_pem_x509_certificates(content)
    except ValueError as error:
        raise InvalidValue(f"{path} holds a broken certificate: {error}") from None


def read_key(path: Path) -> PrivateKeyTypes:
    """Return the private key in a PEM file; raise InvalidValue."""
    content = read_file(path)
    if b"PRIVATE KEY-----" not in content:
        raise InvalidValue(f"{path} holds no private key", "it must hold -----BEGIN PRIVATE KEY-----")
    try:
        return load_pem_private_key(content, password=None)
    except TypeError:
        raise InvalidValue(f"the key in {path} is encrypted", "write it without a password: openssl pkey") from None
    except (ValueError, UnsupportedAlgorithm):  # the library's own text may quote the key
        raise InvalidValue(f"{path} holds a broken private key, or one of an unknown kind") from None


def require_match(leaf: Certificate, key: PrivateKeyTypes) -> None:
    """Raise InvalidValue if ``key`` is not that of ``leaf``, the first certificate of its file."""
    try:
        matches = leaf.public_key() == key.public_key()
    except (ValueError, UnsupportedAlgorithm):
        return  # a kind that only OpenSSL may know: loading decides
    if not matches:
        fix = "write the pair, the chain with its own certificate first"
        raise InvalidValue(f"is not the key of the first certificate, {name_of(leaf)}", fix)


def out_of_order(chain: Sequence[Certificate]) -> str | None:
    """Return a message about the first certificate in a chain that the next one did not issue; None if all fit."""
    for issued, issuer in pairwise(chain):
        if issued.issuer != issuer.subject:
            return f"{name_of(issued)} is followed by {name_of(issuer)}, which did not issue it"
    return None


def refuses_purpose(leaf: Certificate, purpose: ObjectIdentifier) -> str | None:
    """Return why a certificate is not valid for ``purpose``; None if it is, or lacks the extension."""
    try:
        allowed = leaf.extensions.get_extension_for_class(ExtendedKeyUsage).value
    except _NO_EXTENSION:
        return None
    if purpose in allowed or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in allowed:
        return None
    return f"{name_of(leaf)} is not for {_PURPOSES[purpose]}: its extended key usage leaves that out"


class Lapse(NamedTuple):
    """Why a certificate is not valid, or will not be soon."""

    is_valid: bool
    message: str
    fix: str


def lapse(certificate: Certificate, now: datetime) -> Lapse | None:
    """Return why a certificate is not valid for the next SOON_DAYS; None if it is."""
    days = (certificate.not_valid_after_utc - now).days
    if certificate.not_valid_before_utc > now:
        since = f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        return Lapse(False, f"is not valid before {since}", "compare the clocks")
    until = f"{certificate.not_valid_after_utc:%Y-%m-%d}"
    if days < 0:
        return Lapse(False, f"expired on {until}", "renew it")
    return Lapse(True, f"expires on {until}, in {days} days", "renew it") if days < SOON_DAYS else None


def hosts_of(listener: Listener, names: Sequence[str]) -> list[str]:
    """Return the hosts of a listener that a certificate for ``names`` has to cover, as clients are told them."""
    template = listener.broker_host
    # The node ids are unknown here: one that is covered counts for all.
    if template is None or any(node_id_of(name, template) is not None for name in names):
        return [listener.advertise.host]
    return [listener.advertise.host, template.replace("{node_id}", "0")]


def covers(leaf: Certificate, host: str) -> bool:
    """Whether the certificate is valid for ``host``, a name or an address (RFC 6125)."""
    names = _alternative_names(leaf)
    try:
        return ipaddress.ip_address(host) in names.get_values_for_type(IPAddress)
    except ValueError:
        return any(_fits(host, name) for name in names.get_values_for_type(DNSName))


def names_in(leaf: Certificate) -> list[str]:
    """Return the host names and addresses in a certificate's SAN."""
    names = _alternative_names(leaf)
    return [*names.get_values_for_type(DNSName), *map(str, names.get_values_for_type(IPAddress))]


def name_of(certificate: Certificate) -> str:
    """Return a certificate's subject, or its serial number if the subject is empty, printable on one line."""
    subject = certificate.subject.rfc4514_string()
    if not subject:
        return f"serial number {certificate.serial_number:x}"
    return subject if subject.isprintable() else ascii(subject)


def _alternative_names(leaf: Certificate) -> SubjectAlternativeName:
    """Return the SAN, empty if there is none: the common name is no longer used."""
    try:
        return leaf.extensions.get_extension_for_class(SubjectAlternativeName).value
    except _NO_EXTENSION:
        return SubjectAlternativeName([])


def _fits(host: str, pattern: str) -> bool:
    """Match a host name; a ``*`` matches exactly one label, the first."""
    host, pattern = host.lower().removesuffix("."), pattern.lower().removesuffix(".")
    if pattern.startswith("*."):
        first, _, rest = host.partition(".")
        return bool(first) and rest == pattern[2:]
    return host == pattern
