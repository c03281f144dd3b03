"""Checks of certificates, keys, authorities and ciphers."""

import ssl
from collections.abc import Callable, Iterable
from pathlib import Path

from cryptography.x509 import Certificate, ObjectIdentifier

from config.problems import InvalidValue, Steps
from config.settings import Admin, BrokerTls, ClientTls, Listener
from config.stores import ZooKeeperTls
from proxy.brokers.tls import broker_context
from proxy.checks import certificates
from proxy.checks.findings import Findings, Severity
from proxy.checks.mapping import look_for_doubled
from proxy.edge.tls import client_context
from proxy.identity.certificates.ssl_mapping import parse_rules


def look_at_client_tls(found: Findings, at: Steps, tls: ClientTls, listener: Listener) -> None:
    """Check the listener's own chain, and the authorities for its clients."""
    leaf = _look_at_server(found, at, tls)
    if leaf is not None:
        hosts = certificates.hosts_of(listener, certificates.names_in(leaf))
        _covers(found, (*at, "certificate"), leaf, hosts, "clients that verify the host")


def look_at_admin_tls(found: Findings, admin: Admin, tls: ClientTls, host: str | None) -> None:
    """Check the chain of the admin port, which other instances reach as ``host``, and the authorities."""
    leaf = _look_at_server(found, ("admin", "tls"), tls)
    if leaf is not None and host is not None:
        _covers(found, ("admin", "tls", "certificate"), leaf, [host], "other instances")
    if admin.ca is not None:
        _authorities(found, ("admin", "ca"), admin.ca)


def _look_at_server(found: Findings, at: Steps, tls: ClientTls) -> Certificate | None:
    leaf = _own_certificate(found, at, tls.certificate, tls.key, certificates.SERVER)
    if tls.client_ca is not None:
        _authorities(found, (*at, "client_ca"), tls.client_ca)
    if tls.ciphers is not None:
        _ciphers(found, (*at, "ciphers"), tls.ciphers)
    with found.at(*at, "principal_mapping_rules"):
        parse_rules(tls.principal_mapping_rules)
    look_for_doubled(found, (*at, "principal_mapping_rules"), tls.principal_mapping_rules)
    _context(found, at, lambda: client_context(tls))
    return leaf


def look_at_tls_to_servers(found: Findings, at: Steps, tls: BrokerTls | ZooKeeperTls) -> None:
    """Check the authorities for brokers or ZooKeeper's servers, and the proxy's own chain."""
    if tls.ca is not None:
        _authorities(found, (*at, "ca"), tls.ca)
    if tls.certificate is not None:
        _own_certificate(found, at, tls.certificate, tls.key, certificates.CLIENT)
    if isinstance(tls, BrokerTls):
        _context(found, at, lambda: broker_context(tls))


def _own_certificate(
    found: Findings, at: Steps, certificate: Path, key: Path | None, purpose: ObjectIdentifier
) -> Certificate | None:
    """Check a chain and its key, which without ``key`` is in the same file; return the first certificate."""
    chain: list[Certificate] = []
    with found.at(*at, "certificate"):
        chain = certificates.read_certificates(certificate)

    def read(path: Path) -> None:
        private = certificates.read_key(path)
        if chain:
            certificates.require_match(chain[0], private)

    if key is not None:
        found.secret((*at, "key"), key, read)
    elif chain:
        found.secret((*at, "certificate"), certificate, read)
    if not chain:
        return None
    _chain(found, (*at, "certificate"), chain, purpose)
    return chain[0]


def _chain(found: Findings, at: Steps, chain: list[Certificate], purpose: ObjectIdentifier) -> None:
    for certificate in chain:
        _validity(found, at, certificate, Severity.REFUSED)
    if wrong := certificates.out_of_order(chain):
        found.add(Severity.REFUSED, at, wrong, certificates.OUT_OF_ORDER_FIX)
    if wrong := certificates.refuses_purpose(chain[0], purpose):
        found.add(Severity.REFUSED, at, wrong, "have a suitable one issued")


def _validity(found: Findings, at: Steps, certificate: Certificate, severity: Severity) -> None:
    if (lapse := certificates.lapse(certificate, found.now)) is not None:
        message = f"{certificates.name_of(certificate)} {lapse.message}"
        found.add(Severity.WARNING if lapse.is_valid else severity, at, message, lapse.fix)


def _covers(found: Findings, at: Steps, leaf: Certificate, hosts: Iterable[str], who: str) -> None:
    """Warn of hosts that the certificate does not cover: most clients verify that."""
    for host in hosts:
        if not certificates.covers(leaf, host):
            message = (
                f"is not for {host}, only for {', '.join(certificates.names_in(leaf)) or 'nothing'}: {who} refuse it"
            )
            found.warn(at, message, f"have one issued with the subject alternative name {host}")


def _authorities(found: Findings, at: Steps, path: Path) -> None:
    with found.at(*at):
        for certificate in certificates.read_certificates(path):
            _validity(found, at, certificate, Severity.WARNING)


def _ciphers(found: Findings, at: Steps, ciphers: str) -> None:
    if not _selects(ciphers):
        fix = "`openssl ciphers` lists them; those of TLS 1.3 cannot be chosen"
        found.add(Severity.UNUSABLE, at, f"{ciphers!r} selects no cipher of this OpenSSL", fix)
        return
    for word in ciphers.replace(",", ":").replace(" ", ":").split(":"):
        # Exclusions often name ciphers that OpenSSL has dropped: !RC4, !EXPORT.
        if word and word[0] not in "!-@" and not _selects(f"{word.removeprefix('+')}:@SECLEVEL=0"):
            found.warn(at, f"{word} selects no cipher of this OpenSSL", "leave it out")


def _selects(ciphers: str) -> bool:
    """Whether the string selects at least one cipher of TLS 1.2 in this OpenSSL."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(ciphers)
    except ssl.SSLError:
        return False
    return True


def _context(found: Findings, at: Steps, build: Callable[[], object]) -> None:
    """Have OpenSSL check the context, if nothing unusable was found: it may reject short keys, and the like."""
    if not found.unusable():
        with found.at(*at):
            try:
                build()
            except OSError as error:
                raise InvalidValue(str(error)) from None
