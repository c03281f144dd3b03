"""What a client creates and deletes of topics: charged topic by topic, some of them refused, settled by the answer.

A topic is charged before the request goes, as far as that says what it takes; and by the answer once more, for what
became of it: what a broker refuses is given back. Who never waits for the answer pays what was asked for.
"""

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from protocol.errors import Cause, ProtocolError
from protocol.frames import Head
from protocol.headers import request_body_offset
from protocol.mutation_answers import THROTTLING_QUOTA_EXCEEDED, refusal
from protocol.mutations import DEFAULT_PARTITIONS, Entries, Entry, Topic, is_strict, reading_entries, without
from protocol.overlay import CREATE_PARTITIONS, CREATE_TOPICS
from protocol.table import ApiSpec
from proxy.session.gates.judging import Judging
from proxy.session.gates.settling import KIND, Forwarded, Unsettled
from proxy.session.in_flight import InFlight, expect
from proxy.session.partitions import Look
from proxy.session.sender import Sender
from proxy.session.serving import SETTLE, Served
from proxy.session.states import ANSWERING, IN_LINE, LOCAL, TURN
from proxy.session.throttling import Alarm
from proxy.session.turn import What
from proxy.session.waits import Waits
from proxy.usage.accounts import Account
from quotas.mutations import Buckets, TokenBound

if TYPE_CHECKING:
    from proxy.session.pair import Pair

GOES: Final = 0
"""The request is to be forwarded as it came."""
GOES_CHANGED: Final = -1
"""``replacement`` is to be forwarded instead of it."""
REFUSED: Final = -2
"""It has been answered."""

MOST_CLAIMED: Final = 10_000
"""Partitions that a topic is charged before it is there: as many as a KRaft controller makes at once. A broker refuses
most larger claims, and until then nobody else is to pay for them."""

TokenBounds = list[TokenBound]
"""The counters of one client that have a limit, in force or in shadow."""


class MutationGate:
    """Judges the CreateTopics, CreatePartitions and DeleteTopics of one connection."""

    __slots__ = (
        "_alarm",
        "_answer",
        "_counts",
        "_entries",
        "_in_flight",
        "_judging",
        "_look",
        "_looked_for",
        "_pair",
        "_reading",
        "_sender",
        "_waits",
        "replacement",
        "unsettled",
    )

    def __init__(self, pair: "Pair", sender: Sender, in_flight: InFlight, waits: Waits) -> None:
        self._pair = pair
        self._sender = sender
        self._in_flight = in_flight
        self._waits = waits
        self.unsettled = Unsettled(pair)
        self._counts: dict[Topic, int | None] = {}
        """Partitions of topics of the request that waits, as far as that was asked; None: nobody says."""
        self._look: Look | None = None
        self._looked_for: Sequence[Topic] = ()
        self._reading: Generator[None, None, Entries] | None = None
        """Of the request that comes next, if it is long: it is read, and then judged, while others have turns."""
        self._entries: Entries | None = None
        """What it holds, once it has been read and until it has gone."""
        self._judging: Judging | None = None
        self._answer = b""
        """What is to be sent when its throttle time is over (response mode ``delay``)."""
        self._alarm: Alarm | None = None
        self.replacement = b""

    def bounds(self) -> TokenBounds:
        """Return the counters of the client that sends now; none if nothing holds for it."""
        if self._pair.rules.throttling.counts:
            live = [bound.live for bound in self._sender.account.bounds(KIND)]
            concern = [bound for bound in live if isinstance(bound, TokenBound) and bound.concerns]
            if concern:
                return concern
        self._drop(self._pair.rules.clock())
        return []

    def _holds(self, bounds: TokenBounds) -> bool:
        """Whether what is over a limit is held up or refused, and not only counted."""
        return self._pair.rules.throttling.enforces and any(bound.limit is not None for bound in bounds)

    def passes(self, bounds: TokenBounds, size: int) -> bool:
        """Whether a request is too long to be looked at where nothing may be held up or refused."""
        return not self._holds(bounds) and size > self._pair.rules.mutations_limit

    def may_come(self, api: Served, bounds: TokenBounds, size: int) -> int:
        """Look at a request of which only the header has to be there.

        Returns GOES, or the reason why the client has to wait. Raises ProtocolError for one that is too long.
        """
        rules = self._pair.rules
        if not self._holds(bounds):
            return GOES
        if size > rules.mutations_limit:
            raise ProtocolError(
                Cause.FRAME_TOO_LARGE,
                f"{api.spec} request of {size} bytes under {KIND}, limits.mutations is {rules.mutations_limit}: name "
                "fewer topics in one request",
            )
        if not self._pair.idle:
            return ANSWERING  # one at a time: each is judged by what has become of the one before
        return GOES

    def request(self, api: Served, bounds: TokenBounds, frame: bytes, head: Head, now_ms: int) -> int:
        """Judge a whole request. Returns what is to become of it, or the reason why the client has to wait.

        That is TURN of a long one, which is to be given again. Raises ProtocolError for what is no request of that API.
        """
        judging = self._judging
        if judging is None:
            verdict = self._prepare(api, bounds, frame, head, now_ms)
            judging = self._judging
            if verdict or judging is None:
                return verdict
        if not judging.advance(now_ms):
            return TURN
        self._forget()
        return self._judged(api, frame, head, judging, now_ms)

    def _prepare(self, api: Served, bounds: TokenBounds, frame: bytes, head: Head, now_ms: int) -> int:
        """Read a request, and have it wait for what judging it takes. Returns GOES where it waits for nothing: it is to
        be judged, or goes as it came where there is no ``_judging``.
        """
        spec, holds = api.spec, self._holds(bounds)
        try:
            entries = self._read(spec, frame)
        except ProtocolError:
            self._forget()
            if holds:
                raise
            self._expect(api, head, self._sender.account, 0, now_ms, settle=False)
            return GOES
        if entries is None:
            return TURN
        if entries.validate_only or not entries.topics:
            self._forget()
            self._expect(api, head, self._sender.account, 0, now_ms, settle=False)
            return GOES
        strict = is_strict(spec) or not holds
        if spec.api_key != CREATE_TOPICS and self._look_up(bounds, entries, now_ms, all_go=not (strict and holds)):
            return IN_LINE
        # Last of all: who is let go is charged at once, or the next one in line would be let go too.
        if not strict and not self._ask(len(entries.topics), now_ms):
            return IN_LINE
        counts = self._counts
        self._judging = Judging(
            bounds, entries, lambda entry: self._cost(spec, entry, counts), strict=strict, holds=holds
        )
        return GOES

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
        account = self._sender.account
        return self._waits.ask_all(What.MUTATION, account, account.bounds(KIND), cost, now_ms)

    # ------------------------------------------------------------------------------------- what each topic takes

    def _look_up(self, bounds: TokenBounds, entries: Entries, now_ms: int, *, all_go: bool) -> bool:
        """Ask how many partitions topics have, where that is not known; True if the answer is to be waited for.

        Each takes a token at least, so no more can be accepted than there are tokens: where not ``all_go``, the others
        are not asked about. Those that may go by now, because it took a while, are asked about next.
        """
        topics = list(dict.fromkeys(entry.topic for entry in entries.topics))
        if not all_go:
            topics = topics[: max(int(min(Buckets(bounds).tokens(now_ms) + 1, len(topics))), 0)]
        counts, partitions = self._counts, self._pair.rules.partitions
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
        self._pair.turn(What.MUTATION, self._pair.rules.clock())

    def _cost(self, spec: ApiSpec, entry: Entry, counts: Mapping[Topic, int | None]) -> int:
        """Return what a topic is charged before the broker has said anything of it, 1 where that is not known."""
        partitions = entry.partitions
        if spec.api_key == CREATE_TOPICS:
            if partitions == DEFAULT_PARTITIONS:
                partitions = self._pair.rules.partitions.default_partitions
        else:
            present = counts.get(entry.topic)
            if present is None:
                return 1
            partitions = partitions - present if spec.api_key == CREATE_PARTITIONS else present
        return min(max(partitions, 1), MOST_CLAIMED)

    # ----------------------------------------------------------------------------------------------- judging

    def _judged(self, api: Served, frame: bytes, head: Head, judging: Judging, now_ms: int) -> int:
        """Forward what is left of a request, or answer it where nothing is."""
        account, throttling = self._sender.account, self._pair.rules.throttling
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
            throttle_ms = self._pair.throttle(account, KIND, throttle_ms, now_ms)
        if not charges:
            return self._refuse(api, frame, head, list(refused.values()), throttle_ms, now_ms)
        self.unsettled.add(Forwarded(account, bounds, charges, list(refused.values()), entries.topics))
        self._expect(api, head, account, throttle_ms, now_ms, settle=True)
        if not refused:
            return GOES
        left_out = [entry for entry in entries.topics if entry.topic in refused]
        self.replacement = without(api.spec, frame, entries, left_out)
        return GOES_CHANGED

    def _expect(
        self, api: Served, head: Head, account: Account, throttle_ms: int, now_ms: int, *, settle: bool
    ) -> None:
        _count(api, account, 4 + head[0])
        entry = expect(head[2], api, account, now_ms, throttle_ms)
        if settle:
            correlation_id, actions, *_ = entry
            entry = (correlation_id, actions | SETTLE, api, throttle_ms, entry[4], account, now_ms, 0)
        self._in_flight.append(entry)

    def _refuse(
        self, api: Served, frame: bytes, head: Head, refused: Sequence[Entry], throttle_ms: int, now_ms: int
    ) -> int:
        """Answer a request of which nothing is left; in response mode ``delay`` when its throttle time is over."""
        account = self._sender.account
        _count(api, account, len(frame))
        answer = refusal(api.spec, head[2], throttle_ms, refused)
        self._pair.rules.errors.note(api.spec.api_key, THROTTLING_QUOTA_EXCEEDED, len(refused))
        if api.delayed and throttle_ms:
            self._answer = answer
            self._alarm = self._pair.rules.throttling.wake(self, now_ms + throttle_ms)
            return LOCAL
        account.meter.bytes_out += len(answer)
        self._pair.client.write(answer)
        return REFUSED

    def throttle_over(self, now_ms: int) -> None:  # noqa: ARG002  the face of Muted
        """Send the answer that was held back (called by the delay queue)."""
        self._alarm = None
        self._pair.answer_locally(self._answer)

    def abort(self) -> None:
        """End the session: to go on has failed (called by the delay queue)."""
        self._pair.abort()

    def leave(self, now_ms: int) -> None:
        """Wait for nothing any more: the connection is over."""
        self._drop(now_ms)
        self.unsettled.leave()
        if self._look is not None:
            self._look.wanted = False
            self._look = None
        if self._alarm is not None:
            self._pair.rules.throttling.unwake(self._alarm)
            self._alarm = None


def _count(api: Served, account: Account, size: int) -> None:
    api.requests += 1
    account.meter.other_requests += 1
    account.meter.other_bytes += size
