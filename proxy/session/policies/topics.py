"""The rule of requests that create or delete topics: charged topic by topic, some refused, settled by the answer.

A topic is charged before the request goes, as far as that says what it takes; and by the answer once more, for what
became of it: what a broker refuses is given back. A client that never waits for the answer pays the whole charge.
Long requests and answers are worked on in slices, between which other sessions have their turns.
"""

from collections.abc import Generator, Mapping, Sequence
from functools import partial
from typing import Final

from protocol.errors import Cause, ProtocolError
from protocol.headers import request_body_offset
from protocol.mutation_answers import (
    THROTTLING_QUOTA_EXCEEDED,
    Outcome,
    in_order,
    reading_outcomes,
    refusal,
    refused_topic,
    with_refused,
)
from protocol.mutations import DEFAULT_PARTITIONS, Entries, Entry, Topic, is_strict, reading_entries, without
from protocol.overlay import CREATE_PARTITIONS, CREATE_TOPICS
from protocol.table import ApiSpec
from proxy.brokers.partitions import Look
from proxy.session.context import SessionContext, Waiting
from proxy.session.exchange import Decision, Exchange, Forward, Need, Park, Reply, Request, Splice
from proxy.session.flow import ANSWERING, IN_LINE, TURN
from proxy.session.policies.topic_charges import KIND, Judgement
from proxy.session.serving import SETTLE
from proxy.session.throttling import Alarm
from quotas.mutations import Buckets, TokenBound

MOST_CLAIMED: Final = 10_000
"""Partitions that a topic is charged before it is there: as many as a KRaft controller makes at once. A broker refuses
most larger claims, and until then nobody else is to pay for them."""

_JUDGED_AT_ONCE: Final = 250
"""Topics judged in one turn of the loop: some milliseconds."""
_SETTLED_AT_ONCE: Final = 100
"""Topics settled in one turn of the loop: a millisecond or two."""
_SETTLED_BYTES: Final = 256 * 1024
"""Longer answers are not read: they are long because much has been carried out."""
_BEGINNING_BYTES: Final = 64


def wanted(size: int) -> int:
    """Return how many bytes of an answer of ``size`` must be there before it is looked at."""
    return 4 + size if size <= _SETTLED_BYTES else _BEGINNING_BYTES


class Settling:
    """An answer that settles a request, a slice at a time."""

    __slots__ = ("_work", "change")

    def __init__(self, work: Generator[None, None, Splice | None]) -> None:
        self._work = work
        self.change: Splice | None = None
        """The new beginning of the answer, once it is done; None if it goes as it came."""

    def advance(self) -> bool:
        """Read, or settle, some more; True when it is done. Raises ProtocolError for what is no answer."""
        try:
            next(self._work)
        except StopIteration as ended:
            self.change = ended.value
            return True
        return False


class TopicsPolicy:
    """Judges the CreateTopics, CreatePartitions and DeleteTopics of one connection."""

    __slots__ = ("_alarm", "_answer", "_counts", "_gone", "_judgement", "_look", "_session", "_work")

    def __init__(self, session: SessionContext) -> None:
        self._session = session
        self._work: Generator[int, None, None] | None = None
        """The work on the next request: yields the reasons why it is not done."""
        self._judgement: Judgement | None = None
        """The judgement of that request, as far as it has come; none if the request goes as it came."""
        self._counts: dict[Topic, int | None] = {}
        """Partitions of the topics of that request, as far as that was asked; None: nobody says."""
        self._look: Look | None = None
        self._gone: tuple[Judgement, ...] = ()  # a list takes memory while it is empty
        """The requests that have gone, until their answers have settled them; oldest first."""
        self._answer = b""
        """The answer to send when its throttle time is over (response mode ``delay``)."""
        self._alarm: Alarm | None = None

    # ------------------------------------------------------------------------------------------------------- requests

    def before(self, request: Request, now_ms: int) -> Decision:
        """Judge a request topic by topic, once all of it is there, if a quota holds for that.

        Raises ProtocolError for one that is too long, or no request of that API.
        """
        limit, bounds = self._session.rules.mutations_limit, self._limited_by()
        if not bounds:
            self._drop(now_ms)
            return self._forward(request, now_ms)
        if self._holds(bounds):
            if request.size > limit:
                raise ProtocolError(
                    Cause.FRAME_TOO_LARGE,
                    f"{request.api.spec} request of {request.size} bytes under {KIND}, limits.mutations is {limit}: "
                    "name fewer topics in one request",
                )
            if not self._session.idle:
                return Park(ANSWERING)  # one at a time: each is judged by what has become of the one before
        elif request.size > limit:
            return self._forward(request, now_ms)
        if request.missing:
            return Need(4 + request.size)
        if self._work is None:
            self._work = self._judge(request.api.spec, request.frame)
        if reason := next(self._work, 0):
            return Park(reason)
        judgement = self._judgement
        self._forget()
        return self._forward(request, now_ms) if judgement is None else self._judged(request, judgement, now_ms)

    def _judge(self, spec: ApiSpec, frame: bytes) -> Generator[int, None, None]:
        """Read and judge a request, in slices: yields the reason to park it before the next. Raises ProtocolError."""
        reading, entries = reading_entries(spec, frame, request_body_offset(spec, frame, 0, len(frame))), None
        while entries is None:
            try:
                next(reading)
            except StopIteration as ended:
                entries = ended.value
            except ProtocolError:
                if self._holds(self._limited_by()):
                    raise
                return
            else:
                yield TURN
        if entries.validate_only or not entries.topics:
            return
        while True:
            bounds = self._limited_by()
            holds = self._holds(bounds)
            strict = is_strict(spec) or not holds
            knows = spec.api_key == CREATE_TOPICS or self._look_up(bounds, entries, all_go=not (strict and holds))
            # Last of all: who is let go is charged at once, or the next one in line would be let go too.
            if knows and (strict or self._ask(len(entries.topics))):
                break
            yield IN_LINE
        judgement = self._judgement = Judgement(
            self._session.identity.account, bounds, entries, strict=strict, holds=holds
        )
        for number, entry in enumerate(entries.topics):
            if number and number % _JUDGED_AT_ONCE == 0:
                yield TURN
            if entry.topic not in judgement.refused and entry.key not in judgement.charges:
                # Named twice, which brokers refuse: judged once, and as one.
                judgement.judge(entry, self._cost(spec, entry), self._session.rules.clock())

    def _forward(self, request: Request, now_ms: int) -> Forward:
        """Forward a request as it came, charged nothing."""
        account = self._session.identity.account
        request.count(account)
        return Forward(request.expect(account, now_ms))

    def _limited_by(self) -> list[TokenBound]:
        """Return the counters of the client that sends now that have a limit, in force or in shadow."""
        if not self._session.rules.throttling.counts:
            return []
        live = [bound.live for bound in self._session.identity.account.bounds(KIND)]
        return [bound for bound in live if isinstance(bound, TokenBound) and bound.concerns]

    def _holds(self, bounds: Sequence[TokenBound]) -> bool:
        """Whether what is over a limit is held up or refused, and not only counted."""
        return self._session.rules.throttling.enforces and any(bound.limit is not None for bound in bounds)

    def _forget(self) -> None:
        """Be ready for another request."""
        self._work = self._judgement = None
        self._counts = {}

    def _drop(self, now_ms: int) -> None:
        """The request that was being judged does not go, or without being charged."""
        if self._judgement is not None:
            self._judgement.give_back(now_ms)
        self._forget()

    def _ask(self, cost: int) -> bool:
        account, now_ms = self._session.identity.account, self._session.rules.clock()
        return self._session.ticket.ask(Waiting.MUTATION, account, account.bounds(KIND), cost, now_ms)

    # ------------------------------------------------------------------------------------- what each topic takes

    def _look_up(self, bounds: Sequence[TokenBound], entries: Entries, *, all_go: bool) -> bool:
        """Ask how many partitions topics have, where that is not known; False if it has to wait for the answer.

        Each takes a token at least, so no more can be accepted than there are tokens: where not ``all_go``, the others
        are not asked about. Those that may go by now, because it took a while, are asked about next.
        """
        topics = list(dict.fromkeys(entry.topic for entry in entries.topics))
        if not all_go:
            tokens = Buckets(bounds).tokens(self._session.rules.clock())
            topics = topics[: max(int(min(tokens + 1, len(topics))), 0)]
        counts, partitions = self._counts, self._session.rules.partitions
        counts.update(partitions.known(topic for topic in topics if topic not in counts))
        missing = [topic for topic in topics if topic not in counts]
        if missing:
            self._look = partitions.look_up(bounds[0], missing, partial(self._looked, missing))
            if self._look is not None:
                return False
            counts.update(dict.fromkeys(missing))
        return True

    def _looked(self, topics: Sequence[Topic], found: Mapping[Topic, int]) -> None:
        self._look = None
        for topic in topics:
            self._counts[topic] = found.get(topic)
        self._session.resume(Waiting.MUTATION, self._session.rules.clock())

    def _cost(self, spec: ApiSpec, entry: Entry) -> int:
        """Return what a topic is charged before the broker has said anything of it, 1 where that is not known."""
        partitions = entry.partitions
        if spec.api_key == CREATE_TOPICS:
            if partitions == DEFAULT_PARTITIONS:
                partitions = self._session.rules.partitions.default_partitions
        else:
            present = self._counts.get(entry.topic)
            if present is None:
                return 1
            partitions = partitions - present if spec.api_key == CREATE_PARTITIONS else present
        return min(max(partitions, 1), MOST_CLAIMED)

    # ------------------------------------------------------------------------------------------- what is judged, goes

    def _judged(self, request: Request, judgement: Judgement, now_ms: int) -> Decision:
        """Forward what is left of a request, or answer it where nothing is."""
        account, throttling, spec = judgement.account, self._session.rules.throttling, request.api.spec
        refused = list(judgement.refused.values())
        account.meter.use_of(KIND).requests += 1
        throttle_ms = judgement.ruling.throttle_ms(now_ms)
        if (shadow_ms := judgement.imagined.throttle_ms(now_ms)) > 0:
            slowest, _ = max(judgement.shadows, key=lambda each: each[1].throttle_ms(now_ms))
            slowest.note_shadow(shadow_ms)
            account.meter.note_shadow(KIND, shadow_ms, now_ms, now_ms)
        if not judgement.holds:
            if refused:
                emptiest = max(judgement.bounds, key=lambda each: each.throttle_ms(now_ms))
                throttling.given(account, KIND, emptiest, throttle_ms, now_ms)
            refused.clear()
            judgement.refused.clear()
            throttle_ms = 0
        elif refused or throttle_ms:
            throttle_ms = self._session.mute.throttle(account, KIND, throttle_ms, now_ms)
        request.count(account)
        if not judgement.charges:
            return self._refuse(request, refused, throttle_ms, now_ms)
        self._gone = (*self._gone, judgement)
        exchange = request.expect(account, now_ms, throttle_ms)
        exchange.actions |= SETTLE
        if not refused:
            return Forward(exchange)
        left_out = [entry for entry in judgement.entries.topics if entry.topic in judgement.refused]
        rest = without(spec, request.frame, judgement.entries, left_out)
        return Forward(exchange, Splice(request.position, request.end, rest))

    def _refuse(self, request: Request, refused: Sequence[Entry], throttle_ms: int, now_ms: int) -> Reply:
        """Answer a request of which nothing is left; in response mode ``delay`` when its throttle time is over."""
        api, rules = request.api, self._session.rules
        answer = refusal(api.spec, request.correlation_id, throttle_ms, refused)
        rules.errors.note(api.spec.api_key, THROTTLING_QUOTA_EXCEEDED, len(refused))
        if api.delayed and throttle_ms:
            self._answer = answer
            self._alarm = rules.throttling.wake(self, now_ms + throttle_ms)
            return Reply(None)
        self._session.identity.account.meter.bytes_out += len(answer)
        return Reply(answer)

    def throttle_over(self, now_ms: int) -> None:  # noqa: ARG002  the face of Muted
        """Send the answer that was held back (called by the delay queue)."""
        self._alarm = None
        self._session.answer_locally(self._answer)

    def abort(self) -> None:
        """End the session: to go on has failed (called by the delay queue)."""
        self._session.abort()

    # -------------------------------------------------------------------------------------------------------- answers

    def settle(self, exchange: Exchange, data: bytes, size: int) -> Settling:
        """Return how the oldest request is settled by its answer of ``size`` bytes; ``data``: what is ``wanted`` of it.

        Topics that were refused here are added to the answer.
        """
        return Settling(self._settle(exchange.api.spec, data, size, exchange.throttle_ms))

    def _settle(self, spec: ApiSpec, data: bytes, size: int, throttle_ms: int) -> Generator[None, None, Splice | None]:
        rules, judgement = self._session.rules, self._gone[0]
        refused, asked = list(judgement.refused.values()), judgement.entries.topics
        outcomes: list[Outcome] = []
        is_read = size <= _SETTLED_BYTES
        try:
            if is_read:
                yield from reading_outcomes(spec, data, outcomes)
        except ProtocolError:  # it is passed on, and stays charged
            is_read = False
            outcomes.clear()
        for number, outcome in enumerate(outcomes):
            if number % _SETTLED_AT_ONCE == 0:
                yield
            rules.errors.note(spec.api_key, outcome.error_code)
            judgement.settle(rules, spec.api_key, outcome)
        told: list[tuple[Entry, bytes]] = []
        for number, entry in enumerate(refused if is_read else ()):
            if number % _SETTLED_AT_ONCE == 0:
                yield
            told.append((entry, refused_topic(spec, entry)))
        self._gone = self._gone[1:]
        judgement.stay(rules)
        rules.errors.note(spec.api_key, THROTTLING_QUOTA_EXCEEDED, len(refused))
        if not refused and not throttle_ms:
            return None
        if told:
            return Splice(0, len(data), in_order(spec, data, throttle_ms, outcomes, told, asked))
        written, taken = with_refused(spec, data, 0, size, throttle_ms, refused)
        return Splice(0, taken, written)

    def leave(self, now_ms: int) -> None:
        """Wait for nothing any more: the connection is over. What has gone stays charged."""
        self._drop(now_ms)
        for judgement in self._gone:
            judgement.stay(self._session.rules)
        self._gone = ()
        if self._look is not None:
            self._look.wanted = False
            self._look = None
        if self._alarm is not None:
            self._session.rules.throttling.unwake(self._alarm)
            self._alarm = None
