"""The mute of one connection: how long its client is not read, and which throttle time it is told."""

from proxy.identity.sasl import SaslObserver
from proxy.session.calls import SessionCalls
from proxy.session.client_identity import ClientIdentity
from proxy.session.throttling import Alarm, Throttling
from proxy.usage.accounts import Account
from quotas.kinds import QuotaKind
from quotas.throttle import INT32_MAX


class Mute:
    """Applies throttles to one connection. It has at most one place in the delay queues: of the throttle that ends
    last.
    """

    __slots__ = ("_end_ms", "_handle", "_identity", "_kind", "_sasl", "_session", "_throttling")

    def __init__(
        self, session: SessionCalls, throttling: Throttling, sasl: SaslObserver, identity: ClientIdentity
    ) -> None:
        self._session = session
        self._throttling = throttling
        self._sasl = sasl
        self._identity = identity
        self._kind = QuotaKind.PRODUCER_BYTE_RATE
        self._end_ms = 0
        self._handle: Alarm | None = None

    @property
    def is_on(self) -> bool:
        return self._handle is not None

    def throttle(self, account: Account, kind: QuotaKind, throttle_ms: int, now_ms: int) -> int:
        """Let the counter owe the throttle that the engine computed, and mute for it; return the time to tell.

        That is when its next request could go: after those that wait already. A ceiling and a deadline for a
        re-authentication shorten the wait of this connection, not the counter's debt. A connection with group or
        transaction traffic is not muted: its next Produce or Fetch waits by itself.
        """
        throttling = self._throttling
        bound = account.bound(kind)
        if account.caps(kind):
            bound = throttling.strictest(account, kind, now_ms)
        else:
            bound.live.owe(throttle_ms, now_ms)
        counter = bound.live
        most_ms = throttling.window_ms if kind.row.capped else INT32_MAX
        throttle_ms = min(throttling.allow(max(throttle_ms, counter.owed_ms(now_ms)), counter), most_ms)
        throttling.given(account, kind, bound, throttle_ms, now_ms)
        room_ms = max(self._sasl.deadline_ms - now_ms, 0)
        waiting_ms = counter.waiting_ms(self._identity.path(account))
        told_ms = min(throttling.allow(throttle_ms + waiting_ms, counter), room_ms, most_ms)
        if told_ms > 0 and not self._identity.coordinates:
            self._lengthen(kind, now_ms + min(throttle_ms, room_ms))
        return told_ms

    def _lengthen(self, kind: QuotaKind, end_ms: int) -> None:
        """Mute until ``end_ms``, unless it lasts longer already."""
        if self._handle is not None and end_ms <= self._end_ms:
            return
        self.forget()
        self._kind, self._end_ms = kind, end_ms
        self._handle = self._throttling.mute(kind, self._session, end_ms)
        self._session.muted()

    def ended(self) -> None:
        """Note that the time is over."""
        self._handle = None

    def forget(self) -> None:
        """Leave the queue before the time is over: the connection is gone, or muted for longer."""
        if self._handle is not None:
            self._throttling.unmute(self._kind, self._handle)
            self._handle = None
