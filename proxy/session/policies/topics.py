"""The rule of requests that create or delete topics: charged topic by topic, some refused, settled by the answer.

A topic is charged before the request goes, as far as that says what it takes; and by the answer once more, for what
became of it: what a broker refuses is given back. A client that never waits for the answer pays the whole charge.
Long requests and answers are worked on in slices, between which other sessions have their turns.
"""

from collections.abc import Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from protocol.errors import ProtocolError
from protocol.headers import request_body_offset
from protocol.mutation_answers import (
    THROTTLING_QUOTA_EXCEEDED,
    TopicResult,
    in_order,
    reading_outcomes,
    refusal,
    refused_topic,
    with_refused,
)
from protocol.mutations import DEFAULT_PARTITIONS, Entries, Topic, TopicEntry, is_strict, reading_entries, without
from protocol.overlay import CREATE_PARTITIONS, CREATE_TOPICS
from protocol.table import ApiSpec
from proxy.brokers.partitions import Lookup
from proxy.session.admission import Ended, Waiting
from proxy.session.exchange import Decision, Exchange, Forward, Need, Park, Reply, Request, Splice
from proxy.session.flow import ANSWERING, IN_LINE, TURN
from proxy.session.policies.topic_charges import KIND, TopicCharges
from proxy.session.serving import SETTLE
from quotas.engine import Bound
from quotas.mutations import TokenBound

if TYPE_CHECKING:
    from proxy.session.session import Session

MOST_CLAIMED: Final = 10_000
"""Partitions that a topic is charged before it is there: as many as a KRaft controller makes at once. A broker refuses
most larger claims, and until then nobody else is to pay for them."""

_CHARGED_AT_ONCE: Final = 250
"""Topics charged in one turn of the loop: some milliseconds."""
_SETTLED_AT_ONCE: Final = 100
"""Topics settled in one turn of the loop: a millisecond or two."""
_SETTLED_BYTES: Final = 256 * 1024
"""Longer answers are not read: they are long because much has been carried out."""
_BEGINNING_BYTES: Final = 64


class TopicsPolicy:
    __slots__ = ("_look", "_passed", "_session", "_unsettled", "_work")

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._work: Generator[int | None, None, TopicCharges | None] | None = None
        self._passed: tuple[Bound, ...] = ()
        """The counters that the request that is worked on may pass now (``Request.passed``)."""
        self._look: Lookup | None = None
        """A question under way: how many partitions the topics of that request have."""
        self._unsettled: tuple[TopicCharges, ...] = ()  # a list takes memory while it is empty
        """The charges of the requests in flight; oldest first."""

    # ------------------------------------------------------------------------------------------------------- requests

    def before(self, request: Request, now_ms: int) -> Decision:
        """Charge a request topic by topic, once all of it is there, if its client has a quota.

        Raises ProtocolError for one that is too long, or no request of that API.
        """
        session, limit = self._session, self._session.worker.mutations_limit
        bounds = self._limited()
        enforced = self._enforced(bounds)
        if not bounds or (request.size > limit and not enforced):
            self._drop()
            return Forward(request.expect(session.identity.account, now_ms))
        request.check_size(limit, "limits.mutations", f": name fewer topics in one request, they are under a {KIND}")
        if enforced and not session.idle:
            return Park(ANSWERING)  # one at a time: what became of the one before is settled first
        if request.missing:
            return Need(4 + request.size)
        if self._work is None:
            self._work = self._charge(request.api.spec, request.frame)
        self._passed = request.passed
        try:
            return Park(next(self._work) or TURN)
        except StopIteration as ended:
            charges: TopicCharges | None = ended.value
        self._work = None
        if charges is None:
            return Forward(request.expect(session.identity.account, now_ms))
        return self._charged(request, charges, now_ms)

    def _charge(self, spec: ApiSpec, frame: bytes) -> Generator[int | None, None, TopicCharges | None]:
        """Read and charge a request, in slices. Returns None if it is charged nothing. Raises ProtocolError.

        Yields the reason to park it before the next slice; None: others have their turn.
        """
        try:
            entries = yield from reading_entries(spec, frame, request_body_offset(spec, frame, 0, len(frame)))
        except ProtocolError:
            if self._enforced(self._limited()):
                raise
            return None  # the broker refuses it
        if entries.validate_only or not entries.topics:
            return None
        session, clock = self._session, self._session.worker.clock
        present: dict[Topic, int | None] = {}
        while True:
            account, bounds = session.identity.account, self._limited()
            enforced = self._enforced(bounds)
            strict = is_strict(spec) or not enforced
            knows = spec.api_key == CREATE_TOPICS or self._look_up(
                bounds, entries, present, all_go=not (strict and enforced)
            )
            # Last of all: who is let go is charged at once, or the next one in line would be let go too.
            if knows and (
                strict
                or session.ticket.ask(
                    Waiting.MUTATION, account, account.bounds(KIND), len(entries.topics), clock(), self._passed
                )
            ):
                break
            yield IN_LINE
        charges = TopicCharges(account, bounds, entries, strict=strict, enforced=enforced)
        try:
            for number, entry in enumerate(entries.topics):
                if number and number % _CHARGED_AT_ONCE == 0:
                    yield TURN
                charges.charge(entry, self._partitions(spec, entry, present), clock())
        except GeneratorExit:  # it does not go, or is charged nothing any more
            charges.give_back(clock())
            raise
        return charges

    def _limited(self) -> list[TokenBound]:
        """Return the counters of the client that sends now that have a limit, in force or in shadow."""
        if self._session.worker.throttling.mode == "off":
            return []
        bounds = self._session.identity.account.bounds(KIND)
        return [bound for bound in bounds if isinstance(bound, TokenBound) and bound.concerns]

    def _enforced(self, bounds: Sequence[TokenBound]) -> bool:
        """Whether what is over a limit waits or is refused, and not only counted."""
        return self._session.worker.throttling.enforces and any(bound.limit is not None for bound in bounds)

    def _drop(self) -> None:
        """End the work on a request that does not go, or goes without being charged."""
        if self._work is not None:
            self._work.close()
            self._work = None

    def _look_up(
        self, bounds: Sequence[TokenBound], entries: Entries, present: dict[Topic, int | None], *, all_go: bool
    ) -> bool:
        """Ask how many partitions topics have, where ``present`` does not say; False if it has to wait for the answer.

        Each takes a token at least, so no more can be accepted than there are tokens: where not ``all_go``, the others
        are not asked about. Those that may go by now, because it took a while, are asked about next.
        """
        topics = list(dict.fromkeys(entry.topic for entry in entries.topics))
        if not all_go:
            now_ms = self._session.worker.clock()
            tokens = min([bound.tokens(now_ms) for bound in bounds])  # of the emptiest
            topics = topics[: max(int(min(tokens + 1, len(topics))), 0)]
        partitions = self._session.worker.partitions
        present.update(partitions.known(topic for topic in topics if topic not in present))
        missing = [topic for topic in topics if topic not in present]
        if not missing:
            return True
        present.update(dict.fromkeys(missing))  # nobody says
        self._look = partitions.look_up(bounds[0], missing, partial(self._looked, present))
        return self._look is None

    def _looked(self, present: dict[Topic, int | None], found: Mapping[Topic, int]) -> None:
        self._look = None
        present.update(found)
        self._session.resume(Waiting.MUTATION, Ended(), self._session.worker.clock())

    def _partitions(self, spec: ApiSpec, entry: TopicEntry, present: Mapping[Topic, int | None]) -> int:
        """Return how many partitions a topic is charged for when its request goes; 1 where that is not known."""
        partitions = entry.partitions
        if spec.api_key == CREATE_TOPICS:
            if partitions == DEFAULT_PARTITIONS:
                partitions = self._session.worker.partitions.default_partitions
        else:
            now = present.get(entry.topic)
            if now is None:
                return 1
            partitions = partitions - now if spec.api_key == CREATE_PARTITIONS else now
        return min(max(partitions, 1), MOST_CLAIMED)

    def _charged(self, request: Request, charges: TopicCharges, now_ms: int) -> Decision:
        """Forward what is left of a request, or answer it where nothing is."""
        account, throttling = charges.account, self._session.worker.throttling
        account.meter.use_of(KIND).requests += 1
        charges.count_shadow(now_ms)
        refused, throttle_ms = charges.refused, charges.throttle_ms(now_ms)
        if charges.enforced:
            if refused or throttle_ms:
                throttle_ms = self._session.throttle(account, KIND, throttle_ms, now_ms)
        else:
            if charges.over:
                emptiest = max(charges.bounds, key=lambda each: each.throttle_ms(now_ms))
                throttling.counts.given(account, emptiest, throttle_ms, now_ms)
            throttle_ms = 0
        exchange = request.expect(account, now_ms, throttle_ms)
        if not charges.charged:
            return self._refuse(request, refused, throttle_ms, now_ms)
        self._unsettled = (*self._unsettled, charges)
        exchange.actions |= SETTLE
        if not refused:
            return Forward(exchange)
        left_out = [entry for entry in charges.entries.topics if entry.topic in charges.over]
        rest = without(request.api.spec, request.frame, charges.entries, left_out)
        return Forward(exchange, Splice(request.position, request.end, rest))

    def _refuse(self, request: Request, refused: Sequence[TopicEntry], throttle_ms: int, now_ms: int) -> Reply:
        """Answer a request of which nothing is left; in response mode ``delay`` when its throttle time is over."""
        session, api, worker = self._session, request.api, self._session.worker
        answer = refusal(api.spec, request.correlation_id, throttle_ms, refused)
        worker.errors.count(api.spec.api_key, THROTTLING_QUOTA_EXCEEDED, len(refused))
        if api.delayed and throttle_ms:
            worker.throttling.wake(lambda _: session.answer_locally(answer), session.abort, now_ms + throttle_ms)
            return Reply(None)
        return Reply(answer)

    # -------------------------------------------------------------------------------------------------------- answers

    @staticmethod
    def wanted(size: int) -> int:
        """Return how many bytes of an answer of ``size`` must be there before it is settled."""
        return 4 + size if size <= _SETTLED_BYTES else _BEGINNING_BYTES

    def settle(self, exchange: Exchange, data: bytes, size: int) -> Generator[None, None, Splice | None]:
        """Settle the oldest request by its answer of ``size`` bytes, in slices; ``data`` is as much as ``wanted``.

        Returns the new beginning of the answer, with the topics that were refused here; None: it goes as it came.
        """
        spec, throttle_ms, worker = exchange.api.spec, exchange.throttle_ms, self._session.worker
        charges = self._unsettled[0]
        refused = charges.refused
        outcomes: list[TopicResult] = []
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
            worker.errors.count(spec.api_key, outcome.error_code)
            charges.settle(worker, spec.api_key, outcome)
        told: list[tuple[TopicEntry, bytes]] = []
        for number, entry in enumerate(refused if is_read else ()):
            if number % _SETTLED_AT_ONCE == 0:
                yield
            told.append((entry, refused_topic(spec, entry)))
        self._unsettled = self._unsettled[1:]
        charges.stay(worker)
        worker.errors.count(spec.api_key, THROTTLING_QUOTA_EXCEEDED, len(refused))
        if not refused and not throttle_ms:
            return None
        if told:
            return Splice(0, len(data), in_order(spec, data, throttle_ms, outcomes, told, charges.entries.topics))
        written, taken = with_refused(spec, data, 0, size, throttle_ms, refused)
        return Splice(0, taken, written)

    def leave(self) -> None:
        """End with the connection: a request that has not gone is given back, those in flight stay charged."""
        self._drop()
        for charges in self._unsettled:
            charges.stay(self._session.worker)
        self._unsettled = ()
        if self._look is not None:
            self._look.wanted = False
            self._look = None
