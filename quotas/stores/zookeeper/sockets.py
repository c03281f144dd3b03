"""The sockets to ZooKeeper's servers: TLS as it is configured, and why a server was not reached.

kazoo opens such sockets by itself, but trusts the authorities of the machine beside those that it is given, waits for a
whole session's time for a host that says nothing, and tells nobody what was wrong.
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
"""How long a host may be silent before the next one is asked: a lost SYN has been repeated by then."""
SILENT: Final = "took the connection and did not answer: is it a port for TLS, has it a quorum?"
_NOT_THE_NAME: Final = {62, 64}  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_OF_OUR_CERTIFICATE: Final = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE", "ACCESS_DENIED")


class Sockets:
    """Opens them, for kazoo's handler. Raises ConfigError for a file of TLS that cannot be used."""

    def __init__(self, tls: Tls | None) -> None:
        self._tls = tls
        self._wrong: dict[str, str] = {}
        """What was wrong with a server when it was tried last, where something else than waiting would help."""
        if tls is not None:
            _context(tls)

    def why(self) -> str:
        """Return which servers are there and are of no use, and why; empty if there are none."""
        return "; ".join(f"{server} {wrong}" for server, wrong in sorted(self._wrong.items()))

    def connect(
        self, address: tuple[str, int], hostname: str, timeout: float, **_: object
    ) -> socket.socket | ssl.SSLSocket:
        """Return a connection to one server. What else kazoo says is what it was told of TLS."""
        server = f"{hostname}:{address[1]}"
        try:
            connection = self._connect(address, hostname, timeout)
        except ssl.SSLError as error:
            self._wrong[server] = _why(error)
            raise
        except ConfigError as error:  # a file that was well at the start
            self._wrong[server] = f"was not asked: {error}"
            raise OSError(str(error)) from None
        except OSError:
            self._wrong.pop(server, None)
            raise
        self._wrong[server] = SILENT  # and if it answers nobody asks
        return connection

    def _connect(self, address: tuple[str, int], hostname: str, timeout_s: float) -> socket.socket | ssl.SSLSocket:
        connection = socket.create_connection(address, min(timeout_s, ATTEMPT_S))
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is None:
                return connection
            connection.settimeout(timeout_s)  # it is there, and may be slow: TLS costs it some computing
            # Read anew each time: certificates are replaced while the proxy runs.
            return _context(self._tls).wrap_socket(connection, server_hostname=hostname)
        except BaseException:
            connection.close()
            raise


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies; TLS 1.2 at least
    # Java takes every certificate of a truststore for an anchor, OpenSSL by itself only roots.
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
        return f"does not accept what we show of ourselves ({said}): see quotas.store.tls.certificate and .key"
    return "does not speak TLS there: see the port in quotas.store.connect, and quotas.store.tls"
