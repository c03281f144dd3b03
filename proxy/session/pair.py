"""What the parts of a session know of the whole."""

from typing import Protocol

from protocol.errors import ProtocolError
from proxy.identity.sasl import SaslObserver
from proxy.session.rules import Rules
from proxy.session.wires import ClientWire
from proxy.usage.accounts import Account
from quotas.kinds import QuotaKind


class Pair(Protocol):
    """One client connection and the one broker connection behind it.

    Each part holds one reference to it, instead of a bound method for everything that it may want: a proxy has
    thousands of sessions, most of them idle.
    """

    sasl: SaslObserver
    peer: str

    @property
    def rules(self) -> Rules: ...

    @property
    def client(self) -> ClientWire: ...

    @property
    def idle(self) -> bool:
        """Everything in flight has been answered, to the last byte."""
        ...

    @property
    def answerable(self) -> bool:
        """What waits for its turn is a Fetch, and there to its end."""
        ...

    def throttle(self, account: Account, kind: QuotaKind, throttle_ms: int, now_ms: int) -> int:
        """Apply the throttle time that was computed; returns what the client is to be told."""
        ...

    def turn(self, what: int, now_ms: int) -> None:
        """Go on with what has waited for its turn (``waits.What``)."""
        ...

    def answer_locally(self, answer: bytes | ProtocolError | None) -> None:
        """Take the answer of the proxy's own that was still to come (``local_answers.Done``)."""
        ...

    def answer_empty(self, throttle_ms: int, now_ms: int) -> None:
        """Answer the Fetch that waits with nothing."""
        ...

    def answered(self, now_ms: int) -> None:
        """See whether what waited for the answers in flight may go on."""
        ...

    def next_requests(self) -> None:
        """Go on with the requests that were left for later."""
        ...

    def next_slice(self) -> None:
        """Go on with the long answer that was left for later."""
        ...

    def reject(self, side: str, error: ProtocolError) -> None:
        """Close because ``side`` broke the protocol."""
        ...

    def abort(self) -> None:
        """Cut both ends off."""
        ...
