"""Names from the wire, and as labels: both limited in length."""

from hashlib import sha256
from typing import Final

from protocol import headers
from protocol.table import ApiSpec
from quotas.names import counted_as

MAX_LABEL_BYTES: Final = 128
_DIGEST_CHARS: Final = 12


def client_id(spec: ApiSpec, data: bytes, start: int) -> str:
    """Return the client-id of the request at ``start``, whose header is complete, as it is counted; null is "".

    Client-ids are read from the wire only here.
    """
    return counted_as(headers.client_id(spec, data, start))


def label(text: str, max_bytes: int = MAX_LABEL_BYTES) -> str:
    """Return ``text`` as a label value: valid UTF-8, and at most ``max_bytes`` long.

    A lone surrogate becomes its escape; a cut end is replaced by a digest, so that long names with a common beginning
    stay distinct.
    """
    if text.isascii():
        if len(text) <= max_bytes:
            return text
        encoded = text.encode("ascii")
    else:
        encoded = text.encode("utf-8", "backslashreplace")
        if len(encoded) <= max_bytes:
            return encoded.decode("utf-8")
    beginning = encoded[: max_bytes - _DIGEST_CHARS - 1].decode("utf-8", "ignore")
    return f"{beginning}~{sha256(encoded).hexdigest()[:_DIGEST_CHARS]}"
