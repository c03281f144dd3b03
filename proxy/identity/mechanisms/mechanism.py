"""A SASL mechanism, for the observer."""

from collections.abc import Callable
from dataclasses import dataclass

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


class Mechanism:
    """One exchange of a mechanism between a client and its broker, observed.

    It keeps only the claim, never a secret, and quotes nothing from the tokens. ``claim_in`` returns the claim in the
    client's first token; the broker takes it from no other. ``is_success`` says of a token of the broker's answers, the
    first of which has number 1, whether it completes the exchange.
    """

    __slots__ = ("_answers", "_claim_in", "_has_begun", "_is_success", "claim")

    def __init__(
        self,
        claim_in: Callable[[bytes], Claim | None],
        is_success: Callable[[bytes, int], bool] = lambda *_: True,
    ) -> None:
        self._claim_in = claim_in
        self._is_success = is_success
        self._has_begun = False
        self._answers = 0
        self.claim: Claim | None = None
        """The client's claim so far; None if none could be read."""

    def from_client(self, token: bytes) -> None:
        """Read a client's token. Never raises: the broker judges it, and an unreadable token claims nothing."""
        if not self._has_begun:
            self._has_begun = True
            self.claim = self._claim_in(token)

    def from_broker(self, token: bytes) -> bool:
        """Read the token of an answer without an error; return True if it completes the exchange successfully."""
        self._answers += 1
        return self._is_success(token, self._answers)
