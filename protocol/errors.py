"""The error for bytes that are refused."""

from enum import StrEnum


class Cause(StrEnum):
    """The cause of a refusal; the values are the label ``cause`` of ``sluice_frames_rejected_total``."""

    FRAME_TOO_LARGE = "frame_too_large"
    FRAME_TOO_SHORT = "frame_too_short"
    HEADER_TOO_LARGE = "header_too_large"
    BAD_HEADER = "bad_header"
    BAD_BODY = "bad_body"
    UNKNOWN_API = "unknown_api"
    UNSUPPORTED_VERSION = "unsupported_version"
    PROTECTED_TOPIC = "protected_topic"
    PROTECTED_GROUP = "protected_group"
    NOT_OWNER = "not_owner"
    NO_SNI = "no_sni"
    OTHER_CLUSTER = "other_cluster"
    OTHER_NODE = "other_node"
    CORRELATION_MISMATCH = "correlation_mismatch"
    UNEXPECTED_RESPONSE = "unexpected_response"
    NOT_KAFKA = "not_kafka"
    TLS_ON_PLAINTEXT = "tls_on_plaintext"
    NOT_TLS = "not_tls"
    TLS_VERSION = "tls_version"
    TLS_CIPHER = "tls_cipher"
    TLS_HANDSHAKE = "tls_handshake"
    CERTIFICATE_REFUSED = "certificate_refused"
    CLIENT_CERTIFICATE_MISSING = "client_certificate_missing"
    CLIENT_CERTIFICATE_INVALID = "client_certificate_invalid"
    PRINCIPAL_MAPPING = "principal_mapping"
    UNKNOWN_SNI = "unknown_sni"
    PROXY_PROTOCOL_MISSING = "proxy_protocol_missing"
    PROXY_PROTOCOL_INVALID = "proxy_protocol_invalid"
    PROXY_PROTOCOL_NOT_ALLOWED = "proxy_protocol_not_allowed"
    AUTHENTICATION_TIMEOUT = "authentication_timeout"
    NOT_AUTHENTICATED = "not_authenticated"
    HELD_TOO_LONG = "held_too_long"
    KEPT_TOO_MUCH = "kept_too_much"
    MEMORY = "memory"
    CONNECTIONS_PER_IP = "connections_per_ip"
    CONNECTION_RATE_PER_IP = "connection_rate_per_ip"
    CONNECTIONS_BEFORE_REQUEST = "connections_before_request"


class ProtocolError(Exception):
    """Bytes that are not Kafka's protocol, or not the expected preamble; the connection must be closed.

    The message says what was found and at which offset; it never quotes a body or a secret.
    """

    def __init__(self, cause: Cause, message: str) -> None:
        super().__init__(message)
        self.cause = cause

    def __reduce__(self) -> tuple[type["ProtocolError"], tuple[Cause, str]]:
        return type(self), (self.cause, str(self))  # by default, an exception is made again of its message alone
