"""A SASL mechanism, for the observer, and what most of them have in common."""

from dataclasses import dataclass
from typing import Protocol

from quotas.names import counted_as


@dataclass(frozen=True, slots=True)
class Claim:
    """The name that a client claims; it has no effect until the broker has accepted it."""

    name: str
    """Shortened as for counting: a client may claim a name of half a megabyte."""
    is_token: bool = False
    """``name`` is the id of a delegation token (KIP-48); the user is its owner, who is not on the wire."""
    is_credential: bool = False
    """``name`` tells clients apart without naming the user (``proxy.identity.credentials``)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", counted_as(self.name))


class Mechanism(Protocol):
    """One exchange of a mechanism between a client and its broker, observed.

    It keeps only what the claim needs, never a secret, and quotes nothing from the tokens.
    """

    claim: Claim | None
    """The client's claim so far; None if none could be read."""

    def from_client(self, token: bytes) -> None:
        """Read a client's token. Never raises: the broker judges it, and an unreadable token claims nothing."""
        ...

    def from_broker(self, token: bytes) -> bool:
        """Read the token of an answer without an error; return True if it completes the exchange successfully."""
        ...


class FirstToken:
    """A ``Mechanism`` whose claim is in the client's first token: the broker takes it from no other."""

    __slots__ = ("_answers", "_has_begun", "claim")

    def __init__(self) -> None:
        self.claim: Claim | None = None
        self._has_begun = False
        self._answers = 0

    def from_client(self, token: bytes) -> None:
        if not self._has_begun:
            self._has_begun = True
            self.claim = self._claim_in(token)

    def from_broker(self, token: bytes) -> bool:
        self._answers += 1
        return self._is_success(token, self._answers)

    def _claim_in(self, token: bytes) -> Claim | None:  # noqa: ARG002  for those that show none
        return None

    def _is_success(self, token: bytes, number: int) -> bool:  # noqa: ARG002  for those where any answer is one
        """Whether this answer, the first of which has number 1, completes the exchange."""
        return True
