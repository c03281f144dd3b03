"""Checks the certificates that a listener serves."""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from cryptography.x509 import Certificate, load_der_x509_certificate

from config.listener import Listener
from config.problems import InvalidValue
from config.units import Address
from proxy.brokers.connection import connect
from proxy.checks.certificates import (
    OUT_OF_ORDER_FIX,
    covers,
    hosts_of,
    lapse,
    name_of,
    names_in,
    out_of_order,
    read_certificates,
)
from proxy.doctor.findings import DoctorFindings

_DER: Final = 2  # _ssl.ENCODING_DER


@dataclass(frozen=True, slots=True)
class Chain:
    """The result of a TLS handshake; the listener's own certificate comes first."""

    version: str
    cipher: str
    certificates: list[Certificate]


async def served_chain(address: Address, unverified: ssl.SSLContext) -> Chain:
    """Handshake without verification, to see even an invalid certificate. Raises OSError."""
    async with connect(address.host, address.port, unverified) as connection:
        tls = connection.tls
        if tls is None:
            raise ConnectionError("no TLS connection")
        cipher = tls.cipher()
        return Chain(tls.version() or "", cipher[0] if cipher else "", _certificates(tls))


def _certificates(tls: ssl.SSLObject) -> list[Certificate]:
    if hasattr(tls, "get_unverified_chain"):  # from Python 3.13 on
        return [load_der_x509_certificate(der) for der in tls.get_unverified_chain()]
    chain = tls._sslobj.get_unverified_chain()  # type: ignore[attr-defined]  # noqa: SLF001  the same function, before it was public
    return [load_der_x509_certificate(each.public_bytes(_DER)) for each in chain]


def look_at_chain(found: DoctorFindings, chain: Chain, listener: Listener, now_s: float) -> None:
    """Report subject, issuer and expiry of each certificate, and whether the first one covers the hosts."""
    now = datetime.fromtimestamp(now_s, UTC)
    for certificate in chain.certificates:
        itself = certificate.issuer == certificate.subject
        said = f"{name_of(certificate)}, issued by {'itself' if itself else certificate.issuer.rfc4514_string()}"
        if (why := lapse(certificate, now)) is not None:
            (found.warn if why.is_valid else found.fail)("certificate", f"{said}, {why.message}", why.fix)
        else:
            until = certificate.not_valid_after_utc
            found.ok("certificate", f"{said}, until {until:%Y-%m-%d}, {(until - now).days} days")
    if wrong := out_of_order(chain.certificates):
        found.fail("certificate", wrong, OUT_OF_ORDER_FIX)
    if chain.certificates:
        _look_at_hosts(found, chain.certificates[0], listener)
        _look_at_file(found, chain.certificates[0], listener)


def _look_at_hosts(found: DoctorFindings, leaf: Certificate, listener: Listener) -> None:
    names = names_in(leaf)
    hosts = hosts_of(listener, names)
    missing = [host for host in hosts if not covers(leaf, host)]
    said = ", ".join(names) or "nothing"
    if missing:
        fix = "have one issued that names it as a subject alternative name"
        found.fail("certificate", f"is not for {', '.join(missing)}, which clients are told, only for {said}", fix)
    else:
        found.ok("certificate", f"is for {said}: {', '.join(hosts)} is among them")


def _look_at_file(found: DoctorFindings, leaf: Certificate, listener: Listener) -> None:
    try:
        own = read_certificates(listener.tls.certificate)[0] if listener.tls is not None else leaf
    except InvalidValue:
        return  # reported with the configuration
    if own != leaf:
        fix = "compare the address with this configuration, and look in the proxy's log why the file was not loaded"
        found.warn("certificate", f"{name_of(own)} in the file differs from the served one", fix)
