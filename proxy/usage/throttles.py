"""How long one client was throttled: mutes and waits of several connections overlap, and count once."""


class Throttles:
    """What was given to one client under one quota kind."""

    __slots__ = ("_muted_ms", "_seen_ms", "muted_until_ms", "throttle_ms", "throttled", "waiting")

    def __init__(self) -> None:
        self.throttled = 0
        self.throttle_ms = 0
        self.waiting = 0
        """Requests that wait in line now."""
        self.muted_until_ms = 0
        """When the last of its mutes is over."""
        self._muted_ms = 0
        """Of the union of its mutes and waits, what has been counted: all until ``_seen_ms``."""
        self._seen_ms = 0

    def note(self, throttle_ms: int, now_ms: int, at_ms: int | None = None) -> None:
        """Count a throttle that begins now, or began at ``at_ms``. Those of several connections may overlap."""
        self._see(now_ms)
        self.throttled += 1
        self.throttle_ms += throttle_ms
        begin_ms = now_ms if at_ms is None else at_ms
        end_ms = begin_ms + throttle_ms
        if begin_ms < now_ms:
            self._muted_ms += max(min(end_ms, now_ms) - max(begin_ms, self.muted_until_ms), 0)
        self.muted_until_ms = max(self.muted_until_ms, end_ms)

    def wait(self, change: int, now_ms: int, waited_ms: int = 0) -> None:
        """Take note that one more request waits, or one fewer that has waited so long."""
        self._see(now_ms)
        self.waiting += change
        if waited_ms:
            self.throttled += 1
            self.throttle_ms += waited_ms

    def take(self, now_ms: int) -> tuple[int, int, int]:
        """Return (throttled, throttle_ms, muted_ms) until now and count from now on."""
        self._see(now_ms)
        taken = (self.throttled, self.throttle_ms, self._muted_ms)
        self.throttled = self.throttle_ms = self._muted_ms = 0
        return taken

    def over(self, now_ms: int) -> bool:
        """Whether nothing is left to be counted later."""
        return not self.waiting and self.muted_until_ms <= now_ms

    def _see(self, now_ms: int) -> None:
        if now_ms > self._seen_ms:
            until_ms = now_ms if self.waiting else min(self.muted_until_ms, now_ms)
            self._muted_ms += max(until_ms - self._seen_ms, 0)
            self._seen_ms = now_ms
