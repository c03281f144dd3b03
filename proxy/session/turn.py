"""What of a session waits for its turn under a counter in debt, for how long at the most, and what happens then.

Waiting takes a place in the counter's line (``quotas.line``). It ends before its turn where that would break the
client: a Fetch is then answered as a broker answers one that is over its quota, with nothing; anything else goes,
and what it takes stays owed.

What has to pass several counters waits in one that is in debt, and at its turn asks them all again: it goes when all of
them let it, and is charged to all of them then. A counter that would have let it pass promises to do so when it comes
again, and gives one promise at a time, to the oldest request: so the oldest one always gets on (docs/decisions/0022).
"""

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from protocol.errors import Cause, ProtocolError
from proxy.runtime.clock import NEVER_MS
from proxy.runtime.faults import contained
from proxy.session.throttling import Alarm, Throttling
from proxy.session.wires import CLIENT
from proxy.usage.accounts import Account
from quotas.engine import Bound
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.line import NO_NUMBER, Place

if TYPE_CHECKING:
    from proxy.session.pair import Pair

LENIENCE_MS: Final = 4000
"""So much goes within a debt, of all connections of a counter together, because a client's re-authentication stands
behind it. The counter owes it."""

_NEARLY_MS: Final = 1000
"""Up to this debt goes a ShareFetch that has waited as long as clients wait."""

_AGAIN_MS: Final = 100
"""Until a Fetch that cannot be answered yet is looked at again: an answer before it is still to come."""


class What(IntEnum):
    """What waits."""

    NOTHING = 0
    REQUEST = 1
    FETCH = 2
    """A request too, that can be answered with nothing."""
    BODY = 3
    """The rest of a request that is more than its limit has left."""
    ANSWER = 4
    MUTATION = 5
    """A request too, of the kinds that may not be refused."""
    COORDINATION = 6
    """A request that others wait for, members of a group or of a transaction: it waits no longer than a window."""


class Turn:
    """What waits at one counter at a time, until it has passed all that it has to pass."""

    __slots__ = (
        "_account",
        "_alarm",
        "_asked",
        "_bound",
        "_cap",
        "_cost",
        "_first_ms",
        "_forced",
        "_kept",
        "_number",
        "_pair",
        "_passed",
        "_place",
        "_promises",
        "_since_ms",
        "_what",
        "rest",
    )

    def __init__(self, pair: "Pair") -> None:
        self._pair = pair
        self._what = What.NOTHING
        self._bound: Bound | None = None
        self._account: Account | None = None
        self._cap: Entity | None = None
        """The cap that it waits for; its counter may be of another rule, or of none, before that is over."""
        self._place: Place | None = None
        self._kept: Place | None = None
        self._alarm: Alarm | None = None
        self._cost = 0.0
        self._since_ms = 0
        self._first_ms = 0
        """Since when it has waited, at whichever counter."""
        self._passed: tuple[Bound, ...] = ()
        """The counters that let it go now, whatever is owed: that of its turn, and those that it waits at no longer."""
        self._forced: tuple[Bound, ...] = ()
        """The latter."""
        self.rest: tuple[Bound, ...] = ()
        """All counters that the rest of a request has to pass, where they are several."""
        self._number = NO_NUMBER
        """By which it stands in every line."""
        self._asked: tuple[Bound, ...] = ()
        """The counters that would have let it go, since it began to ask them again."""
        self._promises: tuple[Bound, ...] = ()
        """Counters that gave it their promise (``Bound.promise``); an older request may have taken it over since."""

    @property
    def is_at_its_turn(self) -> bool:
        """A counter lets it go now, whatever is owed."""
        return bool(self._passed)

    def has_passed(self, bound: Bound) -> bool:
        """Whether that counter lets it go now, whatever is owed: it is its turn there, or it has the promise."""
        if self._number and bound.promised == self._number:
            return True
        return any(passed is bound for passed in self._passed)

    def ask(self, what: What, account: Account, bound: Bound, cost: float, now_ms: int, weight: float = 0.0) -> bool:
        """Whether it may pass a counter, its live bound; if not it waits there.

        ``cost`` is what it will be charged, as far as that has come; ``weight`` counts against the client's turns, by
        default the same.
        """
        if self.has_passed(bound) or (not bound.line and bound.may_go(now_ms) <= now_ms):
            if self._number:
                self._asked = (*self._asked, bound)
            return True
        self.wait(what, account, bound, cost, now_ms, weight)
        return False

    def went(self, now_ms: int) -> None:
        """Take note that it has gone: what comes next has to wait for itself."""
        if self._number:
            self._forget(now_ms)

    def _forget(self, now_ms: int) -> None:
        number, promises = self._number, self._promises
        self._passed = self._forced = self._asked = self._promises = self.rest = ()
        self._number = NO_NUMBER
        for each in promises:
            bound = each.live
            bound.end_promise(number)
            if bound.line:
                self._throttling.alarm(bound.line, now_ms)

    @property
    def _throttling(self) -> Throttling:
        return self._pair.rules.throttling

    def wait(self, what: What, account: Account, bound: Bound, cost: float, now_ms: int, weight: float = 0.0) -> None:
        """Wait in the line of a counter, its live bound."""
        throttling = self._throttling
        bound.shut = True
        self._what = what
        self._bound = bound
        self._account = account
        self._cost = cost
        self._since_ms = now_ms
        if not self._number:
            self._first_ms = now_ms
        if bound.kind is QuotaKind.CONSUMER_BYTE_RATE:
            weight = 1.0  # what a Fetch brings is not known, and each gets its share
        self._place = throttling.line_of(bound).join(
            self,
            self._pair.client_path(account),
            cost,
            now_ms,
            weight=weight or cost or 1.0,
            kept=self._kept,
            number=self._number,
        )
        self._number = self._place.number
        self._kept = None
        for asked in (*self._asked, *self._passed):
            value = cost if asked.kind is bound.kind else 0.0
            if asked is not bound and asked not in self._forced and asked.promise(self._number, value):
                self._promises = (*self._promises, asked)
        self._asked = ()
        if what is not What.ANSWER:
            self._pair.client.bound_receive_buffer()  # what the client sends behind it waits with the client
        throttling.note_wait(bound)
        account.meter.note_wait(bound.kind, 1, now_ms)
        self._cap = bound.rule if bound.is_cap else None
        if self._cap is not None:
            account.meter.note_cap_wait(bound.kind, self._cap, 1, now_ms)
        latest_ms = self._latest_ms()
        if latest_ms < NEVER_MS:
            self._alarm = throttling.wake(self, max(latest_ms, now_ms))

    def _latest_ms(self) -> int:
        latest_ms = self._pair.sasl.deadline_ms
        throttling = self._throttling
        most_ms = None if self._bound is None else throttling.most_delay_ms(self._bound)
        if most_ms is not None:
            latest_ms = min(latest_ms, self._first_ms + most_ms)
        if self._what in (What.FETCH, What.ANSWER):
            latest_ms = min(latest_ms, self._first_ms + throttling.max_hold_ms)
        if self._what is What.COORDINATION or (self._what is What.FETCH and self._waits_a_window_at_most):
            latest_ms = min(latest_ms, self._first_ms + throttling.window_ms)
        return latest_ms

    @property
    def _waits_a_window_at_most(self) -> bool:
        """A broker would hold it for no longer (``Row.capped``)."""
        return self._bound is not None and self._bound.kind.row.capped

    # ------------------------------------------------------------------------------------------- how it ends

    def admitted(self, now_ms: int) -> None:
        """Take the turn (called by the line)."""
        self._go(now_ms, turn=True)

    def sent_on(self, now_ms: int) -> None:
        """Ask again (called by a line that is dissolved)."""
        self._go(now_ms, turn=False)

    def throttle_over(self, now_ms: int) -> None:
        """Wait no longer, though the turn has not come (called by the delay queue)."""
        self._alarm = None
        pair, throttling, bound = self._pair, self._throttling, self._bound
        if bound is None:
            return
        most_ms = throttling.most_delay_ms(bound)
        if most_ms is not None and now_ms - self._first_ms >= most_ms:
            self._go(now_ms, turn=True, forced=True)
        elif self._what is What.FETCH and pair.answerable:
            if not self._answer_empty(bound, now_ms):
                self._alarm = throttling.wake(self, now_ms + _AGAIN_MS)
        elif self._may_go_early(bound, now_ms):
            self._go(now_ms, turn=True, forced=True)
        elif now_ms < pair.sasl.deadline_ms:
            self._alarm = throttling.wake(self, now_ms + throttling.window_ms)
        else:
            pair.reject(CLIENT, ProtocolError(Cause.HELD_TOO_LONG, "still waits for its quota when its login ends"))

    def _may_go_early(self, bound: Bound, now_ms: int) -> bool:
        if self._what in (What.FETCH, What.ANSWER):
            return bound.owed_ms(now_ms) <= _NEARLY_MS
        return bound.live.may_bring_forward(now_ms, LENIENCE_MS)

    def abort(self) -> None:
        """End the session: to go on has failed (called by the delay queue)."""
        self._pair.abort()

    def client_finished(self, now_ms: int) -> None:
        """Ask again: a request whose client has closed does not wait any more, nor an answer."""
        if self._what not in (What.NOTHING, What.BODY):
            self._go(now_ms, turn=False)

    def _answer_empty(self, bound: Bound, now_ms: int) -> bool:
        """Answer a whole Fetch as the broker would, with nothing; False while an answer before it is still to come.

        Its place is kept, so that the client's next one goes as soon as this one would have.
        """
        if not self._pair.idle:
            return False
        throttling = self._throttling
        throttle_ms = min(max(bound.owed_ms(now_ms), 1), throttling.window_ms)
        kept = self._end(now_ms, keep=True)
        self._forget(now_ms)
        throttling.answered_empty += 1
        self._pair.answer_empty(throttle_ms, now_ms)
        self._kept = kept
        if self._pair.closed:
            self._forget(now_ms)
        return True

    def _go(self, now_ms: int, *, turn: bool, forced: bool = False) -> None:
        what, bound, account = self._what, self._bound, self._account
        self._kept = self._end(now_ms, keep=True)
        self._asked = ()
        if turn and bound is not None:
            self._passed = (*self._forced, bound.live)
            if forced:
                self._forced = self._passed
        else:
            self._passed = self._forced
        if self.rest and account is not None and turn:
            for other in self.rest:
                if not self.ask(what, account, other.live, self._cost, now_ms):
                    return
        contained("turn", self._pair.turn, what, now_ms, otherwise=self._pair.abort)
        if self._what is What.NOTHING:
            self._forget(now_ms)  # a turn that is not taken at once is lost: what else holds the session may last

    def _end(self, now_ms: int, *, keep: bool = False) -> Place | None:
        place, bound, account = self._place, self._bound, self._account
        self._what = What.NOTHING
        self._place = self._bound = self._account = None
        if self._alarm is not None:
            self._throttling.unwake(self._alarm)
            self._alarm = None
        if bound is not None and account is not None:
            waited_ms = now_ms - self._since_ms
            self._throttling.note_waited(bound, waited_ms)
            account.meter.note_wait(bound.kind, -1, now_ms, waited_ms)
            if self._cap is not None:
                account.meter.note_cap_wait(bound.kind, self._cap, -1, now_ms, waited_ms)
        if place is not None:
            place.line.leave(place, now_ms, keep=keep)
        return place

    def leave(self, now_ms: int) -> None:
        """Wait for nothing any more: the connection is gone."""
        self._end(now_ms)
        self._forget(now_ms)
