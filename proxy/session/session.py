"""One client connection and the one broker connection behind it.

A session joins its two streams: it decides when they stop, go on and end. It has no await and no socket, and the
transports have no ``if`` about Kafka.
"""

from collections.abc import Callable
from typing import Final

from protocol.errors import Cause, ProtocolError
from protocol.splicer import Told
from proxy.identity.sasl import SaslObserver, SaslRules
from proxy.runtime.faults import contained, report
from proxy.session.admission import Ended, Ticket, Waiting
from proxy.session.client_identity import ClientIdentity
from proxy.session.exchange import MAX_IN_FLIGHT, InFlight, dropped
from proxy.session.flow import (
    ANSWERING,
    BACKPRESSURE,
    BROKER,
    CLIENT,
    CONNECTING,
    CROWDED,
    DRAINING,
    FINISHED,
    HELD_BACK,
    HELD_UP,
    IN_LINE,
    LOCAL,
    MIDWAY,
    OF_ANSWERS,
    OVERSIZED,
    RAW_TOKENS,
    THROTTLED,
    UNTAKEN,
    ClientWire,
    Wire,
)
from proxy.session.policies.login import Vouch
from proxy.session.policies.requests import Policies
from proxy.session.request_stream import RequestStream
from proxy.session.response_stream import ResponseStream
from proxy.session.responses import Responses
from proxy.session.throttling import Alarm
from proxy.session.worker_state import WorkerState
from proxy.usage.accounts import Account, Accounts
from quotas.engine import Bound
from quotas.kinds import QuotaKind
from quotas.shares import FRESH_MS
from quotas.throttle import INT32_MAX

_RESUMED: Final = {Waiting.BODY: MIDWAY, Waiting.ANSWER: OVERSIZED}
"""The reason that ends when a wait does, where that is not IN_LINE."""


class Session:
    """The life of one client's connection: connecting, forwarding, finishing."""

    __deletable__ = ("answers", "policies", "requests", "sasl", "ticket")  # for mypyc
    __slots__ = (
        "_is_over",
        "_mute",
        "_on_closed",
        "abandoned",
        "answers",
        "broker",
        "client",
        "closed",
        "connected_ms",
        "identity",
        "in_flight",
        "peer",
        "policies",
        "requests",
        "sasl",
        "ticket",
        "worker",
    )

    def __init__(
        self,
        worker: WorkerState,
        client: ClientWire,
        told: Told,
        on_closed: Callable[["Session"], None],
        *,
        sasl: SaslRules,
        accounts: Accounts,
        peer: str,
        user: str,
        authenticated: bool,
        exempt: bool = False,
        names_one_controller: Callable[[], bool] = lambda: False,
    ) -> None:
        """``told``: the address of a broker for clients, listening already."""
        self.worker = worker
        self.client = client
        self.peer = peer
        self.closed = False
        self.abandoned = False
        """Its client had closed by the time that a request's wait for a quota ended: from then on only those go that
        expect no answer (a Produce with acks=0).
        """
        in_flight: InFlight = []
        self.in_flight = in_flight
        self._on_closed = on_closed
        self.broker: Wire | None = None
        self._is_over = False
        self.identity = ClientIdentity(accounts, self.in_flight, peer, user, exempt)
        self.sasl = SaslObserver(sasl, peer, self)
        self._mute: tuple[Alarm, Bound] | None = None
        """The end of the throttle, of several the one that ends last, and the counter that it is for."""
        self.connected_ms = worker.clock()
        self.ticket = Ticket(self)
        policies = self.policies = Policies(self)
        self.requests = RequestStream(self, policies)
        self.answers = ResponseStream(self, policies, Responses(self, policies, told, names_one_controller))
        if not authenticated:
            policies.restrict()
        self.requests.stop(CONNECTING)

    # ------------------------------------------------------------------------------------------------ connections

    def connected(
        self, broker: Wire, broker_id: int, write: Callable[[bytes], None] | None = None, vouch: Vouch | None = None
    ) -> None:
        """Forward to ``broker`` from now on, what was kept meanwhile first. Node id -1: not known yet.

        ``write`` takes the requests for the broker, in place of its own; it raises ProtocolError for one that must not
        pass. ``vouch``: nothing but a login passes until the broker has said who it is.
        """
        if vouch is not None:
            self.policies.login.vouch = vouch
            self.policies.served = self.worker.served_before_authentication
        self.broker = broker
        self.requests.write = write or broker.write
        self.broker_known(broker_id)
        self.go_on(CONNECTING, self.worker.clock())

    def broker_known(self, broker_id: int) -> None:
        self.identity.set_broker(broker_id)
        self.answers.latencies = self.worker.latencies.of(broker_id)

    def blocked(self, side: str, is_blocked: bool) -> None:
        """Take the back-pressure of one side: who reads no answers gets none made, and is not read either; while the
        broker reads no requests, none are read from the client.
        """
        reason = UNTAKEN if side == CLIENT else BACKPRESSURE
        if self.closed or is_blocked is bool(self.requests.reasons & reason):
            return
        if not is_blocked:
            self.go_on(reason, self.worker.clock())
            return
        if side == CLIENT:
            self.answers.stop(UNTAKEN)
        self.requests.stop(reason)

    def client_finished(self) -> None:
        """Take the client's half-close: what it asked for is still answered, then the pair is closed."""
        if self.closed or self.finished:
            return
        if self.requests.splitter.remaining:  # the request under way will never be complete
            self.close()
            return
        self.requests.stop(FINISHED)
        now_ms = self.worker.clock()
        self.ticket.client_finished(now_ms)
        self.policies.fetches.client_finished(now_ms)
        self.answered(now_ms)

    def drain(self) -> None:
        """Take no further request; close when what is in flight has been answered."""
        if not self.closed:
            self.requests.stop(DRAINING)
            self.answered(self.worker.clock())

    def broker_lost(self) -> None:
        if not self.closed:
            self.sasl.refused()
            self.close()

    def reject(self, side: str, error: ProtocolError) -> None:
        if not self.closed:
            self.worker.on_rejected(side, error, self.peer, self.identity.account.key.client_id)
            self.close()

    def close(self) -> None:
        """Close both ends; what was already forwarded is still sent."""
        if self.closed:
            return
        self.closed = True
        self.requests.write = self.answers.write = dropped
        policies, broker = self.policies, self.broker
        queues = self._unmute, self.ticket.leave, policies.fetches.leave
        parts = self.requests.leave, policies.topics.leave, self.identity.leave, self.sasl.leave, self.client.close
        # The last resort of everything that fails elsewhere: each step is taken, whatever became of the one before.
        for leave in (*queues, *parts, broker.close) if broker is not None else (*queues, *parts):
            try:
                leave()
            except Exception as error:  # noqa: BLE001  as `contained` does, without a call for each
                report("Session.close", error)
        self._on_closed(self)

    def end_lost(self) -> None:
        """Let go of the parts of a session that is closed: nothing is left but they and it, which know each other."""
        if self.closed and not self._is_over:
            self._is_over = True
            del self.requests, self.answers, self.policies, self.sasl, self.ticket

    def abort(self) -> None:
        self.close()
        self.client.abort()
        if self.broker is not None:
            self.broker.abort()

    # ------------------------------------------------------------------------------------------- authentication

    def identified(self, user: str) -> None:
        """Charge what follows to ``user`` (called by the observer of SASL)."""
        self.identity.identify(user)
        if not self.sasl.authenticated:
            return
        if self.policies.login.vouch is None:
            self.policies.lift_restriction()
        elif not self.in_flight:
            self.policies.login.ask(self.worker.clock())

    def read_tokens(self, raw: bool) -> None:
        """Read SASL tokens without headers from now on, or requests again (called likewise)."""
        if raw:
            self.requests.begin(RAW_TOKENS)
            self.answers.begin(RAW_TOKENS)
            return
        self.requests.end(RAW_TOKENS)
        self.answers.end(RAW_TOKENS)
        self.in_flight.clear()  # the last token of GSSAPI gets no answer of its own

    # ------------------------------------------------------------------------------------------------------ going on

    def throttle(self, account: Account, kind: QuotaKind, throttle_ms: int, now_ms: int) -> int:
        """Let the counters owe a throttle that the engine computed, mute for it, and return the time to tell.

        That is when its next request could go: after those that wait already. A ceiling and a deadline for a
        re-authentication shorten the wait of this connection, not the counter's debt. A connection with group or
        transaction traffic is not muted: its next Produce or Fetch waits by itself.
        """
        throttling = self.worker.throttling
        counter, longest_ms = account.bounds(kind)[0], -1  # the one that delays it for longest
        for each in account.bounds(kind):
            if over_ms := each.check(now_ms):
                each.owe(over_ms, now_ms)
                each.hold_back(self.identity.path(account), now_ms + FRESH_MS * 2)
                delay_ms = throttling.allow(max(over_ms, each.owed_ms(now_ms)), each)
                if delay_ms > longest_ms:
                    counter, longest_ms = each, delay_ms
        most_ms = throttling.window_ms if kind.row.capped else INT32_MAX
        throttle_ms = min(throttling.allow(max(throttle_ms, counter.owed_ms(now_ms)), counter), most_ms)
        throttling.counts.given(account, counter, throttle_ms, now_ms)
        room_ms = max(self.sasl.deadline_ms - now_ms, 0)
        waiting_ms = counter.waiting_ms(self.identity.path(account))
        told_ms = min(throttling.allow(throttle_ms + waiting_ms, counter), room_ms, most_ms)
        if told_ms > 0 and not self.identity.coordinates:
            end_ms = now_ms + min(throttle_ms, room_ms)
            if self._mute is None or end_ms > self._mute[0].end_ms:
                self._unmute()
                self._mute = throttling.mute(kind, self._throttle_over, self.abort, end_ms), counter
                self.client.bound_receive_buffer()
                self.requests.stop(THROTTLED | ANSWERING)
        return told_ms

    def _unmute(self) -> None:
        if self._mute is not None:
            self._mute[0].cancel()
            self._mute = None

    def _throttle_over(self, now_ms: int) -> None:
        """Send the answer that was held back, and read the client again."""
        self._unmute()
        self.go_on(THROTTLED | (self.answers.reasons & HELD_BACK), now_ms)

    def resume(self, waiting: Waiting, ended: Ended, now_ms: int) -> None:
        """Go on with the request, its body or the answer that waited in a counter's queue, as its wait has ended."""
        # Kafka's clients never close one side alone: such a client reads no answer, and is not charged for it.
        has_gone = bool(self.requests.reasons & FINISHED) or self.client.has_finished()
        if has_gone and waiting is Waiting.ANSWER and not self.requests.splitter.held_bytes:
            self.worker.throttling.dropped += 1
            self.close()
            return
        if has_gone and waiting not in _RESUMED:
            self.abandoned = True
        self.go_on(_RESUMED.get(waiting, IN_LINE), now_ms, ended)

    def answer_locally(self, answer: bytes | ProtocolError | None) -> None:
        """Send the answer of the proxy's own that was still to come, and go on behind it; a second one is dropped.

        ProtocolError: the request was broken, the connection is closed; None: there is no answer, it is cut off.
        """
        if self.closed or not self.requests.reasons & LOCAL:
            return
        if answer is None:
            self.abort()
            return
        if isinstance(answer, ProtocolError):
            self.reject(CLIENT, answer)
            return
        self.identity.account.meter.bytes_out += len(answer)
        self.client.write(answer)
        self.go_on(LOCAL, self.worker.clock())

    def answered(self, now_ms: int) -> None:
        """See whether what waited for the answers in flight may go on: a mute, a drain, a half-close."""
        requests = self.requests
        if self.closed or self.unread:
            return
        ended = 0
        if requests.reasons & CROWDED and len(self.in_flight) <= MAX_IN_FLIGHT // 2:
            ended |= CROWDED
        if requests.reasons & ANSWERING and not requests.reasons & THROTTLED and self.idle:
            ended |= ANSWERING
        if ended:
            self.go_on(ended, now_ms)
        elif not self.idle:
            return
        elif requests.reasons & DRAINING:
            if not requests.splitter.remaining and not requests.reasons & LOCAL:
                self.close()
        elif requests.reasons & FINISHED and not requests.reasons & HELD_UP:
            self.close()

    def next_turn(self, reason: int) -> None:
        """Go on after a reason that gave others their turn."""
        contained("a session's turn", self.go_on, reason, self.worker.clock(), otherwise=self.abort)

    def go_on(self, ended: int, now_ms: int, wait: Ended | None = None) -> None:
        """Go on after reasons of either side have ended; that may be all that a drain or a half-close waited for.

        ``wait``: how the wait of the first request, or the first answer, that is held has ended.
        """
        if self.closed:
            return
        side = BROKER
        try:
            self.requests.end(ended & ~OF_ANSWERS)
            if of_answers := ended & (OF_ANSWERS | UNTAKEN):
                self.answers.go_on(of_answers, now_ms, wait)
            if not self.closed:
                side = CLIENT
                self.requests.go_on(now_ms, wait)
        except ProtocolError as error:
            self.reject(side, error)
        self.answered(now_ms)

    @property
    def idle(self) -> bool:
        return not self.in_flight and self.answers.is_at_border

    @property
    def held(self) -> bool:
        """It is the proxy that makes the client wait: such a session is not idle."""
        return bool(self.requests.reasons & (THROTTLED | IN_LINE | MIDWAY | LOCAL))

    def holder(self, now_ms: int) -> tuple[Bound, int] | None:
        """Return the counter that it waits for, or is muted by, and until when at least; None: it is not held."""
        bound = self.ticket.bound
        if bound is not None:
            return bound, now_ms + bound.owed_ms(now_ms)
        return None if self._mute is None else (self._mute[1], self._mute[0].end_ms)

    @property
    def unread(self) -> bool:
        """The client does not take what was written for it."""
        return bool(self.requests.reasons & UNTAKEN)

    @property
    def finished(self) -> bool:
        """The client has closed its side in good order; what it sent is still worked on."""
        return bool(self.requests.reasons & FINISHED)

    @property
    def authenticated(self) -> bool:
        return not self.policies.restricted

    def overdue(self, now_ms: int) -> None:
        """Close the connection of a client that has not authenticated itself in time.

        Where the broker may have accepted it, that is asked: it then closes the connection, or serves it.
        """
        if self.authenticated:
            return
        if self.sasl.may_be_over and self.idle and not self.requests.splitter.remaining:
            self.policies.login.ask(now_ms)
        else:
            self.reject(CLIENT, ProtocolError(Cause.AUTHENTICATION_TIMEOUT, "not authenticated in time"))
