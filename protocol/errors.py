"""The one way in which bytes can be refused."""

from enum import StrEnum


class Cause(StrEnum):
    """Why bytes were refused; the values are the label ``cause`` of ``sluice_frames_rejected_total``."""

    FRAME_TOO_LARGE = "frame_too_large"
    FRAME_TOO_SHORT = "frame_too_short"
    HEADER_TOO_LARGE = "header_too_large"
    BAD_HEADER = "bad_header"
    BAD_BODY = "bad_body"
    UNKNOWN_API = "unknown_api"
    UNSUPPORTED_VERSION = "unsupported_version"
    CORRELATION_MISMATCH = "correlation_mismatch"
    UNEXPECTED_RESPONSE = "unexpected_response"


class ProtocolError(Exception):
    """Bytes that are not Kafka's protocol as this table knows it; the connection has to be closed.

    The message says what was found and at which offset; it never quotes a body.
    """

    def __init__(self, cause: Cause, message: str) -> None:
        super().__init__(message)
        self.cause = cause
