"""Describes failed connections to brokers for operators: one line, with the fix."""

import os
import socket
import ssl
from dataclasses import dataclass
from typing import Final

# OpenSSL's X509_V_ERR_* codes.
_EXPIRED: Final = 10
_NOT_YET_VALID: Final = 9
_UNKNOWN_AUTHORITY: Final = frozenset((2, 18, 19, 20, 21))
_OTHER_NAME: Final = frozenset((62, 64))

# OpenSSL's reasons for a failed handshake.
_NOT_TLS: Final = frozenset(("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"))
_NO_COMMON_TLS: Final = frozenset(
    (
        "UNSUPPORTED_PROTOCOL",
        "NO_PROTOCOLS_AVAILABLE",
        "TLSV1_ALERT_PROTOCOL_VERSION",
        "SSLV3_ALERT_HANDSHAKE_FAILURE",
        "NO_SHARED_CIPHER",
    )
)
_CERTIFICATE_REFUSED: Final = ("CERTIFICATE_REQUIRED", "BAD_CERTIFICATE", "UNKNOWN_CA", "CERTIFICATE_UNKNOWN")


@dataclass(frozen=True, slots=True)
class Fixes:
    """Fixes for TLS failures, in the terms of the file that has the settings."""

    authority: str = "name that authority in tls.ca"
    host: str = "set tls.verify_hostname to false"
    certificate: str = "set tls.certificate and tls.key"
    plain: str = "connect to its TLS listener, or without tls"


OF_SLUICE: Final = Fixes()


def describe(error: BaseException, fixes: Fixes = OF_SLUICE) -> str:
    """Return a description of ``error``; timeouts and ends of stream have no text of their own."""
    match error:
        case TimeoutError():
            return "no answer in time"
        case ssl.SSLCertVerificationError():
            return _of_certificate(error, fixes)
        case ssl.SSLError():
            return _of_tls(error, fixes)
        case EOFError():
            return (
                "closed the connection without a response: does the listener require TLS, a client certificate or SASL?"
            )
        case socket.gaierror():
            return f"{error}: correct the name, or the name resolution"
        case ConnectionRefusedError():  # asyncio's text names functions
            return f"[Errno {error.errno}] {os.strerror(error.errno or 0)}"
    return str(error) or type(error).__name__


def _of_certificate(error: ssl.SSLCertVerificationError, fixes: Fixes) -> str:
    if error.verify_code == _EXPIRED:
        return "its certificate has expired: renew it"
    if error.verify_code == _NOT_YET_VALID:
        return "its certificate is not valid yet: compare the clocks"
    if error.verify_code in _UNKNOWN_AUTHORITY:
        return f"its certificate is not signed by an authority trusted here: {fixes.authority}"
    if error.verify_code in _OTHER_NAME:
        return f"{error.verify_message.rstrip('.')}: add the name to it, or {fixes.host}"
    return f"its certificate cannot be verified: {error.verify_message or error.reason}"


def _of_tls(error: ssl.SSLError, fixes: Fixes) -> str:
    reason = error.reason or str(error)
    if reason in _NOT_TLS:
        return f"does not speak TLS on this port: {fixes.plain}"
    if reason in _NO_COMMON_TLS:
        return f"no common TLS version and cipher ({reason}): TLS 1.2 is the oldest supported"
    if reason.endswith("UNRECOGNIZED_NAME"):
        return f"serves no host of that name ({reason}): connect by one of its names"
    if reason.endswith(_CERTIFICATE_REFUSED):
        return f"refuses the certificate it was shown, or demands one ({reason}): {fixes.certificate}"
    return f"TLS failed: {reason}"
