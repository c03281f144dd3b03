"""What OpenSSL's reasons are told as. The usual ones are made by real handshakes, in test_cluster.py."""

import errno
import socket
import ssl

import pytest

from proxy.brokers.failures import Fixes, describe


def tls_error(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}] of the library (_ssl.c:1)")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TimeoutError(), "no answer in time"),
        (EOFError(), "does the listener require TLS, a client certificate or SASL?"),
        (ConnectionResetError(), "ConnectionResetError"),
        (ConnectionError("as it is"), "as it is"),
        (
            ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('10.0.0.1', 9092)"),
            "[Errno 111] Connection refused",
        ),
        (socket.gaierror(-2, "Name or service not known"), "not known: correct the name, or the name resolution"),
        (tls_error("WRONG_VERSION_NUMBER"), "does not speak TLS on this port: connect to its TLS listener"),
        (tls_error("TLSV1_ALERT_PROTOCOL_VERSION"), "no common TLS version and cipher"),
        (
            tls_error("TLSV13_ALERT_CERTIFICATE_REQUIRED"),
            "or demands one",
        ),
        (tls_error("TLSV1_ALERT_UNKNOWN_CA"), "refuses the certificate it was shown"),
        (tls_error("TLSV1_UNRECOGNIZED_NAME"), "serves no host of that name"),
        (tls_error("SOMETHING_ELSE"), "TLS failed: SOMETHING_ELSE"),
    ],
)
def test_connection_errors_are_described_with_cause_and_fix(error: BaseException, said: str) -> None:
    assert said in describe(error)
    assert "_ssl.c" not in describe(error)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (10, "has expired: renew it"),
        (9, "not valid yet: compare the clocks"),
        (20, "not trusted"),
        (62, "Hostname mismatch, certificate is not valid for 'x': add the name to it, or do not look"),
        (23, "its certificate cannot be verified: certificate revoked"),
    ],
)
def test_certificates_with_the_fix_of_whoever_asks(code: int, said: str) -> None:
    error = ssl.SSLCertVerificationError()
    error.verify_code = code
    error.verify_message = (
        "Hostname mismatch, certificate is not valid for 'x'." if code == 62 else "certificate revoked"
    )
    assert said in describe(error, Fixes(authority="not trusted", host="do not look"))
