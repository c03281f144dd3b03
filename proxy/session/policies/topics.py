"""The rule of requests that create or delete topics: charged topic by topic, some refused, settled by the answer.

A topic is charged before the request goes, as far as that says what it takes; and by the answer once more, for what
became of it: what a broker refuses is given back. A client that never waits for the answer pays the whole charge.
"""

from collections.abc import Generator, Mapping, Sequence
from typing import Final

from protocol.errors import Cause, ProtocolError
from protocol.headers import request_body_offset
from protocol.mutation_answers import THROTTLING_QUOTA_EXCEEDED, refusal
from protocol.mutations import DEFAULT_PARTITIONS, Entries, Entry, Topic, is_strict, reading_entries, without
from protocol.overlay import CREATE_PARTITIONS, CREATE_TOPICS
from protocol.table import ApiSpec
from proxy.brokers.partitions import Look
from proxy.session.admission import Ticket
from proxy.session.calls import SessionCalls, Waiting
from proxy.session.client_identity import ClientIdentity
from proxy.session.decision import Decision, Forward, Need, Park, Reply, Splice
from proxy.session.mute import Mute
from proxy.session.policies.topic_charges import KIND, Forwarded, Judging, Unsettled
from proxy.session.request import Request
from proxy.session.rules import Rules
from proxy.session.serving import SETTLE
from proxy.session.states import ANSWERING, IN_LINE, TURN
from proxy.session.throttling import Alarm
from quotas.mutations import Buckets, TokenBound

MOST_CLAIMED: Final = 10_000
"""Partitions that a topic is charged before it is there: as many as a KRaft controller makes at once. A broker refuses
most larger claims, and until then nobody else is to pay for them."""

TokenBounds = list[TokenBound]
"""The counters of one client that have a limit, in force or in shadow."""


class TopicsPolicy:
    """Judges the CreateTopics, CreatePartitions and DeleteTopics of one connection."""

    __slots__ = (
        "_alarm",
        "_answer",
        "_counts",
        "_entries",
        "_identity",
        "_judging",
        "_look",
        "_looked_for",
        "_mute",
        "_reading",
        "_rules",
        "_session",
        "_ticket",
        "unsettled",
    )

    def __init__(
        self,
        session: SessionCalls,
        rules: Rules,
        mute: Mute,
        identity: ClientIdentity,
        ticket: Ticket,
    ) -> None:
        self._session = session
        self._rules = rules
        self._mute = mute
        self._identity = identity
        self._ticket = ticket
        self.unsettled = Unsettled(rules)
        self._counts: dict[Topic, int | None] = {}
        """Partitions of topics of the request that waits, as far as that was asked; None: nobody says."""
        self._look: Look | None = None
        self._looked_for: Sequence[Topic] = ()
        self._reading: Generator[None, None, Entries] | None = None
        """The reading of the next request, if it is long: it is read, then judged, while other sessions have turns."""
        self._entries: Entries | None = None
        """The entries of that request, once it has been read and until it has gone."""
        self._judging: Judging | None = None
        self._answer = b""
        """The answer to send when its throttle time is over (response mode ``delay``)."""
        self._alarm: Alarm | None = None

    def before(self, request: Request, now_ms: int) -> Decision:
        """Judge a request topic by topic, once all of it is there, if a quota holds for that.

        Raises ProtocolError for one that is too long, or no request of that API.
        """
        bounds = self._limited_by()
        holds = self._holds(bounds)
        if not bounds or (not holds and request.size > self._rules.mutations_limit):
            return self._forward(request, now_ms)
        if holds and (park := self._wait_to_come(request)):
            return park
        if request.missing:
            return Need(4 + request.size)
        judging = self._judging
        if judging is None:
            decision = self._prepare(request, bounds, now_ms)
            judging = self._judging
            if decision is not None or judging is None:
                return decision or self._forward(request, now_ms)
        if not judging.advance(now_ms):
            return Park(TURN)
        self._forget()
        return self._judged(request, judging, now_ms)

    def _forward(self, request: Request, now_ms: int) -> Forward:
        """Forward a request as it came, charged nothing."""
        account = self._identity.account
        request.count(account)
        return Forward(request.expect(account, now_ms))

    def _limited_by(self) -> TokenBounds:
        """Return the counters of the client that sends now; none if nothing holds for it."""
        if self._rules.throttling.counts:
            live = [bound.live for bound in self._identity.account.bounds(KIND)]
            concern = [bound for bound in live if isinstance(bound, TokenBound) and bound.concerns]
            if concern:
                return concern
        self._drop(self._rules.clock())
        return []

    def _holds(self, bounds: TokenBounds) -> bool:
        """Whether what is over a limit is held up or refused, and not only counted."""
        return self._rules.throttling.enforces and any(bound.limit is not None for bound in bounds)

    def _wait_to_come(self, request: Request) -> Park | None:
        """Park a request until the answer to the one before it. Raises ProtocolError for one that is too long."""
        limit = self._rules.mutations_limit
        if request.size > limit:
            raise ProtocolError(
                Cause.FRAME_TOO_LARGE,
                f"{request.api.spec} request of {request.size} bytes under {KIND}, limits.mutations is {limit}: name "
                "fewer topics in one request",
            )
        # One at a time: each is judged by what has become of the one before.
        return None if self._session.idle else Park(ANSWERING)

    def _prepare(self, request: Request, bounds: TokenBounds, now_ms: int) -> Park | None:
        """Read a request, and park it until all is there to judge it. Returns None if it is ready: for judgement, or,
        without ``_judging``, to go as it came.
        """
        spec, holds = request.api.spec, self._holds(bounds)
        try:
            entries = self._read(spec, request.frame)
        except ProtocolError:
            self._forget()
            if holds:
                raise
            return None
        if entries is None:
            return Park(TURN)
        if entries.validate_only or not entries.topics:
            self._forget()
            return None
        strict = is_strict(spec) or not holds
        if spec.api_key != CREATE_TOPICS and self._look_up(bounds, entries, now_ms, all_go=not (strict and holds)):
            return Park(IN_LINE)
        # Last of all: who is let go is charged at once, or the next one in line would be let go too.
        if not strict and not self._ask(len(entries.topics), now_ms):
            return Park(IN_LINE)
        counts = self._counts
        self._judging = Judging(
            bounds, entries, lambda entry: self._cost(spec, entry, counts), strict=strict, holds=holds
        )
        return None

    def _read(self, spec: ApiSpec, frame: bytes) -> Entries | None:
        """Read the next slice of a request; returns None until it is all read. Raises ProtocolError."""
        if self._entries is not None:
            return self._entries
        if self._reading is None:
            self._reading = reading_entries(spec, frame, request_body_offset(spec, frame, 0, len(frame)))
        try:
            next(self._reading)
        except StopIteration as ended:
            self._entries = ended.value
            self._reading = None
        return self._entries

    def _forget(self) -> None:
        """Be ready for another request."""
        self._reading = self._entries = self._judging = None
        self._counts = {}

    def _drop(self, now_ms: int) -> None:
        """The request that was being judged does not go, or without being charged."""
        if self._judging is not None:
            self._judging.give_back(now_ms)
        self._forget()

    def _ask(self, cost: int, now_ms: int) -> bool:
        account = self._identity.account
        return self._ticket.ask(Waiting.MUTATION, account, account.bounds(KIND), cost, now_ms)

    # ------------------------------------------------------------------------------------- what each topic takes

    def _look_up(self, bounds: TokenBounds, entries: Entries, now_ms: int, *, all_go: bool) -> bool:
        """Ask how many partitions topics have, where that is not known; True if it has to wait for the answer.

        Each takes a token at least, so no more can be accepted than there are tokens: where not ``all_go``, the others
        are not asked about. Those that may go by now, because it took a while, are asked about next.
        """
        topics = list(dict.fromkeys(entry.topic for entry in entries.topics))
        if not all_go:
            topics = topics[: max(int(min(Buckets(bounds).tokens(now_ms) + 1, len(topics))), 0)]
        counts, partitions = self._counts, self._rules.partitions
        counts.update(partitions.known(topic for topic in topics if topic not in counts))
        missing = [topic for topic in topics if topic not in counts]
        if missing:
            self._looked_for = missing
            self._look = partitions.look_up(bounds[0], missing, self._looked)
            if self._look is not None:
                return True
            counts.update(dict.fromkeys(missing))
        return False

    def _looked(self, found: Mapping[Topic, int]) -> None:
        self._look = None
        for topic in self._looked_for:
            self._counts[topic] = found.get(topic)
        self._session.resume(Waiting.MUTATION, self._rules.clock())

    def _cost(self, spec: ApiSpec, entry: Entry, counts: Mapping[Topic, int | None]) -> int:
        """Return what a topic is charged before the broker has said anything of it, 1 where that is not known."""
        partitions = entry.partitions
        if spec.api_key == CREATE_TOPICS:
            if partitions == DEFAULT_PARTITIONS:
                partitions = self._rules.partitions.default_partitions
        else:
            present = counts.get(entry.topic)
            if present is None:
                return 1
            partitions = partitions - present if spec.api_key == CREATE_PARTITIONS else present
        return min(max(partitions, 1), MOST_CLAIMED)

    # ----------------------------------------------------------------------------------------------- judging

    def _judged(self, request: Request, judging: Judging, now_ms: int) -> Decision:
        """Forward what is left of a request, or answer it where nothing is."""
        account, throttling = self._identity.account, self._rules.throttling
        bounds, entries, charges = judging.bounds, judging.entries, judging.charges
        refused, holds = judging.refused, judging.holds
        account.meter.use_of(KIND).requests += 1
        throttle_ms = judging.throttle_ms(now_ms)
        if (shadow_ms := judging.shadow_ms(now_ms)) > 0:
            slowest, _ = max(judging.shadows, key=lambda each: each[1].throttle_ms(now_ms))
            slowest.note_shadow(shadow_ms)
            account.meter.note_shadow(KIND, shadow_ms, now_ms, now_ms)
        if not holds:
            if refused:
                emptiest = max(bounds, key=lambda each: each.throttle_ms(now_ms))
                throttling.given(account, KIND, emptiest, throttle_ms, now_ms)
            refused = {}
            throttle_ms = 0
        elif refused or throttle_ms:
            throttle_ms = self._mute.throttle(account, KIND, throttle_ms, now_ms)
        request.count(account)
        if not charges:
            return self._refuse(request, list(refused.values()), throttle_ms, now_ms)
        self.unsettled.add(Forwarded(account, bounds, charges, list(refused.values()), entries.topics))
        exchange = request.expect(account, now_ms, throttle_ms)
        exchange.actions |= SETTLE
        if not refused:
            return Forward(exchange)
        left_out = [entry for entry in entries.topics if entry.topic in refused]
        rest = without(request.api.spec, request.frame, entries, left_out)
        return Forward(exchange, Splice(request.position, request.end, rest))

    def _refuse(self, request: Request, refused: Sequence[Entry], throttle_ms: int, now_ms: int) -> Reply:
        """Answer a request of which nothing is left; in response mode ``delay`` when its throttle time is over."""
        api = request.api
        answer = refusal(api.spec, request.correlation_id, throttle_ms, refused)
        self._rules.errors.note(api.spec.api_key, THROTTLING_QUOTA_EXCEEDED, len(refused))
        if api.delayed and throttle_ms:
            self._answer = answer
            self._alarm = self._rules.throttling.wake(self, now_ms + throttle_ms)
            return Reply(None)
        self._identity.account.meter.bytes_out += len(answer)
        return Reply(answer)

    def throttle_over(self, now_ms: int) -> None:  # noqa: ARG002  the face of Muted
        """Send the answer that was held back (called by the delay queue)."""
        self._alarm = None
        self._session.answer_locally(self._answer)

    def abort(self) -> None:
        """End the session: to go on has failed (called by the delay queue)."""
        self._session.abort()

    def leave(self, now_ms: int) -> None:
        """Wait for nothing any more: the connection is over."""
        self._drop(now_ms)
        self.unsettled.leave()
        if self._look is not None:
            self._look.wanted = False
            self._look = None
        if self._alarm is not None:
            self._rules.throttling.unwake(self._alarm)
            self._alarm = None
