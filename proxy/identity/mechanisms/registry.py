"""The SASL mechanisms that the observer can follow.

| mechanism | claim | success |
|---|---|---|
| PLAIN | the user, unless the authorization id is another | any answer without an error |
| SCRAM-SHA-256, SCRAM-SHA-512 | the user, or the id of a delegation token | the second answer, if it begins with `v=` |
| OAUTHBEARER | the token's claim `sub`, or as configured; else a credential: a digest of it | an empty answer |
| AWS_MSK_IAM | a credential: the id of the access key | any answer without an error |
| GSSAPI | with a keytab the principal, else none | the third answer, or an empty one |

For any other mechanism neither is known: the broker is asked whether the login has succeeded.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from proxy.identity.mechanisms import aws_msk_iam, plain, scram
from proxy.identity.mechanisms.mechanism import Claim, Mechanism
from proxy.identity.mechanisms.oauthbearer import Names, OAuthBearer

NAMING: Final = frozenset(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"))
"""Mechanisms that show the user, or a credential that tells clients apart. Each raw token of theirs is answered,
and the last one is recognized; GSSAPI's last token gets no answer."""
_GSSAPI_ANSWERS: Final = 3
"""The AP-REP, the offer of security layers, and an empty final token (RFC 4752)."""


@dataclass(frozen=True)
class Mechanisms:
    """The mechanisms of a listener. ``gssapi`` reads the principal in the first token of GSSAPI with the keytab."""

    names: Names = field(default_factory=Names)
    gssapi: Callable[[bytes], Claim | None] | None = None

    def begin(self, name: str) -> Mechanism | None:
        """Return a new exchange of the mechanism ``name``, as in SaslHandshake; None if it cannot be followed."""
        match name:
            case "PLAIN":
                return Mechanism(plain.claim_in)
            case "SCRAM-SHA-256" | "SCRAM-SHA-512":
                return Mechanism(scram.claim_in, scram.is_success)
            case "OAUTHBEARER":
                return OAuthBearer(self.names)
            case "AWS_MSK_IAM":
                return Mechanism(aws_msk_iam.claim_in)
            case "GSSAPI":
                return Mechanism(self.gssapi or (lambda _: None), _is_end_of_gssapi)
            case _:
                return None


def _is_end_of_gssapi(token: bytes, number: int) -> bool:
    return not token or number == _GSSAPI_ANSWERS
