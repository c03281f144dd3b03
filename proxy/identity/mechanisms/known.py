"""The mechanisms of SASL that can be followed, by their name.

| mechanism | the claim is | the exchange has succeeded with |
|---|---|---|
| PLAIN | the user, if the authorization id is not another | any answer without an error |
| SCRAM-SHA-256, SCRAM-SHA-512 | the user, or the id of a delegation token | the second answer, if it begins with `v=` |
| OAUTHBEARER | the token's claim `sub`, or as configured; else a credential: a digest of it | an empty answer |
| AWS_MSK_IAM | a credential: the id of the access key | any answer without an error |
| GSSAPI | with a keytab the principal, else nothing | the third answer, or an empty one |

Of any other neither is known: whether one has succeeded, the broker is asked.
"""

from collections.abc import Callable
from typing import Final

from proxy.identity.mechanisms.aws_msk_iam import AwsMskIam
from proxy.identity.mechanisms.mechanism import Claim, Mechanism
from proxy.identity.mechanisms.oauthbearer import Names, OAuthBearer
from proxy.identity.mechanisms.plain import Plain
from proxy.identity.mechanisms.scram import Scram

NAMING: Final = frozenset(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"))
"""Those that show who a client is, or by which credential it can be told from others."""
_GSSAPI_ANSWERS: Final = 3
"""The AP-REP, the offer of security layers, and the end, which is empty (RFC 4752)."""


class UnreadGssapi:
    """A ``Mechanism`` that knows when GSSAPI is over, and not whose it was: that is in the ticket."""

    __slots__ = ("_answers", "claim")

    def __init__(self) -> None:
        self.claim: Claim | None = None
        self._answers = 0

    def from_client(self, token: bytes) -> None:
        """Take a token and read nothing."""

    def from_broker(self, token: bytes) -> bool:
        """Success is an empty token, or the third."""
        self._answers += 1
        return not token or self._answers == _GSSAPI_ANSWERS


class Mechanisms:
    """What a listener can follow. ``gssapi`` makes one exchange that reads the principal with the keytab."""

    def __init__(self, names: Names = Names(), gssapi: Callable[[], Mechanism] | None = None) -> None:  # noqa: B008  frozen
        self._names = names
        self._gssapi = gssapi

    def begin(self, name: str) -> Mechanism | None:
        """Return one exchange of the mechanism ``name``, as SaslHandshake spells it; None: it cannot be followed."""
        match name:
            case "PLAIN":
                return Plain()
            case "SCRAM-SHA-256" | "SCRAM-SHA-512":
                return Scram()
            case "OAUTHBEARER":
                return OAuthBearer(self._names)
            case "AWS_MSK_IAM":
                return AwsMskIam()
            case "GSSAPI":
                return UnreadGssapi() if self._gssapi is None else self._gssapi()
            case _:
                return None
