"""TLS to clients: contexts, users from client certificates, and the causes of failed handshakes."""

import asyncio
import ssl
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from config.files import read_file, require_regular
from config.listener import ClientTls
from protocol.errors import Cause, ProtocolError
from proxy.brokers.tls import load_own_certificate
from proxy.edge.arrival import HANDSHAKE, Handshake
from proxy.identity.certificates.distinguished_name import rfc2253
from proxy.identity.certificates.ssl_mapping import parse_rules
from proxy.identity.principal import confirmed
from quotas.entities import ANONYMOUS
from quotas.names import counted_as

_VERIFY: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

HANDSHAKE_RECORD: Final = b"\x16\x03"
"""First bytes of every TLS connection: a record of the type handshake, version 3.x."""

# OpenSSL's reason → cause. Alerts are the client's own.
_CAUSES: Final = {
    "UNSUPPORTED_PROTOCOL": Cause.TLS_VERSION,
    "VERSION_TOO_LOW": Cause.TLS_VERSION,
    "TLSV1_ALERT_PROTOCOL_VERSION": Cause.TLS_VERSION,
    "NO_SHARED_CIPHER": Cause.TLS_CIPHER,
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": Cause.CLIENT_CERTIFICATE_MISSING,
    "CERTIFICATE_VERIFY_FAILED": Cause.CLIENT_CERTIFICATE_INVALID,
    "TLSV1_ALERT_UNKNOWN_CA": Cause.CERTIFICATE_REFUSED,
    "SSLV3_ALERT_BAD_CERTIFICATE": Cause.CERTIFICATE_REFUSED,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": Cause.CERTIFICATE_REFUSED,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": Cause.CERTIFICATE_REFUSED,
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": Cause.CERTIFICATE_REFUSED,
}


class ListenerTls:
    """The SSLContext of one listener. ``load`` replaces it for new handshakes; open connections keep theirs.

    ``hosts``: host names that clients may use (SNI), in lower case; None: any. It may grow. Raises OSError as ``load``
    does, and InvalidValue for rules that name no user.
    """

    def __init__(self, settings: ClientTls, hosts: Mapping[str, int | None] | None) -> None:
        self._settings = settings
        self._rules = parse_rules(settings.principal_mapping_rules)
        self._hosts = hosts
        ca = (settings.client_ca,) if settings.client_ca is not None else ()
        self.files: tuple[Path, ...] = (settings.certificate, settings.key, *ca)
        self.context, self.expires_at_s = self._made()
        """The context of new handshakes, and the first expiry in its certificate chain in Unix time."""

    async def load(self) -> None:
        """Reload the files. Raises OSError with the file and the reason; the old context then stays in force."""
        self.context, self.expires_at_s = await asyncio.to_thread(self._made)

    def user_of(self, tls: ssl.SSLObject) -> str:
        """Return the user that the client's certificate names. Raises ProtocolError if it names none."""
        der = tls.getpeercert(binary_form=True)
        if der is None:
            return ANONYMOUS
        try:
            return confirmed(counted_as(self._rules.user(rfc2253(der))))
        except ValueError as error:
            raise ProtocolError(Cause.PRINCIPAL_MAPPING, f"no user for the client's certificate: {error}") from error

    def _made(self) -> tuple[ssl.SSLContext, float]:
        from cryptography import x509  # 9 MB, loaded for TLS only

        context = client_context(self._settings)
        if self._hosts is not None:
            context.sni_callback = self._named
        chain = x509.load_pem_x509_certificates(read_file(self._settings.certificate))
        return context, min(certificate.not_valid_after_utc.timestamp() for certificate in chain)

    def _named(self, tls: ssl.SSLObject | ssl.SSLSocket, name: str | None, context: ssl.SSLContext) -> int | None:
        del tls, context
        HANDSHAKE.get().server_name = name
        if name is None or (self._hosts is not None and name.lower() in self._hosts):
            return None
        return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME


def client_context(settings: ClientTls) -> ssl.SSLContext:
    """Return a context to serve clients with. Raises OSError that names the setting and the file.

    Sessions are resumed by tickets whose keys belong to this context, so no ticket outlives a change of the
    authorities. A resumed session keeps the verified certificate, and thus its user (RFC 5077). With TLS 1.2 it keeps
    its host name too: RFC 6066 §3 forbids clients to resume under another.
    """
    context = _Context(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = _ServerSide
    context.minimum_version = _VERSIONS[settings.minimum_version]
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 1  # of OpenSSL's two; a Kafka client opens one connection to an address at a time
    if settings.ciphers is not None:
        try:
            context.set_ciphers(settings.ciphers)
        except ssl.SSLError as error:
            raise OSError(f"tls.ciphers {settings.ciphers!r}: OpenSSL knows none of them") from error
    load_own_certificate(context, settings.certificate, settings.key)
    if settings.client_ca is not None:
        try:
            require_regular(settings.client_ca)
            context.load_verify_locations(settings.client_ca)
        except OSError as error:
            said = "holds no certificate in PEM form" if isinstance(error, ssl.SSLError) else error.strerror
            raise OSError(f"tls.client_ca {settings.client_ca}: {said}") from error
        # As Java does, trust every certificate of the truststore as an anchor; by default OpenSSL trusts only roots.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_mode = _VERIFY[settings.client_authentication]
    return context


def ignore_undecodable_names() -> None:
    """Silence errors about non-ASCII host names (SNI), which any stranger could print as tracebacks on stderr.

    ssl passes an undecodable name to ``sys.unraisablehook`` and fails the handshake, which is counted and logged.
    """
    otherwise = sys.unraisablehook

    def hook(unraisable: "sys.UnraisableHookArgs") -> None:
        if not (isinstance(unraisable.exc_value, UnicodeDecodeError) and isinstance(unraisable.object, bytes)):
            otherwise(unraisable)

    sys.unraisablehook = hook


class _ServerSide(ssl.SSLObject):
    """Sends the alert of a failed handshake: asyncio and uvloop close without it."""

    outgoing: ssl.MemoryBIO

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            with suppress(OSError):  # the client is gone, or reads nothing
                HANDSHAKE.get().client.send(self.outgoing.read())
            raise


class _Context(ssl.SSLContext):
    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        tls = cast("_ServerSide", super().wrap_bio(incoming, outgoing, server_side, server_hostname, session))
        tls.outgoing = outgoing
        return tls


def why_failed(error: OSError | ValueError, handshake: Handshake) -> ProtocolError:
    if not isinstance(error, ssl.SSLError):
        if isinstance(error, OSError):
            return ProtocolError(Cause.TLS_HANDSHAKE, "the client closed the connection during the TLS handshake")
        return ProtocolError(Cause.CLIENT_CERTIFICATE_INVALID, f"the client's certificate cannot be read: {error}")
    reason = error.reason or str(error)
    if reason == "CALLBACK_FAILED":
        name = handshake.server_name
        said = "that is not ASCII" if name is None else repr(name)
        return ProtocolError(
            Cause.UNKNOWN_SNI, f"the client wants to reach a host {said}, which is neither advertise nor a broker's"
        )
    cause = _CAUSES.get(reason, Cause.TLS_HANDSHAKE)
    match cause:
        case Cause.CERTIFICATE_REFUSED:
            return ProtocolError(cause, f"the client does not accept the listener's certificate: {reason}")
        case Cause.CLIENT_CERTIFICATE_INVALID:
            said = getattr(error, "verify_message", reason)
            return ProtocolError(cause, f"the client's certificate cannot be verified: {said}")
        case Cause.CLIENT_CERTIFICATE_MISSING:
            return ProtocolError(cause, "the client shows no certificate, which is required here")
    return ProtocolError(cause, f"TLS handshake failed: {reason}")
