"""The throttle time of one connection: how long it is not read."""

from proxy.session.throttling import Alarm, Muted, Throttling
from quotas.kinds import QuotaKind


class Mute:
    """At most one place in the delay queues: that of the throttle time which ends last."""

    __slots__ = ("_end_ms", "_handle", "_kind", "_throttling")

    def __init__(self, throttling: Throttling) -> None:
        self._throttling = throttling
        self._kind = QuotaKind.PRODUCER_BYTE_RATE
        self._end_ms = 0
        self._handle: Alarm | None = None

    @property
    def is_on(self) -> bool:
        return self._handle is not None

    def lengthen(self, muted: Muted, kind: QuotaKind, end_ms: int) -> bool:
        """Mute until ``end_ms`` on behalf of a quota; False if that is so already."""
        if self._handle is not None and end_ms <= self._end_ms:
            return False
        self.forget()
        self._kind, self._end_ms = kind, end_ms
        self._handle = self._throttling.mute(kind, muted, end_ms)
        return True

    def ended(self) -> None:
        """Take note that the time is over."""
        self._handle = None

    def forget(self) -> None:
        """Leave the queue before the time is over: the connection is gone, or muted for longer."""
        if self._handle is not None:
            self._throttling.unmute(self._kind, self._handle)
            self._handle = None
