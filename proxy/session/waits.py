"""The turns of one session: which of its counters what comes next has to pass, and what a Fetch gets of them."""

from typing import TYPE_CHECKING

from proxy.session.turn import Turn, What
from proxy.usage.accounts import Account
from quotas.engine import Bound

if TYPE_CHECKING:
    from proxy.session.pair import Pair


class Waits:
    """The turns of one session: that of the request which comes next, and that of the answer."""

    __slots__ = ("_answer", "_pair", "_request", "_shares")

    def __init__(self, pair: "Pair") -> None:
        self._pair = pair
        self._request = Turn(pair)
        self._answer: Turn | None = None
        """Once there was one that waited."""
        self._shares: tuple[Bound, ...] = ()
        """The counters whose limits this connection's fetches share."""

    def ask(self, what: What, account: Account, bound: Bound, cost: float, now_ms: int, weight: float = 0.0) -> bool:
        """Whether ``what`` may pass a counter now; if not it waits, and the session is told when its turn has come.

        It then asks each of its counters again. ``cost`` is what it will be charged, as far as that has come: others
        are told to wait for it. ``weight``, the same by default, counts against the client's turns.
        """
        return self._request.ask(what, account, bound.live, cost, now_ms, weight)

    def ask_all(
        self,
        what: What,
        account: Account,
        bounds: tuple[Bound, ...],
        cost: float,
        now_ms: int,
        weight: float = 0.0,
    ) -> bool:
        """As ``ask``, of several counters; of the rest of a request, which asks nothing again by itself, as well."""
        self._request.rest = bounds if what is What.BODY and len(bounds) > 1 else ()
        return all(self._request.ask(what, account, bound.live, cost, now_ms, weight) for bound in bounds)

    def grant_whole(self, bounds: tuple[Bound, ...], asked_bytes: int, now_ms: int) -> bool:
        """Let a Fetch go as it is, where its quotas are far from being in force."""
        bounds = self._live(bounds)
        if self._request.is_at_its_turn:
            return False  # it has waited: the turn is to be taken
        if len(bounds) > 1 and not all(bound.fetches.fits_whole(asked_bytes, now_ms) for bound in bounds):
            return False
        if len(bounds) == 1:
            return bounds[0].fetches.grant_whole(self, asked_bytes, now_ms)
        granted = True
        for bound in bounds:
            granted = bound.fetches.grant_whole(self, asked_bytes, now_ms) and granted
        return granted

    def grant(self, bounds: tuple[Bound, ...], asked_bytes: int, now_ms: int) -> int:
        """Let a Fetch go and return what it may ask for: of several counters the least."""
        bounds = self._live(bounds)
        granted = asked_bytes
        for bound in bounds:
            granted = bound.fetches.grant(self, granted, now_ms)
        for bound in bounds[:-1]:
            bound.fetches.grant(self, granted, now_ms)  # no more is set aside than can come
        return granted

    def may_answer(self, account: Account, bounds: tuple[Bound, ...], size: int, now_ms: int) -> bool:
        """Whether an answer may be charged and passed on. One larger than what was set aside waits like a request."""
        bounds = self._live(bounds)
        turn = self._answer
        for bound in bounds:
            if bound.fetches.covers(self, size) or (turn is not None and turn.has_passed(bound)):
                continue
            if bound.owed_ms(now_ms):
                bound.fetches.forget(self)
                if turn is None:
                    turn = self._answer = Turn(self._pair)
                turn.wait(What.ANSWER, account, bound, size, now_ms)
                return False
        for bound in bounds:
            if bound.line:
                bound.line.owe(self._pair.client_path(account), bound.fetches.turns_beyond(size))
            bound.fetches.answered(self, size)
            if bound.line:
                self._pair.rules.throttling.alarm(bound.line, now_ms)
        if turn is not None:
            turn.went(now_ms)
        return True

    def went(self, now_ms: int) -> None:
        """Take note that the request has passed all its counters: the next one asks for itself."""
        self._request.went(now_ms)

    def client_finished(self, now_ms: int) -> None:
        """Ask again: a request whose client has closed does not wait any more, nor an answer."""
        self._request.client_finished(now_ms)
        if self._answer is not None:
            self._answer.client_finished(now_ms)

    def leave(self, now_ms: int) -> None:
        """Wait for nothing any more: the connection is gone."""
        self._request.leave(now_ms)
        if self._answer is not None:
            self._answer.leave(now_ms)
        shared = self._shares
        self._share(())
        for bound in shared:
            if bound.line:
                self._pair.rules.throttling.alarm(bound.line, now_ms)

    def _live(self, bounds: tuple[Bound, ...]) -> tuple[Bound, ...]:
        """Return the live bounds of what this connection fetches under, and have a share in each."""
        shares = self._shares
        if len(bounds) == 1:  # most often; in two lines, because it is on the way of every Fetch
            bound = bounds[0].live
            if len(shares) == 1 and shares[0] is bound:
                return shares
            bounds = (bound,)
        else:
            bounds = tuple([bound.live for bound in bounds])
            if len(shares) == len(bounds) and all(mine is bound for mine, bound in zip(shares, bounds, strict=True)):
                return shares
        self._share(bounds)
        return bounds

    def _share(self, bounds: tuple[Bound, ...]) -> None:
        for bound in self._shares:
            bound.fetches.leave(self)
        self._shares = bounds
        for bound in bounds:
            bound.fetches.join(self)
