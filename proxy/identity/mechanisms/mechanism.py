"""What the observer of SASL asks of a mechanism."""

from dataclasses import dataclass
from typing import Protocol

from quotas.names import counted_as


@dataclass(frozen=True, slots=True)
class Claim:
    """Whom a client says it is; it counts when the broker has agreed, and until then for nothing."""

    name: str
    """As it is counted: a name of half a megabyte may be claimed, and is not kept."""
    is_token: bool = False
    """``name`` is the id of a delegation token (KIP-48): the user is its owner, who is not on the wire."""
    is_credential: bool = False
    """``name`` tells the client from others and names no user (``proxy.identity.credentials``)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", counted_as(self.name))


class Mechanism(Protocol):
    """One exchange of one mechanism, seen from between the two who hold it.

    It keeps of the tokens what it needs for the claim, never a secret, and quotes none of them.
    """

    claim: Claim | None
    """What the client has claimed so far; None: nothing that could be read."""

    def from_client(self, token: bytes) -> None:
        """Take a token of the client. Never raises: to judge it is the broker's; what is unreadable claims nothing."""
        ...

    def from_broker(self, token: bytes) -> bool:
        """Take the token of an answer without an error; True if with it the exchange has succeeded."""
        ...
