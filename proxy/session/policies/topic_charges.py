"""Charges for topics that a request creates or deletes: judged before it goes, settled by its answer, in slices."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from protocol.errors import ProtocolError
from protocol.fields import NO_ID
from protocol.mutation_answers import THROTTLING_QUOTA_EXCEEDED, Outcome, in_order, reading_outcomes, with_refused
from protocol.mutations import DEFAULT_PARTITIONS, Entries, Entry, Topic
from protocol.overlay import CREATE_PARTITIONS, DELETE_TOPICS
from protocol.table import ApiSpec
from proxy.session.rules import Rules
from proxy.usage.accounts import Account
from quotas.kinds import QuotaKind
from quotas.mutations import Buckets, Ruling, TokenBound
from quotas.token_bucket import TokenBucket

KIND: Final = QuotaKind.CONTROLLER_MUTATION_RATE

SETTLED_BYTES: Final = 256 * 1024
"""Longer answers are not read: they are long because much has been carried out."""
_BEGINNING_BYTES: Final = 64
_SETTLED_AT_ONCE: Final = 100
"""Topics settled in one turn of the loop: a millisecond or two."""
_NOT_SURELY_REFUSED: Final = frozenset((0, -1, 7))
"""Done, UNKNOWN_SERVER_ERROR, REQUEST_TIMED_OUT: a controller may go on after that."""


def wanted(size: int) -> int:
    """Return how many bytes of an answer of ``size`` must be there before it is looked at."""
    return 4 + size if size <= SETTLED_BYTES else _BEGINNING_BYTES


class Charge(NamedTuple):
    """The charge for one topic."""

    entry: Entry
    partitions: int
    taken: bool
    """From the bucket. In shadow, what would be refused is only counted."""
    in_shadow: bool
    """It was taken from the bucket of a limit that holds nobody, too, if there is one."""


class Forwarded(NamedTuple):
    """A request whose answer is still to come."""

    account: Account
    bounds: Sequence[TokenBound]
    charges: dict[bytes, Charge]
    """By the name or the id of the topic."""
    refused: list[Entry]
    asked: Sequence[Entry]
    """All topics, in the order of the request."""


class Unsettled:
    """The requests of one connection that wait for that, oldest first."""

    __slots__ = ("_forwarded", "_rules", "_settling")

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._forwarded: tuple[Forwarded, ...] = ()  # a list takes memory while it is empty
        self._settling: Settling | None = None

    def add(self, forwarded: Forwarded) -> None:
        """Wait for an answer."""
        self._forwarded = (*self._forwarded, forwarded)

    def answer(self, spec: ApiSpec, chunk: bytes, position: int, size: int, throttle_ms: int) -> "Settling":
        """Return how the oldest request is settled by its answer at ``position``: the same until ``passed``."""
        if self._settling is None:
            forwarded = self._forwarded[0]
            self._forwarded = self._forwarded[1:]
            data = chunk[position : position + 4 + size]
            self._settling = Settling(self._rules, forwarded, spec, data, size, throttle_ms)
        return self._settling

    def passed(self) -> None:
        """Take note that the answer has been passed on."""
        self._settling = None

    def leave(self) -> None:
        """Leave forwarded requests charged: the connection is over, and their answers will not come."""
        if self._settling is not None:
            self._settling.leave()
        for forwarded in self._forwarded:
            _stays_charged(self._rules, forwarded, forwarded.charges, 0)
        self._forwarded = ()


class Settling:
    """An answer on its way: what it says is read, then settled, some topics at a time.

    ``data`` is as much of it as ``wanted`` says.
    """

    __slots__ = (
        "_charges",
        "_data",
        "_forwarded",
        "_is_read",
        "_outcomes",
        "_reading",
        "_rules",
        "_settled",
        "_size",
        "_spec",
        "_throttle_ms",
        "_used",
        "is_done",
        "taken",
        "written",
    )

    def __init__(
        self, rules: Rules, forwarded: Forwarded, spec: ApiSpec, data: bytes, size: int, throttle_ms: int
    ) -> None:
        self._rules = rules
        self._forwarded = forwarded
        self._spec = spec
        self._data = data
        self._size = size
        self._throttle_ms = throttle_ms
        self._outcomes: list[Outcome] = []
        self._is_read = size <= SETTLED_BYTES
        """All of it could be read so far; an answer that cannot be read is passed on, and stays charged."""
        self._reading = reading_outcomes(spec, data, self._outcomes) if self._is_read else None
        self._charges = dict(forwarded.charges)
        self._settled = 0
        self._used = 0
        self.is_done = False
        self.written = b""
        """The new beginning of the answer, when it is done; b"" if it goes as it came."""
        self.taken = 0
        """Bytes of the answer that ``written`` replaces."""

    def advance(self) -> bool:
        """Read, or settle, some more; True when it is done. Raises ProtocolError for what is no answer."""
        if self._reading is not None:
            try:
                next(self._reading)
            except StopIteration:
                self._reading = None
            except ProtocolError:
                self._reading, self._is_read = None, False
                self._outcomes.clear()
            return False
        begin, now_ms = self._settled, self._rules.clock()
        self._settled = min(begin + _SETTLED_AT_ONCE, len(self._outcomes))
        for outcome in self._outcomes[begin : self._settled]:
            self._rules.errors.note(self._spec.api_key, outcome.error_code)
            self._settle(outcome, now_ms)
        if self._settled < len(self._outcomes):
            return False
        self.leave()
        self._write()
        return True

    def leave(self) -> None:
        """Leave the topics charged that have not been settled."""
        if not self.is_done:
            self.is_done = True
            _stays_charged(self._rules, self._forwarded, self._charges, self._used)

    def _write(self) -> None:
        """Add the topics that were refused here."""
        spec, refused = self._spec, self._forwarded.refused
        self._rules.errors.note(spec.api_key, THROTTLING_QUOTA_EXCEEDED, len(refused))
        if not refused and not self._throttle_ms:
            return
        if not self._is_read or not refused:
            self.written, self.taken = with_refused(spec, self._data, 0, self._size, self._throttle_ms, refused)
            return
        asked = self._forwarded.asked
        self.written = in_order(spec, self._data, self._throttle_ms, self._outcomes, refused, asked)
        self.taken = len(self._data)

    def _settle(self, outcome: Outcome, now_ms: int) -> None:
        """Give back what was not carried out, and charge what was and had not been asked for so."""
        name, topic_id = outcome.topic
        charge = self._charges.pop(name, None) or self._charges.pop(topic_id, None)
        if charge is None:
            return
        carried_out = self._carried_out(self._spec.api_key, charge, outcome)
        if carried_out != charge.partitions:
            for bound in self._forwarded.bounds:
                correct(bound, charge, carried_out - charge.partitions, now_ms)
        self._used += carried_out

    def _carried_out(self, api_key: int, charge: Charge, outcome: Outcome) -> int:
        """Return how many partitions were made or deleted, and note how many the topic has now.

        Brokers' metadata shows that a moment later, and other connections may have changed the topic meanwhile.
        """
        if outcome.error_code not in _NOT_SURELY_REFUSED:
            return 0
        partitions, topic = self._rules.partitions, charge.entry.topic
        by_name = (outcome.topic[0], NO_ID)
        known = partitions.known((topic, by_name))
        if outcome.error_code or api_key == DELETE_TOPICS:
            partitions.forget((topic, by_name))
            return charge.partitions if outcome.error_code else known.get(by_name, known.get(topic, charge.partitions))
        asked = charge.entry.partitions
        if api_key == CREATE_PARTITIONS:
            present = known.get(topic, asked - charge.partitions)
            partitions.note(topic, max(asked, present))
            return max(asked - present, 0)
        if outcome.partitions > 0 and asked == DEFAULT_PARTITIONS:
            partitions.default_partitions = outcome.partitions
        made = max(outcome.partitions, asked)
        if made > 0:
            partitions.note(topic, made)
        return outcome.partitions if outcome.partitions > 0 else charge.partitions


def _stays_charged(rules: Rules, forwarded: Forwarded, charges: Mapping[bytes, Charge], used: int) -> None:
    """Count what was used, and ``charges`` of which nobody says what became of them."""
    rules.partitions.forget(charge.entry.topic for charge in charges.values())
    used += sum(charge.partitions for charge in charges.values())
    forwarded.account.live_meter.use_of(KIND).used += used


def correct(bound: TokenBound, charge: Charge, change: int, now_ms: int) -> None:
    """Charge more or less than was thought when the request went."""
    if charge.taken:
        bound.record(change, now_ms)
    else:
        bound.count(change, now_ms)
    live = bound.live
    shadow = live.shadow() if isinstance(live, TokenBound) else None
    if charge.in_shadow and shadow is not None:
        shadow.record(change, now_ms)


_JUDGED_AT_ONCE: Final = 250
"""Topics judged in one turn of the loop: some milliseconds."""


class Judging:
    """The judgement of a request as far as it has come: topics that were charged, and topics that are refused.

    ``strict``: its clients know that topics may be refused. ``holds``: what is over a limit is refused, and not only
    counted. ``cost`` says what a topic takes.
    """

    __slots__ = (
        "_cost",
        "_imagined",
        "_ruling",
        "bounds",
        "charges",
        "entries",
        "holds",
        "judged",
        "refused",
        "shadows",
    )

    def __init__(
        self,
        bounds: Sequence[TokenBound],
        entries: Entries,
        cost: Callable[[Entry], int],
        *,
        strict: bool,
        holds: bool,
    ) -> None:
        self.bounds = bounds
        self.entries = entries
        self.holds = holds
        self.shadows: list[tuple[TokenBound, TokenBucket]] = [
            (bound, bucket) for bound in bounds if (bucket := bound.shadow()) is not None
        ]
        self._cost = cost
        self._ruling = Ruling(Buckets(bounds), strict=strict)
        self._imagined = Ruling(Buckets([bucket for _, bucket in self.shadows]), strict=True)
        self.charges: dict[bytes, Charge] = {}
        self.refused: dict[Topic, Entry] = {}
        self.judged = 0

    def advance(self, now_ms: int) -> bool:
        """Judge the next topics; True when all are."""
        topics = self.entries.topics
        begin = self.judged
        self.judged = min(begin + _JUDGED_AT_ONCE, len(topics))
        for entry in topics[begin : self.judged]:
            if entry.topic in self.refused or entry.key in self.charges:
                continue  # named twice, which brokers refuse: judged once, and as one
            partitions = self._cost(entry)
            accepted = self._ruling.accepts(partitions, now_ms)
            in_shadow = self._imagined.accepts(partitions, now_ms)
            if not accepted:
                self.refused[entry.topic] = entry
                if not self.holds:
                    for bound in self.bounds:  # what would have been refused is counted, and takes no tokens
                        bound.count(partitions, now_ms)
            if accepted or not self.holds:
                self.charges[entry.key] = Charge(entry, partitions, accepted, in_shadow)
        return self.judged == len(topics)

    def throttle_ms(self, now_ms: int) -> int:
        """Return the throttle time that it asks for."""
        return self._ruling.throttle_ms(now_ms)

    def shadow_ms(self, now_ms: int) -> int:
        """Return the same under limits in shadow."""
        return self._imagined.throttle_ms(now_ms)

    def give_back(self, now_ms: int) -> None:
        """Take back what was charged: the request does not go."""
        for charge in self.charges.values():
            for bound in self.bounds:
                correct(bound, charge, -charge.partitions, now_ms)
