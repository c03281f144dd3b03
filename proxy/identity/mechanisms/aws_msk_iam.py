"""SASL AWS_MSK_IAM (aws-msk-iam-auth): one message, a signed request in JSON. It does not contain the broker's
principal.

It contains the id of the access key that signed it, which the signature covers, and which AWS assigns to one user or to
one session of a role.
"""

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from proxy.identity.mechanisms.mechanism import Claim

_CREDENTIAL: Final = re.compile(r"(?P<access_key>[A-Z0-9]{16,128})/[0-9]{8}/[a-z0-9-]+/kafka-cluster/aws4_request")
_NAME: Final = "x-amz-credential"
_MOST_PARAMETERS: Final = 32


def claim_in(message: bytes) -> Claim | None:
    """Return the access key id in the client's message; None if the message is malformed or ambiguous."""
    try:
        pairs = json.loads(message, object_pairs_hook=list)
    except (ValueError, RecursionError):
        return None
    access_key = _access_key(pairs) if isinstance(pairs, list) else None
    return None if access_key is None else Claim(access_key, is_credential=True)


def access_key_of_url(token: str) -> str | None:
    """Return the access key id in a signed URL in base64, the bearer token of aws-msk-iam-sasl-signer, or None."""
    try:
        url = urlsplit(urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode("ascii"))
        pairs = parse_qsl(url.query, strict_parsing=True, max_num_fields=_MOST_PARAMETERS)
    except ValueError:
        return None
    return _access_key(pairs) if url.scheme == "https" else None


def _access_key(pairs: Sequence[object]) -> str | None:
    found = [pair[1] for pair in pairs if isinstance(pair, tuple) and str(pair[0]).lower() == _NAME]
    match = _CREDENTIAL.fullmatch(found[0]) if len(found) == 1 and isinstance(found[0], str) else None
    return match["access_key"] if match is not None else None
