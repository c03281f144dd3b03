"""What time of threads a client's requests take: charged beforehand by what they usually cost, then by their answers.

A request is charged when it goes, so that those behind it on this and on other connections wait for it, and its answer
puts the charge right (docs/request-percentage.md).
"""

from typing import TYPE_CHECKING, Final

from proxy.session.gates.time_seen import USUAL_AT_MOST, TimeSeen
from proxy.session.in_flight import ACTIONS, Entry, InFlight
from proxy.session.sender import Sender
from proxy.session.serving import CHARGE, COORDINATE, FETCH, PRODUCE, PRODUCE_KEY, TELL, TIMED, Served
from proxy.session.timed import Timed
from proxy.session.turn import What
from proxy.session.waits import Waits
from proxy.usage.accounts import Account
from proxy.usage.request_times import ClientTimes, RequestTimes
from quotas.bound import Bound
from quotas.kinds import QuotaKind

if TYPE_CHECKING:
    from proxy.session.pair import Pair

KIND: Final = QuotaKind.REQUEST_PERCENTAGE
_RECORDS: Final = (PRODUCE, FETCH)
PERCENT_S_PER_US: Final = 1e-4
"""A second of one thread is 100."""
_PROMPT_KEYS: Final = frozenset((10, 18))
"""FindCoordinator and ApiVersions: a member that has lost its connection sends them before its next heartbeat."""
_UNKNOWN_S: Final = 4.0
"""What is set aside for a request of which nothing is known, in seconds' worth of the quota."""
_WAIVED: Final = 0.05
"""The part of a limit up to which what seems dear is taken for a thread that had to wait for a processor."""


class RequestTimeGate(TimeSeen):
    """Charges the time that the requests of one connection take."""

    __slots__ = (
        "_charged",
        "_in_flight",
        "_is_prompt",
        "_sender",
        "_waits",
    )

    def __init__(self, pair: "Pair", sender: Sender, in_flight: InFlight, waits: Waits) -> None:
        super().__init__(pair)
        self._sender = sender
        self._in_flight = in_flight
        self._waits = waits
        self._is_prompt = False
        """The last request waits no longer than a window."""
        self._charged: Account | None = None
        """Whose request, or answer, came last."""

    # ------------------------------------------------------------------------------------------------- requests

    def may_go(self, api: Served, coordinates: bool, now_ms: int) -> bool:
        """Whether the next request may go, as far as this quota is concerned; if not it waits in line."""
        account, api_key, kind = self._sender.account, api.spec.api_key, api.on_request
        self._is_prompt = api_key in _PROMPT_KEYS or kind == COORDINATE or (coordinates and kind not in _RECORDS)
        bound, caps = account.bound(KIND), account.caps(KIND)
        if not (caps or (bound.limit is not None and bound.shut)) or not self._pair.rules.throttling.enforces:
            return True
        what = What.FETCH if kind == FETCH else What.COORDINATION if self._is_prompt else What.REQUEST
        cost_us = account.times.cost_us(api_key) or 0.0
        shut = tuple([each for each in account.limited(KIND) if each.shut])
        return self._waits.ask_all(what, account, shut, cost_us * PERCENT_S_PER_US, now_ms)

    def went(self, api: Served, size: int, may_wait: bool, now_ms: int) -> None:
        """Charge the request of ``size`` bytes that is in flight last by what its API costs, and time it."""
        rules, known = self._pair.rules, self._known(self._sender.account)
        self.expect()
        rules.times.chunks += 1
        timed = Timed(known.of(api.spec.api_key), size, may_wait, rules.times.clock_ns(), rules.times.chunks)
        self._goes(timed)
        if rules.throttling.enforces:
            self._reserve(timed, known, now_ms)

    def open(self) -> ClientTimes | None:
        """Return what is known of the last request's sender if its next one need not come by ``may_go`` and ``went``:
        while quotas are enforced, ``goes`` is enough for it. None where it has to: the counter is in debt, or has a
        limit in shadow, or is not all that it is charged to.
        """
        known = self._known(self._sender.account)
        bound = known.bound
        return None if bound.shut or bound.shadow_limit is not None or len(known.bounds) > 1 else known

    def goes(
        self, times: RequestTimes, known: ClientTimes, api_key: int, size: int, waits: bool, start_ns: int, now_ms: int
    ) -> bool:
        """Charge and time the request that goes next, ``known`` being ``open()``, as ``may_go`` and ``went`` do; for
        the caller to expect its answer as TIMED. ``waits``: by what it asks for, if not by its API. False where they
        have to: in debt, an API that is new for its sender, or records that are looked at.
        """
        api, bound = known.of(api_key), known.bound
        if api.cost_us < 0 or bound.shut or (api_key == PRODUCE_KEY and times.looks):
            return False
        times.chunks += 1
        timed = Timed(api, size, waits or api.may_wait, start_ns, times.chunks)
        timed.bounds, timed.generation = known.bounds, known.generation
        if bound.limit is not None:
            timed.reserved = api.cost_us * PERCENT_S_PER_US
            if bound.charge(timed.reserved, now_ms):
                bound.live.shut = True  # until the answer says otherwise, as in _reserve
        self._goes(timed)
        return True

    def _goes(self, timed: Timed) -> None:
        if self._under_way is None:
            self._under_way = [timed]
        else:
            self._under_way.append(timed)
        self._charged = self._sender.account

    def _known(self, account: Account) -> ClientTimes:
        """Return what is known of a client, with what it is charged to now."""
        known, generation = account.times, self._pair.rules.engine.generation
        if known.generation != generation:
            known.generation = generation
            known.bounds = account.bounds(KIND)
            known.bound = known.bounds[0]
            known.use = account.meter.use_of(KIND)
            known.broker = self._pair.rules.times.of(account.key.broker)
        return known

    def expect(self) -> None:
        """Take the request that is in flight last for one that ``goes`` has timed."""
        correlation_id, actions, served, told_ms, until_ms, whose, came_ms, held_ms = self._in_flight[-1]
        self._in_flight[-1] = (correlation_id, actions | TIMED, served, told_ms, until_ms, whose, came_ms, held_ms)

    def _reserve(self, timed: Timed, known: ClientTimes, now_ms: int) -> None:
        bounds = timed.bounds = known.bounds
        timed.generation = known.generation
        limits = [bound.limit for bound in bounds if bound.limit is not None]
        if not limits:
            return
        api = timed.api
        if api.cost_us >= 0:
            timed.reserved = api.cost_us * PERCENT_S_PER_US
        elif timed.may_wait or self._is_prompt:
            timed.reserved = api.usual_ns(timed.size, 0) / 1000 * PERCENT_S_PER_US
        else:
            timed.reserved = min(limits) * _UNKNOWN_S  # few of them at once, for they may be as dear as they like
        for bound in bounds:
            if bound.shut and (self._is_prompt or now_ms >= self._pair.sasl.deadline_ms):
                counter = bound.live
                if counter.owed_ms(now_ms):
                    counter.bring_forward(timed.reserved, now_ms)
            if bound.charge(timed.reserved, now_ms):
                bound.live.shut = True  # until the answer says otherwise: nothing is owed for what may not be

    @property
    def last(self) -> Timed | None:
        """The last request that has gone, if it is timed: it begins when the rest of it has gone."""
        if self._charged is None or not self._under_way:  # nobody is charged for the last one
            return None
        return self._under_way[-1] if self._in_flight and self._in_flight[-1][ACTIONS] & TIMED else None

    def exempt(self, api_key: int, size: int) -> None:
        """Count a request that nobody answers: no quota holds it, as at a broker."""
        self._charged = None
        times = self._pair.rules.times
        times.chunks += 1
        times.exempt_us += int(self._sender.account.times.of(api_key).usual_ns(size, 0) / 1000 + 0.5)

    def answered_here(self) -> None:
        """Take note of a request that the proxy has answered itself: what that took is ``spent``."""
        self._charged = self._sender.account
        self._charged.meter.use_of(KIND).requests += 1

    # -------------------------------------------------------------------------------------------------- answers

    def answered(self, entry: Entry, size: int, now_ms: int) -> Entry:
        """Charge what a request took, whose answer of ``size`` bytes begins now; return the entry, with what it tells.

        The entry of a Fetch, which is charged by its size next, has this throttle time and does not tell it.
        """
        correlation_id, actions, api, told_ms, until_ms, account, came_ms, held_ms = entry
        actions &= ~TIMED
        if not self._under_way:
            raise RuntimeError("an answer is timed, and no request of it")
        throttle_ms = self._settle(self._under_way.pop(0), account, size, now_ms)
        if actions & CHARGE:
            told_ms = throttle_ms
        elif throttle_ms and now_ms + throttle_ms >= until_ms:  # the longer one; of equal ones this (KafkaApis)
            told_ms = max(self._pair.throttle(account, KIND, throttle_ms, now_ms), told_ms)
            until_ms = max(now_ms + told_ms, until_ms)
            actions |= TELL if told_ms else 0
        return (correlation_id, actions, api, told_ms, until_ms, account, came_ms, held_ms)

    def settles(self, times: RequestTimes, account: Account, size: int, came_ns: int, now_ms: int) -> bool:
        """Charge what the oldest request took as ``answered`` does, if that is what is usual, and nobody has to wait
        for it. False, and nothing is charged, where ``answered`` has to.
        """
        under_way = self._under_way
        if not under_way or self._blind:
            return False
        timed, known = under_way[0], account.times
        if timed.generation != self._pair.rules.engine.generation or timed.generation != known.generation:
            return False  # other quotas are in force than when it went
        bound, api = known.bound, timed.api
        if len(known.bounds) > 1 or bound.shadow_limit is not None:
            return False
        usual = api.usual_ns(timed.size, size)
        self._look(times, timed, known.broker, came_ns, now_ms)
        if not timed.may_wait:
            usual = max(usual, api.certain_ns(timed.work_ns))
            if timed.elapsed_ns > max(times.blur_ns, usual * USUAL_AT_MOST):
                return False
        us = int(usual / 1000 + 0.5)  # round() is a call
        beyond = us * PERCENT_S_PER_US - timed.reserved
        if bound.limit is not None and not bound.fits(beyond, now_ms):
            return False
        under_way.pop(0)
        if not timed.may_wait:
            api.note(timed.work_ns)
        times.chunks += 1
        self._seen_ns = came_ns
        api.cost(us)
        use = known.use
        use.used += us
        use.requests += 1
        self._charged = account
        bound.charge(beyond, now_ms)
        return True

    def spent(self, thread_ns: int, now_ms: int, chunks: int = 1) -> None:
        """Charge what the proxy itself has taken for a chunk, to whom its last request or answer was charged; as often
        as it stands for ``chunks``.

        That is behind the answer, and so without a check, as a broker's network threads are charged.
        """
        if chunks > 1:
            self._pair.rules.times.chunk_took(thread_ns)
        if self._charged is not None:
            us = round(thread_ns * chunks / 1000)
            self._charged.live_meter.use_of(KIND).used += us
            for bound in self._charged.bounds(KIND):
                bound.record(us * PERCENT_S_PER_US, now_ms)

    def leave(self) -> None:
        """Take note that no answers come any more; what was charged beforehand stays charged."""
        self._under_way = self._charged = None

    def _settle(self, timed: Timed, account: Account, size: int, now_ms: int) -> int:
        """Charge what a request took instead of what was reserved; returns the throttle time that this asks for."""
        known = self._known(account)
        seen_us, usual_us = self._took_us(timed, known, size, now_ms)
        bounds = known.bounds
        us = seen_us
        if seen_us > usual_us and _waive(bounds, (seen_us - usual_us) * PERCENT_S_PER_US, now_ms):
            us = usual_us
        timed.api.cost(seen_us)
        use = known.use
        use.used += us
        use.requests += 1
        self._charged = account
        took, reserved = us * PERCENT_S_PER_US, timed.reserved
        if timed.bounds and timed.bounds != bounds:  # other quotas are in force than when it went
            for bound in timed.bounds:
                bound.record(-reserved, now_ms)
            reserved = 0.0
        throttle_ms = account.charge(KIND, took - reserved, now_ms)
        throttling = self._pair.rules.throttling
        if not throttling.enforces or account.has_shadow(KIND):
            throttling.imagine(account, KIND, took, now_ms, id(self))
        if not throttling.enforces:
            return 0
        for bound in bounds:
            counter = bound.live
            if throttle_ms and (over_ms := counter.check(now_ms)):
                counter.owe(over_ms, now_ms)
            if counter.line and took < reserved:
                throttling.alarm(counter.line, now_ms)
        return throttle_ms


def _waive(bounds: tuple[Bound, ...], value: float, now_ms: int) -> bool:
    """Whether what seems dear need not be charged: the first counter with a limit has to allow it."""
    for bound in bounds:
        if bound.limit is not None:
            return bound.live.waive(value, _WAIVED, now_ms)
    return False
