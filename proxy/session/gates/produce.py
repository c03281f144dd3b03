"""What a client produces: charged on the request's header where the quota has that much left, else as it comes.

A claim is not a use. What of a request has not come within COMING_MS is given back and charged when it comes, so that a
Produce which announces much costs those who share its quota what came of it.
"""

from typing import TYPE_CHECKING, Final

from protocol.frames import Head
from protocol.headers import MORE
from proxy.session.gates.produce_body import ProduceBody
from proxy.session.gates.unanswered import ACKS_0
from proxy.session.in_flight import API, CAME_MS, CORRELATION_ID, Entry, InFlight, expect, tell
from proxy.session.request_prefix import RequestPrefix
from proxy.session.sender import Sender
from proxy.session.serving import Served
from proxy.session.states import IN_LINE, TURN
from proxy.session.turn import What
from proxy.session.waits import Waits
from proxy.usage.accounts import Account
from quotas.engine import Bound
from quotas.kinds import QuotaKind
from quotas.rate import Sample

if TYPE_CHECKING:
    from proxy.session.pair import Pair

KIND: Final = QuotaKind.PRODUCER_BYTE_RATE

_MAX_UNANSWERED = 1024

COMING_MS: Final = 100
"""How long others wait for a request to come, by what it announces; then only what has come of it counts. A claim that
nothing follows keeps them no longer."""


class ProduceGate:
    """Charges the Produce requests of one connection."""

    __slots__ = (
        "_body",
        "_in_flight",
        "_pair",
        "_sender",
        "_unanswered",
        "_waits",
        "bound",
        "caps",
        "generation",
        "prefix",
    )

    def __init__(self, pair: "Pair", sender: Sender, in_flight: InFlight, waits: Waits) -> None:
        self._pair = pair
        self._sender = sender
        self._in_flight = in_flight
        self._waits = waits
        self.prefix = RequestPrefix()
        self.bound: Bound
        """What the account is charged to, right for ``generation``; once ``prefix`` has been read."""
        self.caps: tuple[Bound, ...] = ()
        """What it is charged to besides, likewise."""
        self.generation = -1
        self._body: ProduceBody | None = None
        """Of the request charged last, if its end is still to come."""
        self._unanswered = 0
        """Requests with acks=0, whose number no answers bound: a chunk has room for 10,000."""

    def request(self, api: Served, chunk: bytes, position: int, head: Head, body: int, now_ms: int) -> int:
        """Charge the request at ``position``, whose body begins at ``body`` (or UNREAD).

        Returns 0, or MORE if what that takes is not all there, or the reason why the client has to wait. Raises
        ProtocolError if the request ends inside what has to be read of it.
        """
        size: int = head[0]
        end = position + 4 + size
        field = self.prefix.find(api, chunk, position, end, body)
        if field == MORE:
            return MORE
        rules, account = self._pair.rules, self._sender.account
        bound = self.bound = account.bound(KIND)
        caps = self.caps = account.caps(KIND)
        self.generation = rules.engine.generation
        missing = end - len(chunk)
        came = size - max(missing, 0)
        throttle_ms = 0
        if not rules.throttling.enforces:
            account.charge(KIND, size, now_ms)
            rules.throttling.imagine(account, KIND, size, now_ms, id(self))
            self.prefix.forget()  # the next one has to come by here too
        elif not self._may_go(account, came, size, now_ms):
            return IN_LINE
        else:
            for each in (bound, *caps):
                self.go_ahead(each, came, now_ms)
            throttle_ms = account.charge(KIND, size, now_ms)
            if account.has_shadow(KIND):
                rules.throttling.imagine(account, KIND, size, now_ms, id(self))
                self.prefix.forget()
        api.requests += 1
        account.meter.produce_requests += 1
        account.meter.produce_bytes += size
        self.charged(api, head[2], throttle_ms, chunk.startswith(ACKS_0, field), missing, now_ms)
        return 0

    @property
    def are_caps_shut(self) -> bool:
        """Requests have to ask at a cap before they are charged: they come by here."""
        for cap in self.caps:  # noqa: SIM110  hot, and compiled a generator is an object
            if cap.shut:
                return True
        return False

    def charge_caps(self, size: int, throttle_ms: int, now_ms: int) -> int:
        """Charge a request to what it is charged to besides; returns the longest throttle time, that of the first
        counter among them.
        """
        for cap in self.caps:
            throttle_ms = max(cap.charge(size, now_ms), throttle_ms)
        return throttle_ms

    def _may_go(self, account: Account, came: int, size: int, now_ms: int) -> bool:
        """Whether all counters let a request go; if not it waits in line.

        It costs others what has come of it, and its own client's turns what it announces: others wait for it to come.
        """
        bound, caps = self.bound, self.caps
        if bound.shut and not self._waits.ask(What.REQUEST, account, bound, came, now_ms, size):
            return False
        return not caps or self._waits.ask_all(What.REQUEST, account, caps, came, now_ms, size)

    @property
    def enforces(self) -> bool:
        """Whether quotas hold anybody now."""
        return self._pair.rules.throttling.enforces

    def go_ahead(self, bound: Bound, came: int, now_ms: int) -> None:
        """Let the counter owe what came within a debt because a re-authentication stands behind it."""
        if bound.shut and now_ms >= self._pair.sasl.deadline_ms and (counter := bound.live).owed_ms(now_ms):
            counter.bring_forward(came, now_ms)

    def charged(
        self, api: Served, correlation_id: int, throttle_ms: int, acks_0: bool, missing: int, now_ms: int
    ) -> None:
        """Mute for what a charge asked for, and expect the answer that is to tell it.

        Of a request that is more than its quota has left only what has come is charged: ``missing`` is still to come.
        """
        account, bounds = self._sender.account, (self.bound, *self.caps)
        claims = missing <= 0 or self._may_claim(now_ms)
        as_it_comes = missing > 0 and (throttle_ms > 0 or not claims)
        over: list[Bound] = []
        if as_it_comes:
            for bound in bounds:
                over_ms = bound.check(now_ms) if claims else 0
                if over_ms:
                    bound.live.owe(min(over_ms, COMING_MS), now_ms)
                    over.append(bound.live)
                bound.take_back(missing, bound.mark)
            throttle_ms = 0
        elif throttle_ms:
            throttle_ms = self._pair.throttle(account, KIND, throttle_ms, now_ms)
        entry = None
        if not acks_0:  # with acks=0 no answer comes: the mute is all there is
            entry = expect(correlation_id, api, account, now_ms, throttle_ms)
            self._in_flight.append(entry)
        else:
            self._unanswered += 1
        if missing > 0:
            marks = [] if as_it_comes else [bound.mark for bound in bounds]
            self._body = self._coming(marks, missing, entry, now_ms, claims=claims)
            for counter in over:
                if counter.streamer is None:
                    counter.streamer = self._body

    def _may_claim(self, now_ms: int) -> bool:
        """Whether others wait for a request to come: not for a while after one has not come in time."""
        return all(bound.live.claims_from_ms <= now_ms for bound in (self.bound, *self.caps))

    def after(self) -> int:
        """Return why nothing is to be read behind the last request: of many without answers, others have a turn."""
        if self._unanswered < _MAX_UNANSWERED:
            return 0
        self._unanswered = 0
        return TURN

    def take_body(self, missing: int) -> ProduceBody | None:
        """Return the body of the request charged last, of which so much is still to come; for the caller to keep."""
        body, self._body = self._body, None
        if body is not None:
            body.count(-missing)
        return body

    def under_way(self, entry: Entry, missing: int) -> ProduceBody:
        """Return the body of a request that was charged whole, and is expected to be answered as ``entry`` says."""
        now_ms: int = entry[CAME_MS]
        marks = [bound.mark for bound in (self.bound, *self.caps)]
        if claims := self._may_claim(now_ms):
            return self._coming(marks, missing, entry, now_ms, claims=claims)
        for bound, mark in zip((self.bound, *self.caps), marks, strict=True):
            bound.take_back(missing, mark)
        return self._coming([], missing, entry, now_ms, claims=claims)

    def _coming(
        self, marks: list[tuple[Sample, int]], missing: int, entry: Entry | None, now_ms: int, *, claims: bool
    ) -> ProduceBody:
        account, bounds = self._sender.account, (self.bound, *self.caps)
        body = ProduceBody(self, self._pair, account, bounds, marks, missing, entry)
        if claims and account.limited(KIND):
            body.lapses_at(now_ms + COMING_MS)
        return body

    def ask_on(self, account: Account, bounds: list[Bound], size: int, now_ms: int) -> bool:
        """Whether the rest of a request may come, of which ``size`` has just come, as far as these are concerned."""
        return self._waits.ask_all(What.BODY, account, tuple(bounds), size, now_ms)

    def told(self, entry: Entry | None, account: Account, throttle_ms: int, now_ms: int) -> None:
        """Throttle for a request that was charged as it came, and let its answer tell that."""
        throttle_ms = self._pair.throttle(account, KIND, throttle_ms, now_ms)
        if not throttle_ms or entry is None or not self._in_flight:
            return
        last = self._in_flight[-1]
        if (
            last[API] is entry[API]
            and last[CORRELATION_ID] == entry[CORRELATION_ID]
            and last[CAME_MS] == entry[CAME_MS]
        ):
            self._in_flight[-1] = tell(last, throttle_ms, now_ms)
