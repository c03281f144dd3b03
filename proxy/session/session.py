"""One client connection and the one broker connection behind it.

A session joins its two sides (``pair``): it passes back-pressure across, and decides when the pair is over. It
has no await and no socket, and the transports have no ``if`` about Kafka.
"""

from collections.abc import Callable

from protocol.errors import Cause, ProtocolError
from proxy.identity.sasl import SaslRules
from proxy.session.changes import Advertise
from proxy.session.pair import Pair
from proxy.session.rules import Rules
from proxy.session.states import (
    BACKPRESSURE,
    CONNECTING,
    DRAINING,
    FINISHED,
    IN_LINE,
    LOCAL,
    MIDWAY,
    THROTTLED,
    UNTAKEN,
    Event,
)
from proxy.session.wires import CLIENT, ClientWire, Wire
from proxy.usage.accounts import Accounts


class Session(Pair):
    """The life of one connection pair: connecting, forwarding, finishing; as its ends and its listener know it."""

    __slots__ = ("_on_closed",)

    def __init__(
        self,
        rules: Rules,
        client: ClientWire,
        advertise: Advertise,
        on_closed: Callable[["Session"], None],
        *,
        sasl: SaslRules,
        accounts: Accounts,
        peer: str,
        user: str,
        authenticated: bool,
        exempt: bool = False,
    ) -> None:
        self._on_closed = on_closed
        super().__init__(
            rules,
            client,
            advertise,
            sasl=sasl,
            accounts=accounts,
            peer=peer,
            user=user,
            authenticated=authenticated,
            exempt=exempt,
        )

    # ------------------------------------------------------------------------------------------------ connections

    def connected(self, broker: Wire, broker_id: int) -> None:
        """Forward to ``broker`` from now on, what was kept meanwhile first. Node id -1: not known yet."""
        self._broker = broker
        self.requests.connected(broker, broker_id)
        self.answers.connected(broker, broker_id)
        now_ms = self.rules.clock()
        self._go(Event.CONNECTED, CONNECTING, now_ms)
        self.answered(now_ms)  # the client may have finished, or a drain begun, in the meantime

    def broker_known(self, broker_id: int) -> None:
        """Charge for the broker of that node id from now on."""
        self.gates.set_broker(broker_id)
        self.answers.set_broker(broker_id)

    def client_blocked(self, blocked: bool) -> None:
        """Take the client's back-pressure: while it reads no answers, none are made, and it is not read either."""
        if self.closed or blocked is self._client_blocked:
            return
        self._client_blocked = blocked
        if blocked:
            self.answers.stop(Event.CLIENT_FULL, UNTAKEN)
            self.requests.stop(Event.CLIENT_FULL, UNTAKEN)
        else:
            now_ms = self.rules.clock()
            self.answers.go(Event.CLIENT_READS, UNTAKEN)
            self._go(Event.CLIENT_READS, UNTAKEN, now_ms)
            self.answered(now_ms)

    def broker_blocked(self, blocked: bool) -> None:
        """Take the broker's back-pressure: while it reads no requests, none are read from the client."""
        if self.closed or blocked is bool(self.requests.reasons & BACKPRESSURE):
            return
        if blocked:
            self.requests.stop(Event.BROKER_FULL, BACKPRESSURE)
        else:
            self._go(Event.BROKER_READS, BACKPRESSURE, self.rules.clock())

    def client_finished(self) -> None:
        """Take the client's half-close: what it asked for is still answered, then the pair is closed."""
        if self.closed or self.finished:
            return
        if self.requests.splitter.remaining:  # the request under way will never be complete
            self.close()
            return
        self.requests.stop(Event.HALF_CLOSED, FINISHED)
        now_ms = self.rules.clock()
        self._waits.client_finished(now_ms)
        self.answered(now_ms)

    def drain(self) -> None:
        """Take no further request; close when what is in flight has been answered."""
        self.requests.stop(Event.DRAIN, DRAINING)
        self.answered(self.rules.clock())

    def close(self) -> None:
        """Close both ends; what was already forwarded is still sent."""
        if not self.closed:
            super().close()
            self._on_closed(self)

    def broker_lost(self) -> None:
        """Take the broker's close."""
        if not self.closed:
            self.sasl.refused()
            self.close()

    # ------------------------------------------------------------------------------------------- how it stands

    @property
    def held(self) -> bool:
        """It is the proxy that makes the client wait: such a session is not idle."""
        return bool(self.requests.reasons & (THROTTLED | IN_LINE | MIDWAY | LOCAL))

    @property
    def unread(self) -> bool:
        """The client does not take what was written for it."""
        return self._client_blocked

    @property
    def finished(self) -> bool:
        """The client has closed its side in good order; what it sent is still worked on."""
        return bool(self.requests.reasons & FINISHED)

    @property
    def user(self) -> str:
        """Whom requests are charged to from now on."""
        return self.gates.sender.user

    @property
    def authenticated(self) -> bool:
        """The client has proved who it is, as far as its listener demands that."""
        return not self.gates.restricted

    def overdue(self) -> None:
        """Close the connection of a client that has not authenticated itself in time.

        Where the broker may have accepted it, that is asked: it then closes the connection, or serves it.
        """
        if self.authenticated:
            return
        if self.sasl.may_be_over and self.idle and not self.requests.splitter.remaining:
            self.gates.login.ask(self.rules.clock())
        else:
            self.reject(CLIENT, ProtocolError(Cause.AUTHENTICATION_TIMEOUT, "not authenticated in time"))
