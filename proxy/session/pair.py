"""The two sides of a session, and what stops them and moves them on: throttles, turns, answers that are out.

It is what the parts of a session know of the whole, and has no await and no socket.
"""

from protocol.errors import ProtocolError
from protocol.frames import REQUEST_HEAD, FrameSplitter
from proxy.identity.credentials import network_of
from proxy.identity.sasl import SaslObserver, SaslRules
from proxy.runtime.faults import contained
from proxy.session.answer_side import AnswerSide
from proxy.session.changes import Advertise
from proxy.session.gates.fetch import FetchGate
from proxy.session.gates.mutations import MutationGate
from proxy.session.gates.produce import ProduceGate
from proxy.session.gates.requests import RequestGates
from proxy.session.in_flight import MAX_IN_FLIGHT, InFlight
from proxy.session.mute import Mute
from proxy.session.request_side import RequestSide
from proxy.session.rules import Rules
from proxy.session.sender import Sender
from proxy.session.states import (
    ANSWERING,
    CONNECTING,
    CROWDED,
    DRAINING,
    FINISHED,
    HELD_UP,
    IN_LINE,
    LOCAL,
    MIDWAY,
    THROTTLED,
    TURN,
    Event,
    end,
)
from proxy.session.tokens import read_tokens
from proxy.session.turn import What
from proxy.session.waits import Waits
from proxy.session.wires import BROKER, CLIENT, ClientWire, Wire, dropped
from proxy.usage.accounts import Account, Accounts
from quotas.fair_queue import Path
from quotas.kinds import QuotaKind
from quotas.throttle import INT32_MAX


class Pair:
    """A client's requests and their answers, and why either is not read.

    Each part of a session holds one reference to it, instead of a bound method for everything that it may want: a proxy
    has thousands of sessions, most of them idle. No ``Protocol``: mypyc looks up what that has by name, each time.
    """

    __deletable__ = ("_waits", "answers", "gates", "requests", "sasl")  # for mypyc
    __slots__ = (
        "_broker",
        "_client",
        "_client_blocked",
        "_in_flight",
        "_is_over",
        "_mute",
        "_waits",
        "answers",
        "closed",
        "gates",
        "peer",
        "requests",
        "rules",
        "sasl",
    )

    def __init__(
        self,
        rules: Rules,
        client: ClientWire,
        advertise: Advertise,
        *,
        sasl: SaslRules,
        accounts: Accounts,
        peer: str,
        user: str,
        authenticated: bool,
        exempt: bool = False,
    ) -> None:
        self.rules = rules
        self._client = client
        self._broker: Wire | None = None
        self.peer = peer
        self.closed = False
        self._is_over = False
        self._client_blocked = False
        self._mute = Mute(rules.throttling)
        self._waits = Waits(self)
        self._in_flight: InFlight = []
        self.sasl = SaslObserver(sasl, peer, self)
        sender = Sender(accounts, self._in_flight, user, exempt)
        produces = ProduceGate(self, sender, self._in_flight, self._waits)
        fetches = FetchGate(self, sender, self._in_flight, self._waits)
        splitter = FrameSplitter(REQUEST_HEAD, rules.request_limit)
        mutations = MutationGate(self, sender, self._in_flight, self._waits)
        self.gates = RequestGates(self, self._in_flight, splitter, sender, produces, fetches, mutations, self._waits)
        self.requests = RequestSide(self, self._in_flight, splitter, self.gates)
        self.answers = AnswerSide(self, self._in_flight, self.gates, self.requests, advertise)
        if not authenticated:
            self.gates.restrict()
        self.requests.stop(Event.MADE, CONNECTING)

    @property
    def client(self) -> ClientWire:
        """The client's end."""
        return self._client

    @property
    def broker(self) -> Wire | None:
        """The broker's end; None before there is one."""
        return self._broker

    @property
    def idle(self) -> bool:
        """Everything in flight has been answered, to the last byte."""
        return self.answers.idle

    @property
    def answerable(self) -> bool:
        """What waits for its turn is a Fetch, and there to its end."""
        return self.requests.answerable

    def reject(self, side: str, error: ProtocolError) -> None:
        """Close because ``side`` broke the protocol: every client knows what to do with a closed connection."""
        if not self.closed:
            self.rules.on_rejected(side, error, self.peer)
            self.close()

    def close(self) -> None:
        """Close both ends; what was already forwarded is still sent."""
        if self.closed:
            return
        self.closed = True
        # The last resort of everything that fails elsewhere: each step is taken, whatever became of the one before.
        contained("Session.close", self._mute.forget)
        contained("Session.close", self._waits.leave, self.rules.clock())
        contained("Session.close", self.requests.leave)
        contained("Session.close", self.sasl.leave)
        self.requests.write = self.answers.write = dropped
        contained("Session.close", self._client.close)
        if self._broker is not None:
            contained("Session.close", self._broker.close)

    def end_lost(self) -> None:
        """Let go of the parts of a session that is closed: nothing is left but they and it, which know each other."""
        if self.closed and not self._is_over:
            self._is_over = True
            del self.requests, self.answers, self.gates, self.sasl, self._waits

    def abort(self) -> None:
        """Cut both ends off, with what was still to be sent."""
        self.close()
        self._client.abort()
        if self._broker is not None:
            self._broker.abort()

    # ------------------------------------------------------------------------------------------- authentication

    def identified(self, user: str) -> None:
        """Charge what follows to ``user`` (called by the observer of SASL)."""
        self.gates.identify(user)
        if self.sasl.authenticated:
            self.gates.lift_restriction()

    def read_tokens(self, raw: bool) -> None:
        """Read SASL tokens without headers from now on, or requests again (called likewise)."""
        read_tokens(self.requests, self.answers, raw)

    # --------------------------------------------------------------------------------------------------- throttles

    def throttle(self, account: Account, kind: QuotaKind, throttle_ms: int, now_ms: int) -> int:
        """Let the counter owe what the engine computed, and mute for it; returns what the client is to be told.

        That is when its next request could go: after those that wait already. A ceiling and a deadline for a
        re-authentication shorten what this connection waits, not what the counter owes. A connection with group or
        transaction traffic is not muted: its next Produce or Fetch waits by itself.
        """
        throttling = self.rules.throttling
        bound = account.bound(kind)
        if account.caps(kind):
            bound = throttling.strictest(account, kind, now_ms)
        else:
            bound.live.owe(throttle_ms, now_ms)
        counter = bound.live
        most_ms = throttling.window_ms if kind.row.capped else INT32_MAX
        throttle_ms = min(throttling.allow(max(throttle_ms, counter.owed_ms(now_ms)), counter), most_ms)
        throttling.given(account, kind, bound, throttle_ms, now_ms)
        room_ms = max(self.sasl.deadline_ms - now_ms, 0)
        told_ms = min(
            throttling.allow(throttle_ms + counter.waiting_ms(self.client_path(account)), counter), room_ms, most_ms
        )
        if told_ms > 0 and not self.gates.coordinates:
            end_ms = now_ms + min(throttle_ms, room_ms)
            if self._mute.lengthen(self, kind, end_ms):
                self._client.bound_receive_buffer()
                self.requests.stop(Event.THROTTLE, THROTTLED | ANSWERING)
        return told_ms

    def client_path(self, account: Account) -> Path:
        """Say whose turn it is in a line: of users, of one user's addresses, and of one address's client-ids.

        Last comes what is made up most easily: many client-ids from one address have one address's turns, and so have
        all IPv6 addresses of one customer.
        """
        return account.key.user, network_of(self.peer), account.key.client_id

    def throttle_over(self, now_ms: int) -> None:
        """Send what was held back and read again (called by the delay queue)."""
        self._mute.ended()
        self.requests.reasons = end(Event.THROTTLE_OVER, self.requests.reasons, THROTTLED)
        try:
            self.answers.release(now_ms)
        except ProtocolError as error:
            self.reject(BROKER, error)
        if not self._mute.is_on:  # what was held back may have muted anew
            self._go_on(now_ms)
        self.answered(now_ms)

    def turn(self, what: int, now_ms: int) -> None:
        """Go on with what waited for its turn under its quota."""
        if what == What.ANSWER:
            if self._has_gone and not self.requests.splitter.held_bytes:
                self.rules.throttling.dropped += 1
                self.close()
                return
            try:
                self.answers.turn(now_ms)
            except ProtocolError as error:
                self.reject(BROKER, error)
        elif what == What.BODY:
            self._go(Event.ADMITTED, MIDWAY, now_ms)
        else:
            self._drop_unless_read()
            self._go(Event.ADMITTED, IN_LINE, now_ms)
        self.answered(now_ms)

    @property
    def _has_gone(self) -> bool:
        """The client has closed: Kafka's clients never close one side alone."""
        return bool(self.requests.reasons & FINISHED) or self._client.has_finished()

    def _drop_unless_read(self) -> None:
        """Drop what has waited if its client has closed meanwhile: nobody would read the answer, and nobody is charged.

        What expects no answer still goes, as at a broker.
        """
        if not self._has_gone:
            return
        try:
            dropped = self.requests.drop_answered()
        except ProtocolError as error:
            self.reject(CLIENT, error)
            return
        self.rules.throttling.dropped += 1 if dropped is None else dropped
        if dropped is None:
            self.close()

    def answer_locally(self, answer: bytes | ProtocolError | None) -> None:
        """Send the answer of the proxy's own that was still to come, and go on behind it; a second one is nobody's."""
        if self.closed or not self.requests.reasons & LOCAL:
            return
        if answer is None:
            self.abort()
            return
        if isinstance(answer, ProtocolError):
            self.reject(CLIENT, answer)
            return
        self.gates.write_local(answer)
        now_ms = self.rules.clock()
        self._go(Event.LOCALLY_ANSWERED, LOCAL, now_ms)
        self.answered(now_ms)

    def answer_empty(self, throttle_ms: int, now_ms: int) -> None:
        """Answer the Fetch that waits as a broker answers one over its quota: with nothing."""
        try:
            answer = self.requests.answer_empty(throttle_ms)
        except ProtocolError as error:  # it ends inside what has to be read of it
            self.reject(CLIENT, error)
            return
        self._client.write(answer)
        self._go(Event.ADMITTED, IN_LINE, now_ms)
        self.answered(now_ms)

    def answered(self, now_ms: int) -> None:
        """See whether what waited for the answers in flight may go on: a mute, a drain, a half-close."""
        requests = self.requests
        if self.closed or self._client_blocked:
            return
        if requests.reasons & CROWDED and len(self._in_flight) <= MAX_IN_FLIGHT // 2:
            self._go(Event.ROOM, CROWDED, now_ms)
        if requests.reasons & ANSWERING and not requests.reasons & THROTTLED and self.answers.idle:
            self._go(Event.ANSWERED, ANSWERING, now_ms)
        if not self.answers.idle or self.closed:
            return
        if requests.reasons & DRAINING:
            if not requests.splitter.remaining and not requests.reasons & LOCAL:
                self.close()
        elif requests.reasons & FINISHED and not requests.reasons & HELD_UP:
            self.close()

    def next_requests(self) -> None:
        """Go on with requests that came too many at once, now that others have had their turn."""
        contained("a session's turn", self._take_turn, otherwise=self.abort)

    def _take_turn(self) -> None:
        now_ms = self.rules.clock()
        self._go(Event.NEXT, TURN, now_ms)
        self.answered(now_ms)

    def next_slice(self) -> None:
        """Go on with a long answer, likewise."""
        contained("a session's turn", self._walk_on, otherwise=self.abort)

    def _walk_on(self) -> None:
        if self.closed:
            return
        try:
            self.answers.walk_on(self.rules.clock())
        except ProtocolError as error:
            self.reject(BROKER, error)

    def _go(self, event: Event, reasons: int, now_ms: int) -> None:
        if not self.closed:
            self.requests.reasons = end(event, self.requests.reasons, reasons)
            self._go_on(now_ms)

    def _go_on(self, now_ms: int) -> None:
        if self.closed:
            return
        try:
            self.requests.go_on(now_ms)
        except ProtocolError as error:
            self.reject(CLIENT, error)
