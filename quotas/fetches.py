"""What the fetches of one counter that are under way may still bring.

A Fetch is charged by its answer, and cannot be taken back. So what it may bring is set aside when it goes: a share of
what the quota has left, which its max_bytes is lowered to. Nothing has to be thrown away, as at a broker.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from quotas.bound import Bound

SET_ASIDE_MS: Final = 1000
"""How long others wait for what was set aside: longer than a consumer's Fetch waits for data (fetch.max.wait.ms)."""

_SLICE_S: Final = 0.25
"""With nothing left and no debt, all sharers together get so many seconds' worth: so far beyond it do they go."""
_FIRST_LEAST_BYTES: Final = 1 << 20
"""What a Fetch may bring however small its max_bytes is: one batch, and a broker takes batches of 1 MiB."""
_PROBE_EACH: Final = 16
"""One in so many that are lowered asks for a single batch, to see how large they are now."""
_EMPTY_BYTES: Final = 512
"""An answer of no more says nothing about batches."""


class Grant:
    """What a Fetch may bring; or several of one connection, of which none had to be lowered."""

    __slots__ = ("fetches", "max_bytes", "set_aside", "since_ms")

    def __init__(self, max_bytes: int, set_aside: float, since_ms: int) -> None:
        self.max_bytes = max_bytes
        self.set_aside = set_aside
        self.since_ms = since_ms
        self.fetches = 1


class Fetches:
    """The fetches of one counter that are under way, by who sent them."""

    __slots__ = ("_batch", "_bound", "_grants", "_least", "_lowered", "_set_aside", "_was_cut", "sharers")

    def __init__(self, bound: "Bound") -> None:
        self._bound = bound
        self._grants: dict[object, Grant] = {}
        self._set_aside = 0.0
        self._least = float(_FIRST_LEAST_BYTES)
        """What is expected of a Fetch whatever it is granted: learned from answers, a broker sends whole batches."""
        self._batch = 0
        """The last batch that came alone, with what stands around it; 0 before there was one."""
        self._lowered = 0
        self._was_cut = False
        """An answer was as long as it might be: its last batch is perhaps a part of one."""
        self.sharers = 0
        """Connections that fetch under this counter."""

    def __len__(self) -> int:
        return len(self._grants)

    def __bool__(self) -> bool:
        return bool(self._grants)

    def may_go(self, now_ms: int) -> int:
        """Return ``now_ms`` if one more may go, else when what another has set aside lapses."""
        self._lapse(now_ms)
        if not self._grants or self._left(now_ms) >= self._least:
            return now_ms
        return next(iter(self._grants.values())).since_ms + SET_ASIDE_MS

    def grant_whole(self, who: object, asked_bytes: int, now_ms: int) -> bool:
        """Let the Fetch of ``who`` go as it is where all sharers might ask for as much: most quotas are not in force.

        The result is that of ``may_go`` and ``grant``, at a small part of the cost; False where those have to say.
        """
        if not self.fits_whole(asked_bytes, now_ms):
            return False
        set_aside = max(asked_bytes, self._least)
        grant = self._grants.pop(who, None)  # and in again: they are in the order in which they lapse
        if grant is None:
            grant = Grant(asked_bytes, set_aside, now_ms)
        else:
            grant.max_bytes = max(asked_bytes, grant.max_bytes)
            grant.set_aside += set_aside
            grant.since_ms = now_ms
            grant.fetches += 1
        self._grants[who] = grant
        self._set_aside += set_aside
        return True

    def fits_whole(self, asked_bytes: int, now_ms: int) -> bool:
        """Whether all sharers might ask for so much."""
        each = max(asked_bytes, self._least)
        return self._bound.fits(self._set_aside + each * max(self.sharers, 1), now_ms)

    def grant(self, who: object, asked_bytes: int, now_ms: int) -> int:
        """Let the Fetch of ``who`` go and return the most that it may ask for, of what it asks for."""
        self.forget(who)  # what is left of an earlier one, as when the limit was away meanwhile
        limit = self._bound.limit or 0.0
        share = max(self._left(now_ms), limit * _SLICE_S) / max(self.sharers, 1)
        max_bytes = asked_bytes if asked_bytes <= share else self._whole_batches(int(share))
        grant = Grant(max_bytes, max(max_bytes, self._least), now_ms)
        self._grants[who] = grant
        self._set_aside += grant.set_aside
        return max_bytes

    def _whole_batches(self, share: int) -> int:
        """Return what to ask for of a share, so that no part of a batch comes: clients throw parts away.

        A broker cuts what it sends at max_bytes, but sends one whole batch however small that is.
        """
        self._lowered += 1
        if self._was_cut and (not self._batch or self._lowered % _PROBE_EACH == 0):
            return 1
        if not self._batch:
            return max(share, 1)
        return share // self._batch * self._batch if share >= 2 * self._batch else 1

    def covers(self, who: object, size: int) -> bool:
        """Whether so much was set aside for ``who`` and still is."""
        grant = self._grants.get(who)
        return grant is not None and size <= grant.set_aside

    def answered(self, who: object, size: int) -> None:
        """Take note of an answer that is now charged."""
        grant = self._grants.get(who)
        if grant is not None and (grant.max_bytes == 1 or size > 1.5 * grant.max_bytes):
            self._batch = max(size, _EMPTY_BYTES)
        elif grant is not None and size > grant.max_bytes:
            self._was_cut = True
        if grant is not None and size > grant.max_bytes:
            self._least = max(self._least * 0.75, size)
        elif _EMPTY_BYTES < size < self._least:
            self._least += (size - self._least) / 4
        if grant is None or grant.fetches == 1:
            self.forget(who)
            return
        part = grant.set_aside / grant.fetches
        grant.set_aside -= part
        grant.fetches -= 1
        self._set_aside -= part

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
