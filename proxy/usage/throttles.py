"""How long one client was throttled: overlapping mutes and waits of its connections count once."""


class Throttles:
    """Throttles of one client under one quota kind."""

    __slots__ = ("_muted_ms", "_seen_ms", "muted_until_ms", "throttle_ms", "throttled", "waiting")

    def __init__(self) -> None:
        self.throttled = 0
        self.throttle_ms = 0
        self.waiting = 0
        """Requests that wait now."""
        self.muted_until_ms = 0
        """End of the last mute."""
        self._muted_ms = 0
        """Length of the union of mutes and waits, counted until ``_seen_ms``."""
        self._seen_ms = 0

    def note(self, throttle_ms: int, now_ms: int, at_ms: int | None = None) -> None:
        """Count a throttle that begins now, or began at ``at_ms``; it may overlap with others."""
        self._see(now_ms)
        self.throttled += 1
        self.throttle_ms += throttle_ms
        begin_ms = now_ms if at_ms is None else at_ms
        end_ms = begin_ms + throttle_ms
        if begin_ms < now_ms:
            self._muted_ms += max(min(end_ms, now_ms) - max(begin_ms, self.muted_until_ms), 0)
        self.muted_until_ms = max(self.muted_until_ms, end_ms)

    def wait(self, change: int, now_ms: int, waited_ms: int = 0) -> None:
        """Count one more request that waits, or one fewer, which has waited ``waited_ms``."""
        self._see(now_ms)
        self.waiting += change
        if waited_ms:
            self.throttled += 1
            self.throttle_ms += waited_ms

    def take(self, now_ms: int) -> tuple[int, int, int]:
        """Return (throttled, throttle_ms, muted_ms) until now, and reset the counters."""
        self._see(now_ms)
        taken = (self.throttled, self.throttle_ms, self._muted_ms)
        self.throttled = self.throttle_ms = self._muted_ms = 0
        return taken

    def muted_ms(self, now_ms: int) -> int:
        """Return the time muted until now, since the last ``take``."""
        self._see(now_ms)
        return self._muted_ms

    def over(self, now_ms: int) -> bool:
        """Whether no mute or wait is left to count later."""
        return not self.waiting and self.muted_until_ms <= now_ms

    def _see(self, now_ms: int) -> None:
        if now_ms > self._seen_ms:
            until_ms = now_ms if self.waiting else min(self.muted_until_ms, now_ms)
            self._muted_ms += max(until_ms - self._seen_ms, 0)
            self._seen_ms = now_ms
