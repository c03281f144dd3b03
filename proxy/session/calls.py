"""The calls that the parts of a session make back into it.

``Session`` imports its parts, and these import this module alone, so that their imports have no circle. It is a class
and no ``Protocol``: mypyc looks up what that has by name, each time.
"""

from enum import IntEnum

from protocol.errors import ProtocolError
from proxy.session.wires import ClientWire


class Waiting(IntEnum):
    """The thing that waits in a counter's queue."""

    REQUEST = 1
    FETCH = 2
    """A request that can be answered with nothing."""
    BODY = 3
    """The rest of a request that is larger than what its limit has left."""
    ANSWER = 4
    MUTATION = 5
    """A request of the kinds that may not be refused."""
    COORDINATION = 6
    """A request that other members of a group or of a transaction wait for: it waits for a window at most."""


class SessionCalls:
    """Implemented by ``Session``."""

    __slots__ = ("_client", "closed", "peer")

    def __init__(self, client: ClientWire, peer: str) -> None:
        self._client = client
        self.peer = peer
        self.closed = False

    @property
    def client(self) -> ClientWire:
        """The client's end."""
        return self._client

    @property
    def idle(self) -> bool:
        """Everything in flight has been answered, to the last byte."""
        raise NotImplementedError

    @property
    def answerable(self) -> bool:
        """The request that waits is a whole Fetch."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------------------- going on

    def resume(self, waiting: Waiting, now_ms: int) -> None:
        """Go on with the request, its body or the answer that waited in a counter's queue."""
        raise NotImplementedError

    def answered(self, now_ms: int) -> None:
        """See whether what waited for the answers in flight may go on: a mute, a drain, a half-close."""
        raise NotImplementedError

    def muted(self) -> None:
        """Stop reading the client for a throttle."""
        raise NotImplementedError

    def throttle_over(self, now_ms: int) -> None:
        """Send the answer that was held back, and read the client again (called by the delay queue)."""
        raise NotImplementedError

    def next_requests(self) -> None:
        """Go on with requests that came too many at once, now that others have had their turn."""
        raise NotImplementedError

    def next_slice(self) -> None:
        """Go on with a long answer, now that others have had their turn."""
        raise NotImplementedError

    def ask_broker(self, question: bytes) -> None:
        """Send a question of the proxy's own to the broker."""
        raise NotImplementedError

    # -------------------------------------------------------------------------------------------------- own answers

    def answer_locally(self, answer: bytes | ProtocolError | None) -> None:
        """Send the answer of the proxy's own that was still to come, and go on behind it; a second one is dropped.

        ProtocolError: the request was broken, the connection is closed; None: there is no answer, it is cut off.
        """
        raise NotImplementedError

    def answer_empty(self, throttle_ms: int, now_ms: int) -> None:
        """Answer the Fetch that waits as a broker answers one over its quota: without data."""
        raise NotImplementedError

    # ---------------------------------------------------------------------------------------------------------- ends

    def reject(self, side: str, error: ProtocolError) -> None:
        """Close because ``side`` broke the protocol: every client knows what to do with a closed connection."""
        raise NotImplementedError

    def close(self) -> None:
        """Close both ends; what was already forwarded is still sent."""
        raise NotImplementedError

    def abort(self) -> None:
        """Cut both ends off, with what was still to be sent."""
        raise NotImplementedError
