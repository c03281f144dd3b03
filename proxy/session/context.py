"""A session as its parts see it: the fields that they share, and the few calls that they make back.

``Session`` imports its parts, and these import this module alone, so that their imports have no circle. The context is
a class and no ``Protocol``: mypyc looks up what that has by name, each time.
"""

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from protocol.errors import ProtocolError
from proxy.identity.sasl import SaslObserver
from proxy.session.client_identity import ClientIdentity
from proxy.session.exchange import InFlight
from proxy.session.flow import Flow
from proxy.session.worker_state import WorkerState
from proxy.usage.accounts import Account
from quotas.engine import Bound
from quotas.kinds import QuotaKind

if TYPE_CHECKING:
    from proxy.session.admission import Ticket


class Wire(Protocol):
    """One end of a session, as asyncio's transports have it."""

    def write(self, data: bytes) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class ClientWire(Wire, Protocol):
    def bound_receive_buffer(self) -> None: ...

    def has_finished(self) -> bool:
        """Whether the client has closed its side, as the kernel sees it: also while it is not read."""
        ...


def dropped(data: bytes) -> None:
    """Take bytes for a connection that is gone."""


class Waiting(IntEnum):
    """The thing that waits in a counter's queue."""

    REQUEST = 1
    FETCH = 2
    """A Fetch that is there to its end: it can be answered without data."""
    BODY = 3
    """The rest of a request that is larger than what its limit has left."""
    ANSWER = 4
    MUTATION = 5
    """A request of the kinds that may not be refused."""
    COORDINATION = 6
    """A request that other members of a group or of a transaction wait for: it waits for a window at most."""
    SHARE_FETCH = 7
    """A ShareFetch, or a Fetch whose end is still to come: the broker alone can answer it."""


class Admitted(NamedTuple):
    """The wait is over: it asks its counters again, and may pass these now, whatever they owe."""

    passed: tuple[Bound, ...] = ()


class AnswerEmpty(NamedTuple):
    """The Fetch is answered without data, which tells this throttle time."""

    throttle_ms: int


Ended = Admitted | AnswerEmpty
"""How a wait in a counter's queue has ended."""


class SessionContext:
    """Implemented by ``Session``, which also sets the fields."""

    __deletable__ = ("client_flow", "sasl", "ticket")  # for mypyc
    __slots__ = ("client", "client_flow", "closed", "identity", "in_flight", "peer", "sasl", "ticket", "worker")

    identity: ClientIdentity
    sasl: SaslObserver
    ticket: "Ticket"
    client_flow: Flow
    """Why the client is not read."""

    def __init__(self, worker: WorkerState, client: ClientWire, peer: str) -> None:
        self.worker = worker
        self.client = client
        self.peer = peer
        self.closed = False
        in_flight: InFlight = []
        self.in_flight = in_flight

    @property
    def idle(self) -> bool:
        """Everything in flight has been answered, to the last byte."""
        raise NotImplementedError

    def throttle(self, account: Account, kind: QuotaKind, throttle_ms: int, now_ms: int) -> int:
        """Let the counters owe a throttle that the engine computed, mute for it, and return the time to tell."""
        raise NotImplementedError

    def resume(self, waiting: Waiting, ended: Ended, now_ms: int) -> None:
        """Go on with the request, its body or the answer that waited in a counter's queue, as its wait has ended."""
        raise NotImplementedError

    def next_turn(self, reason: int) -> None:
        """Go on after a reason that gave others their turn."""
        raise NotImplementedError

    def answered(self, now_ms: int) -> None:
        """See whether what waited for the answers in flight may go on: a mute, a drain, a half-close."""
        raise NotImplementedError

    def answer_locally(self, answer: bytes | ProtocolError | None) -> None:
        """Send the answer of the proxy's own that was still to come, and go on behind it; a second one is dropped.

        ProtocolError: the request was broken, the connection is closed; None: there is no answer, it is cut off.
        """
        raise NotImplementedError

    def ask_broker(self, question: bytes) -> None:
        raise NotImplementedError

    def reject(self, side: str, error: ProtocolError) -> None:
        """Close because ``side`` broke the protocol: every client knows what to do with a closed connection."""
        raise NotImplementedError

    def close(self) -> None:
        """Close both ends; what was already forwarded is still sent."""
        raise NotImplementedError

    def abort(self) -> None:
        raise NotImplementedError
