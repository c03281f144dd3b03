"""Sockets to ZooKeeper's servers: TLS as configured, and why a server was not reached.

kazoo can open such sockets itself, but it also trusts the machine's authorities, waits a whole session timeout for a
silent host, and does not report what was wrong.
"""

import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from config.files import require_regular
from config.problems import ConfigError, Problem
from config.stores import ZooKeeperTls as Tls

ATTEMPT_S: Final = 2.0
"""How long a host may be silent before the next one is tried: a lost SYN has been repeated by then."""
SILENT: Final = "accepted the connection but did not answer: is the port for TLS, or is there no quorum?"
_NOT_THE_NAME: Final = {62, 64}  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_OF_OUR_CERTIFICATE: Final = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE", "ACCESS_DENIED")


class Sockets:
    """Opens sockets for kazoo's handler. Raises ConfigError for a TLS file that cannot be used."""

    def __init__(self, tls: Tls | None) -> None:
        self._tls = tls
        self._wrong: dict[str, str] = {}
        """The last error of each server, if waiting alone would not help."""
        if tls is not None:
            _context(tls)

    def why(self) -> str:
        """Return the servers that are reachable but unusable, and why; empty if there are none."""
        return "; ".join(f"{server} {wrong}" for server, wrong in sorted(self._wrong.items()))

    def connect(
        self, address: tuple[str, int], hostname: str, timeout: float, **_: object
    ) -> socket.socket | ssl.SSLSocket:
        """Connect to one server. kazoo's further arguments are about TLS, and ignored."""
        server = f"{hostname}:{address[1]}"
        try:
            connection = self._connect(address, hostname, timeout)
        except ssl.SSLError as error:
            self._wrong[server] = _why(error)
            raise
        except ConfigError as error:  # a file that was valid at the start
            self._wrong[server] = f"was not tried: {error}"
            raise OSError(str(error)) from None
        except OSError:
            self._wrong.pop(server, None)
            raise
        self._wrong[server] = SILENT  # only shown if it never answers
        return connection

    def _connect(self, address: tuple[str, int], hostname: str, timeout_s: float) -> socket.socket | ssl.SSLSocket:
        connection = socket.create_connection(address, min(timeout_s, ATTEMPT_S))
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is None:
                return connection
            connection.settimeout(timeout_s)  # it is reachable, but a TLS handshake may be slow
            # Read again each time: certificates are replaced while the proxy runs.
            return _context(self._tls).wrap_socket(connection, server_hostname=hostname)
        except BaseException:
            connection.close()
            raise


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies; TLS 1.2 at least
    # Java treats every certificate of a truststore as an anchor, OpenSSL by default only roots.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = tls.verify_hostname
    _use("quotas.store.tls.ca", tls.ca, lambda: context.load_verify_locations(tls.ca))
    if tls.certificate is not None:
        certificate, key = tls.certificate, tls.key or tls.certificate
        _use("quotas.store.tls.key", key, lambda: None)
        _use(
            "quotas.store.tls.certificate",
            certificate,
            lambda: context.load_cert_chain(certificate, key, _no_password),
        )
    return context


def _use(setting: str, path: Any, load: Callable[[], object]) -> None:
    try:
        require_regular(Path(path))
        load()
    except (OSError, ValueError) as error:
        not_pem = "is not in PEM form, or the key is not that of the certificate"
        said = not_pem if isinstance(error, ssl.SSLError) else str(getattr(error, "strerror", error)).lower()
        raise ConfigError([Problem(str(path), 0, 0, setting, said)]) from None


def _no_password() -> str:  # OpenSSL would ask at the terminal
    raise ValueError("the key is encrypted: write it without a password (openssl pkey)")


def _why(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _NOT_THE_NAME:
            return (
                f"shows a certificate for another name ({error.verify_message.rstrip('.')}): "
                "write the name that it is for into quotas.store.connect, or see quotas.store.tls.verify_hostname"
            )
        return f"shows a certificate that is not trusted ({error.verify_message}): see quotas.store.tls.ca"
    reason = error.reason or ""
    if "ALERT" in reason and any(word in reason for word in _OF_OUR_CERTIFICATE):
        said = reason.lower().replace("_", " ")
        return f"does not accept our certificate ({said}): see quotas.store.tls.certificate and .key"
    return "does not speak TLS there: see the port in quotas.store.connect, and quotas.store.tls"
