"""Admission: who may pass the counters of a quota now, and who waits in their queues.

A request whose counter is in debt takes a place in the counter's queue (``quotas.admission_queue``). It is admitted
when the debt is over and its client has its turn; ``Session.resume`` then reads it again, and its policy asks all its
counters again. The wait ends early where a longer one would break the client: a Fetch is then answered as a broker
answers one over its quota, without data; anything else goes, and the counter owes what it takes.

A request that has to pass several counters waits in the queue of one that is in debt. It goes when it may
pass all of them, and is charged to all of them then. A counter that it might have passed promises to admit it when it
comes again, and gives one promise at a time, to the oldest request: so the oldest one always gets on
(docs/decisions/0022).
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from protocol.errors import Cause, ProtocolError
from proxy.runtime.clock import NEVER_MS
from proxy.runtime.faults import contained
from proxy.runtime.logs import is_debug
from proxy.session.flow import CLIENT
from proxy.session.throttling import Alarm
from proxy.usage.accounts import Account
from quotas.admission_queue import NO_NUMBER, Place
from quotas.engine import Bound
from quotas.entities import Entity
from quotas.kinds import QuotaKind

if TYPE_CHECKING:
    from proxy.session.session import Session

log = structlog.get_logger("sluice.admission")

LENIENCE_MS: Final = 4000
"""The connections of a counter together may send so much within its debt, if a re-authentication comes behind it. The
counter owes it."""

_NEARLY_MS: Final = 1000
"""Up to this debt a ShareFetch goes that has waited as long as clients wait."""

_AGAIN_MS: Final = 100
"""Until a Fetch that cannot be answered yet is looked at again: an answer before it is still to come."""


class Waiting(IntEnum):
    """The thing that waits in a counter's queue."""

    REQUEST = 1
    FETCH = 2
    """A Fetch that is there to its end: it can be answered without data."""
    BODY = 3
    """The rest of a request that is larger than what its limit has left."""
    ANSWER = 4
    MUTATION = 5
    """A request of the kinds that may not be refused."""
    COORDINATION = 6
    """A request that other members of a group or of a transaction wait for: it waits for a window at most."""
    SHARE_FETCH = 7
    """A ShareFetch, or a Fetch whose end is still to come: the broker alone can answer it."""


class Ended(NamedTuple):
    """How a wait in a counter's queue has ended: the request asks its counters again, and may pass these now, whatever
    they owe. With ``empty_ms``, a Fetch is answered without data instead, and told this throttle time.
    """

    passed: tuple[Bound, ...] = ()
    empty_ms: int = 0


@dataclass(slots=True, eq=False)
class Wait:
    """A stay in a counter's queue."""

    what: Waiting
    account: Account
    bound: Bound
    cap: Entity | None
    """The cap that it waits for; its counter may be of another rule, or of none, before that is over."""
    place: Place
    rest: tuple[Bound, ...]
    """All counters that a body has to pass: no policy asks them again when it is admitted."""
    since_ms: int
    alarm: Alarm | None = None
    """When it ends early."""


class Ticket:
    """A connection's ticket to the counters that its next request, or its answer, has to pass: for one queue at a time,
    until it has passed all of them.
    """

    __slots__ = ("_asked", "_first_ms", "_forced", "_kept", "_number", "_session", "_wait")

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._wait: Wait | None = None
        self._kept: Place | None = None
        """The place that was given up last, for its client's next request."""
        self._first_ms = 0
        """Since when it has waited, in whichever queue."""
        self._forced: tuple[Bound, ...] = ()
        """The counters that it waits for no longer."""
        self._number = NO_NUMBER
        """Its number in every queue; none while it waits in no queue and has no turn."""
        self._asked: tuple[Bound, ...] = ()
        """The counters that admitted it when another did not, since its first wait. They have given it their promise
        (``quotas.claims``), which an older request may have taken over.
        """

    def may_pass(self, bound: Bound, passed: tuple[Bound, ...]) -> bool:
        """Whether it may pass that counter now, whatever is owed: it is its turn there, or it has the promise."""
        if self._number and bound.promised == self._number:
            return True
        return any(each is bound for each in passed)

    def ask(
        self,
        what: Waiting,
        account: Account,
        bounds: tuple[Bound, ...],
        cost: float,
        now_ms: int,
        passed: tuple[Bound, ...] = (),
        weight: float = 0.0,
    ) -> bool:
        """Return whether it may pass all of these counters now; if not it waits in the queue of the first in debt.

        ``cost`` is what it will be charged, as far as that has come: others are told to wait for it. ``passed``: the
        counters at which it has had its turn. ``weight`` counts against its client's turns, by default the cost.
        """
        for bound in bounds:
            if not (self.may_pass(bound, passed) or (not bound.queue and bound.may_go(now_ms) <= now_ms)):
                rest = bounds if what is Waiting.BODY else ()
                self.wait(what, account, bound, cost, now_ms, weight, rest)
                return False
            self._might_pass(bound)
        return True

    def _might_pass(self, bound: Bound) -> None:
        if self._number and bound not in self._asked:
            self._asked = (*self._asked, bound)

    def went(self, now_ms: int) -> None:
        """Note that it has passed all its counters, or will not: the next request asks for itself."""
        if not self._number:
            return
        number, asked = self._number, self._asked
        self._forced = self._asked = ()
        self._number = NO_NUMBER
        for bound in asked:
            if bound.claims.end_promise(number) and bound.queue:
                self._session.worker.throttling.alarm(bound.queue, now_ms)

    def wait(
        self,
        what: Waiting,
        account: Account,
        bound: Bound,
        cost: float,
        now_ms: int,
        weight: float = 0.0,
        rest: tuple[Bound, ...] = (),
    ) -> None:
        """Wait in the queue of a counter; a body passes all counters of ``rest`` before it goes on."""
        throttling = self._session.worker.throttling
        if not self._number:
            self._first_ms = now_ms
        if bound.kind is QuotaKind.CONSUMER_BYTE_RATE:
            weight = 1.0  # what a Fetch brings is not known, and each gets its share
        place = bound.queue_up(throttling.alarm).join(
            self,
            self._session.identity.path(account),
            cost,
            now_ms,
            weight=weight or cost or 1.0,
            kept=self._kept,
            number=self._number,
        )
        self._number = place.number
        self._kept = None
        for asked in self._asked:
            if asked is not bound and asked not in self._forced:
                asked.claims.promise(self._number, cost if asked.kind is bound.kind else 0.0)
        if what is not Waiting.ANSWER:
            self._session.client.bound_receive_buffer()  # what the client sends behind it waits with the client
        cap = bound.rule if bound.is_cap else None
        wait = self._wait = Wait(what, account, bound, cap, place, rest, now_ms)
        if is_debug():
            log.debug("waits", peer=self._session.peer, request=self.describe(now_ms))
        throttling.counts.wait(account, bound, cap, 1, now_ms)
        latest_ms = self._latest_ms(what, bound)
        if latest_ms < NEVER_MS:
            wait.alarm = throttling.wake(self._end_early, self._session.abort, max(latest_ms, now_ms))

    def _latest_ms(self, what: Waiting, bound: Bound) -> int:
        """Return when a wait ends early."""
        latest_ms = self._session.sasl.deadline_ms
        throttling = self._session.worker.throttling
        most_ms = throttling.most_delay_ms(bound)
        if most_ms is not None:
            latest_ms = min(latest_ms, self._first_ms + most_ms)
        if what in (Waiting.FETCH, Waiting.SHARE_FETCH, Waiting.ANSWER):
            latest_ms = min(latest_ms, self._first_ms + throttling.max_hold_ms)
        if what is Waiting.COORDINATION or (bound.kind.row.capped and what in (Waiting.FETCH, Waiting.SHARE_FETCH)):
            latest_ms = min(latest_ms, self._first_ms + throttling.window_ms)  # a broker would hold it for no longer
        return latest_ms

    @property
    def bound(self) -> Bound | None:
        """The counter in whose queue it waits."""
        return None if self._wait is None else self._wait.bound

    def describe(self, now_ms: int) -> str | None:
        """Return what waits, for how long and for which quota, for the log; None if nothing waits."""
        wait = self._wait
        if wait is None:
            return None
        bound, waited_s = wait.bound, (now_ms - wait.since_ms) / 1000
        rule = "a quota that is gone" if bound.rule is None else bound.rule.describe()
        return (
            f"its {wait.what.name.lower()} has waited {waited_s:.1f} s for {bound.kind} of {rule}, "
            f"{_where(wait.place)}, with {bound.owed_ms(now_ms) / 1000:.1f} s of debt"
        )

    @property
    def client(self) -> str:
        """The client whose request waits, for people."""
        key = self._session.identity.account.key
        return Entity(user=key.user, client_id=key.client_id or None).describe()

    # ------------------------------------------------------------------------------------------- how it ends

    def admitted(self, now_ms: int, *, forced: bool = False) -> None:
        """Pass the counter that it waits for (called by the queue); ``forced``: and wait there no more until it has
        gone.
        """
        wait = self._end(now_ms)
        if wait is None:
            return
        self._might_pass(wait.bound)
        passed = (*self._forced, wait.bound)
        if forced:
            self._forced = passed
        if self.ask(wait.what, wait.account, wait.rest, wait.place.cost, now_ms, passed):
            self._resume(wait, Ended(passed), now_ms)

    def sent_on(self, now_ms: int) -> None:
        """Ask again (called by a queue that is dissolved)."""
        self._resume(self._end(now_ms), Ended(self._forced), now_ms)

    def _end_early(self, now_ms: int) -> None:
        """Wait no longer, though the turn has not come."""
        wait = self._wait
        if wait is None:
            return
        wait.alarm = None
        session, throttling, bound = self._session, self._session.worker.throttling, wait.bound
        most_ms = throttling.most_delay_ms(bound)
        if most_ms is not None and now_ms - self._first_ms >= most_ms:
            self.admitted(now_ms, forced=True)
        elif wait.what is Waiting.FETCH:
            if session.idle:
                empty = Ended(empty_ms=min(max(bound.owed_ms(now_ms), 1), throttling.window_ms))
                self._resume(self._end(now_ms), empty, now_ms)
            else:
                wait.alarm = throttling.wake(self._end_early, session.abort, now_ms + _AGAIN_MS)
        elif self._may_go_early(wait, now_ms):
            self.admitted(now_ms, forced=True)
        elif now_ms < self._session.sasl.deadline_ms:
            wait.alarm = throttling.wake(self._end_early, session.abort, now_ms + throttling.window_ms)
        else:
            session.reject(CLIENT, ProtocolError(Cause.HELD_TOO_LONG, "still waits for its quota when its login ends"))

    @staticmethod
    def _may_go_early(wait: Wait, now_ms: int) -> bool:
        if wait.what in (Waiting.SHARE_FETCH, Waiting.ANSWER):
            return wait.bound.owed_ms(now_ms) <= _NEARLY_MS
        return wait.bound.may_bring_forward(now_ms, LENIENCE_MS)

    def abort(self) -> None:
        """End the session: to ask again has failed (called by a queue)."""
        self._session.abort()

    def client_finished(self, now_ms: int) -> None:
        """Ask again: a request whose client has closed does not wait any more, nor an answer."""
        wait = self._wait
        if wait is not None and wait.what is not Waiting.BODY:
            self.sent_on(now_ms)

    def _resume(self, wait: Wait | None, ended: Ended, now_ms: int) -> None:
        if wait is None:
            return
        contained("turn", self._session.resume, wait.what, ended, now_ms, otherwise=self._session.abort)
        if self._wait is None:
            self.went(now_ms)  # a turn that is not taken at once is lost: what else holds the session may last

    def _end(self, now_ms: int) -> Wait | None:
        """Leave the queue, where the place is kept for a while. Returns what has waited."""
        wait = self._wait
        if wait is None:
            return None
        self._wait = None
        if wait.alarm is not None:
            wait.alarm.cancel()
        waited_ms = now_ms - wait.since_ms
        self._session.worker.throttling.counts.wait(wait.account, wait.bound, wait.cap, -1, now_ms, waited_ms)
        wait.place.queue.leave(wait.place, now_ms)
        self._kept = wait.place
        return wait

    def leave(self) -> None:
        """Wait for nothing any more: the connection is gone."""
        now_ms = self._session.worker.clock()
        self._end(now_ms)
        self.went(now_ms)


def _where(place: Place) -> str:
    """Return where in its queue a place is, for people."""
    size = len(place.queue)
    before = place.queue.before(place)
    if before is None:
        return f"one of {size} in the queue"
    last = before[-1].waiter if before else None
    behind = f" behind {last.client}" if isinstance(last, Ticket) else ""
    return f"number {len(before) + 1} of {size} in the queue{behind}"
