"""TLS to brokers: the trusted authorities, and the proxy's own certificate."""

import asyncio
import ssl
from pathlib import Path

import structlog

from config.cluster import BrokerTls as BrokerTlsSettings
from config.files import require_regular

log = structlog.get_logger("sluice.cluster")


class BrokerTls:
    """The SSLContext for connections to brokers.

    Raises OSError, with the setting and the file, if it cannot be created at startup. Later failures leave the old one
    in force: a certificate that is being replaced must not cut the proxy off.
    """

    def __init__(self, settings: BrokerTlsSettings) -> None:
        self._settings = settings
        files = (settings.ca, settings.certificate, settings.key)
        self.files: tuple[Path, ...] = tuple(path for path in files if path is not None)
        self.context = broker_context(settings)

    async def load(self) -> None:
        try:
            self.context = await asyncio.to_thread(broker_context, self._settings)
        except OSError as error:
            log.error("TLS files for brokers not loaded, the old ones stay in force", error=str(error))
        else:
            log.info("TLS files for brokers loaded", files=[str(path) for path in self.files])


def broker_context(settings: BrokerTlsSettings) -> ssl.SSLContext:
    """Return a context that verifies brokers. Raises OSError that names the setting and the file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies; TLS 1.2 at least
    if settings.ca is None:
        context.load_default_certs()
    else:
        try:
            require_regular(settings.ca)
            context.load_verify_locations(settings.ca)
        except OSError as error:
            raise _refused("tls.ca", settings.ca, error, "holds no certificate in PEM form") from error
    # As Java does, trust every certificate of the truststore as an anchor; by default OpenSSL trusts only roots.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = settings.verify_hostname
    if settings.certificate is not None and settings.key is not None:
        load_own_certificate(context, settings.certificate, settings.key)
    return context


def load_own_certificate(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Load a chain and its key into ``context``. Raises OSError that names the setting and the file."""

    def encrypted() -> str:  # OpenSSL would prompt on the terminal
        raise OSError(f"tls.key {key}: is encrypted: write it without a password (openssl pkey)")

    for setting, path in (("tls.certificate", certificate), ("tls.key", key)):
        try:
            require_regular(path)
            path.read_bytes()
        except OSError as error:  # OpenSSL does not say which of the two
            raise _refused(setting, path, error, "") from error
    try:
        context.load_cert_chain(certificate, key, encrypted)
    except ssl.SSLError as error:
        said = "does not belong to the certificate" if "MISMATCH" in str(error) else "one of them is not in PEM form"
        raise OSError(f"tls.certificate {certificate}, tls.key {key}: {said}") from error


def _refused(setting: str, path: Path, error: OSError, not_pem: str) -> OSError:
    said = not_pem if isinstance(error, ssl.SSLError) else (error.strerror or str(error)).lower()
    return OSError(f"{setting} {path}: {said}")
