"""What the fetches of one counter that are under way may still bring.

A Fetch is charged by its answer, and cannot be taken back. So what it may bring is set aside when it goes: a share of
what the quota has left, which its max_bytes is lowered to. Nothing has to be thrown away, as at a broker.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from quotas.throttle import INT32_MAX

if TYPE_CHECKING:
    from quotas.bound import Bound

SET_ASIDE_MS: Final = 1000
"""How long others wait for what was set aside: longer than a consumer's Fetch waits for data (fetch.max.wait.ms)."""

_SLICE_S: Final = 0.25
"""With nothing left and no debt, all sharers together get so many seconds' worth: so far beyond it do they go."""
_FIRST_LEAST_BYTES: Final = 1 << 20
"""What a Fetch may bring however small its max_bytes is: one batch, and a broker takes batches of 1 MiB."""
_EMPTY_BYTES: Final = 512
"""An answer of no more says nothing about batches."""


class Grant(NamedTuple):
    """What one Fetch may bring."""

    max_bytes: int
    set_aside: float
    since_ms: int


class Fetches:
    """The fetches of one counter that are under way, by who sent them: one each."""

    __slots__ = ("_bound", "_grants", "_least", "_set_aside", "sharers")

    def __init__(self, bound: "Bound") -> None:
        self._bound = bound
        self._grants: dict[object, Grant] = {}
        self._set_aside = 0.0
        self._least: float = _FIRST_LEAST_BYTES
        """What is expected of a Fetch whatever it is granted: learned from answers, a broker sends whole batches."""
        self.sharers = 0
        """Connections that fetch under this counter."""

    def __len__(self) -> int:
        return len(self._grants)

    def may_go(self, now_ms: int) -> int:
        """Return ``now_ms`` if one more may go, else when what another has set aside lapses."""
        self._lapse(now_ms)
        if not self._grants or self._left(now_ms) >= self._least:
            return now_ms
        return next(iter(self._grants.values())).since_ms + SET_ASIDE_MS

    def grant(self, who: object, asked_bytes: int, now_ms: int) -> int:
        """Let the Fetch of ``who`` go and return the most that it may ask for, of what it asks for."""
        limit = self._bound.limit or 0.0
        share = max(self._left(now_ms), limit * _SLICE_S) / max(self.sharers, 1)
        max_bytes = min(asked_bytes, max(int(min(share, INT32_MAX)), 1))
        grant = Grant(max_bytes, max(max_bytes, self._least), now_ms)
        self._grants[who] = grant
        self._set_aside += grant.set_aside
        return max_bytes

    def covers(self, who: object, size: int) -> bool:
        """Whether an answer of that size was set aside for ``who``, and still is."""
        grant = self._grants.get(who)
        return grant is not None and size <= grant.set_aside

    def answered(self, who: object, size: int) -> None:
        """Take note of an answer that is now charged."""
        grant = self._grants.get(who)
        if grant is not None and size > grant.max_bytes:
            self._least = max(self._least * 0.75, size)
        elif _EMPTY_BYTES < size < self._least:
            self._least += (size - self._least) / 4
        self.forget(who)

    def forget(self, who: object) -> None:
        """Set nothing aside for ``who`` any more."""
        grant = self._grants.pop(who, None)
        if grant is not None:
            self._set_aside = self._set_aside - grant.set_aside if self._grants else 0.0

    def _left(self, now_ms: int) -> float:
        return self._bound.headroom(now_ms) - self._set_aside

    def _lapse(self, now_ms: int) -> None:
        while self._grants:
            who, grant = next(iter(self._grants.items()))
            if now_ms < grant.since_ms + SET_ASIDE_MS:
                return
            self.forget(who)
