"""Checks of certificates, keys, authorities and ciphers."""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509 import Certificate, ObjectIdentifier

from config.brokers import node_id_of
from config.problems import InvalidValue, Steps
from config.settings import Admin, BrokerTls, ClientTls, Listener
from config.stores import ZooKeeperTls
from proxy.brokers.tls import broker_context
from proxy.checks import certificates
from proxy.checks.findings import Findings, Severity
from proxy.checks.mapping import look_for_doubled
from proxy.edge.tls import client_context
from proxy.identity.certificates.ssl_mapping import parse_rules

SOON_DAYS: Final = 30


def look_at_client_tls(found: Findings, at: Steps, tls: ClientTls, listener: Listener) -> None:
    """Check the listener's own chain, and the authorities for its clients."""
    leaf = _look_at_server(found, at, tls)
    if leaf is not None:
        _covers(found, (*at, "certificate"), leaf, listener)


def look_at_admin_tls(found: Findings, admin: Admin, tls: ClientTls, host: str | None) -> None:
    """Check the chain of the admin port, which other instances reach as ``host``, and the authorities."""
    leaf = _look_at_server(found, ("admin", "tls"), tls)
    if leaf is not None and host is not None and not certificates.covers(leaf, host):
        named = ", ".join(certificates.names_in(leaf)) or "nothing"
        message = f"is not for {host}, only for {named}: other instances refuse it"
        fix = f"have one issued with the subject alternative name {host}"
        found.add(Severity.WARNING, ("admin", "tls", "certificate"), message, fix)
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


def look_at_broker_tls(found: Findings, at: Steps, tls: BrokerTls) -> None:
    """Check the authorities for brokers, and the proxy's own chain."""
    if tls.ca is not None:
        _authorities(found, (*at, "ca"), tls.ca)
    if tls.certificate is not None and tls.key is not None:
        _own_certificate(found, at, tls.certificate, tls.key, certificates.CLIENT)
    _context(found, at, lambda: broker_context(tls))


def look_at_zookeeper_tls(found: Findings, at: Steps, tls: ZooKeeperTls) -> None:
    """Check the authorities for ZooKeeper's servers, and the proxy's own chain."""
    _authorities(found, (*at, "ca"), tls.ca)
    if tls.certificate is not None and tls.key is not None:
        _own_certificate(found, at, tls.certificate, tls.key, certificates.CLIENT)
    elif tls.certificate is not None:  # with its key in one file
        with found.at(*at, "certificate"):
            _chain(found, (*at, "certificate"), certificates.read_certificates(tls.certificate), certificates.CLIENT)
            certificates.read_key(tls.certificate)
            found.secret((*at, "certificate"), tls.certificate)


def _own_certificate(
    found: Findings, at: Steps, certificate: Path, key: Path, purpose: ObjectIdentifier
) -> Certificate | None:
    """Check a chain and its key; return the first certificate."""
    chain: list[Certificate] = []
    private: PrivateKeyTypes | None = None
    with found.at(*at, "certificate"):
        chain = certificates.read_certificates(certificate)
    with found.at(*at, "key"):
        private = certificates.read_key(key)
        found.secret((*at, "key"), key)
    if not chain:
        return None
    if private is not None:
        with found.at(*at, "key"):
            certificates.require_match(chain[0], private)
    _chain(found, (*at, "certificate"), chain, purpose)
    return chain[0]


def _chain(found: Findings, at: Steps, chain: list[Certificate], purpose: ObjectIdentifier) -> None:
    for certificate in chain:
        _validity(found, at, certificate, Severity.REFUSED)
    if wrong := certificates.out_of_order(chain):
        fix = "write the certificate first, then the one that issued it, and so on"
        found.add(Severity.REFUSED, at, wrong, fix)
    if wrong := certificates.refuses_purpose(chain[0], purpose):
        found.add(Severity.REFUSED, at, wrong, "have a suitable one issued")


def _validity(found: Findings, at: Steps, certificate: Certificate, severity: Severity) -> None:
    name = certificates.name_of(certificate)
    days = certificates.days_left(certificate, found.now)
    until = f"{certificate.not_valid_after_utc:%Y-%m-%d}"
    if certificate.not_valid_before_utc > found.now:
        since = f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        found.add(severity, at, f"{name} is not valid before {since}", "compare the clocks")
    elif days < 0:
        found.add(severity, at, f"{name} expired on {until}", "renew it")
    elif days < SOON_DAYS:
        found.add(Severity.WARNING, at, f"{name} expires on {until}, in {days} days", "renew it")


def _covers(found: Findings, at: Steps, leaf: Certificate, listener: Listener) -> None:
    """Warn of advertised hosts that the certificate does not cover: most clients verify that."""
    hosts = [listener.advertise.host]
    names = certificates.names_in(leaf)
    template = listener.broker_host
    # The node ids are unknown here: one that is covered counts for all.
    if template is not None and all(node_id_of(name, template) is None for name in names):
        hosts.append(template.replace("{node_id}", "0"))
    for host in hosts:
        if not certificates.covers(leaf, host):
            message = (
                f"is not for {host}, only for {', '.join(names) or 'nothing'}: clients that verify the host refuse it"
            )
            found.add(Severity.WARNING, at, message, f"have one issued with the subject alternative name {host}")


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
            found.add(Severity.WARNING, at, f"{word} selects no cipher of this OpenSSL", "leave it out")


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
