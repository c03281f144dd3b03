"""The charges for the topics of one request: taken when it is judged, settled by its answer."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from protocol.fields import NO_ID
from protocol.mutation_answers import Outcome
from protocol.mutations import DEFAULT_PARTITIONS, Entries, Entry, Topic
from protocol.overlay import CREATE_PARTITIONS, DELETE_TOPICS
from proxy.session.rules import Rules
from proxy.usage.accounts import Account
from quotas.kinds import QuotaKind
from quotas.mutations import Buckets, Ruling, TokenBound

KIND: Final = QuotaKind.CONTROLLER_MUTATION_RATE

_NOT_SURELY_REFUSED: Final = frozenset((0, -1, 7))
"""Done, UNKNOWN_SERVER_ERROR, REQUEST_TIMED_OUT: a controller may go on after that."""


class Charge(NamedTuple):
    """The charge for one topic."""

    entry: Entry
    partitions: int
    taken: bool
    """From the bucket. In shadow, what would be refused is only counted."""
    in_shadow: bool
    """It was taken from the bucket of a limit that holds nobody, too, if there is one."""


class Judgement:
    """The topics of one request that were charged, and those that are refused; then what became of them.

    ``strict``: its clients know that topics may be refused. ``holds``: what is over a limit is refused, and not only
    counted.
    """

    __slots__ = (
        "_used",
        "account",
        "bounds",
        "charges",
        "entries",
        "holds",
        "imagined",
        "refused",
        "ruling",
        "shadows",
    )

    def __init__(
        self, account: Account, bounds: Sequence[TokenBound], entries: Entries, *, strict: bool, holds: bool
    ) -> None:
        self.account = account
        self.bounds = bounds
        self.entries = entries
        self.holds = holds
        buckets = [(bound, bound.shadow()) for bound in bounds]
        self.shadows = [(bound, bucket) for bound, bucket in buckets if bucket is not None]
        self.ruling = Ruling(Buckets(bounds), strict=strict)
        self.imagined = Ruling(Buckets([bucket for _, bucket in self.shadows]), strict=True)
        self.charges: dict[bytes, Charge] = {}
        """By the name or the id of the topic; an answer takes them out."""
        self.refused: dict[Topic, Entry] = {}
        self._used = 0

    def judge(self, entry: Entry, partitions: int, now_ms: int) -> None:
        """Charge a topic, or refuse it."""
        accepted = self.ruling.accepts(partitions, now_ms)
        in_shadow = self.imagined.accepts(partitions, now_ms)
        if not accepted:
            self.refused[entry.topic] = entry
            if not self.holds:
                for bound in self.bounds:  # what would have been refused is counted, and takes no tokens
                    bound.count(partitions, now_ms)
        if accepted or not self.holds:
            self.charges[entry.key] = Charge(entry, partitions, accepted, in_shadow)

    def give_back(self, now_ms: int) -> None:
        """Take back what was charged: the request does not go."""
        for charge in self.charges.values():
            self._correct(charge, -charge.partitions, now_ms)

    def settle(self, rules: Rules, api_key: int, outcome: Outcome) -> None:
        """Give back what was not carried out of a topic, and charge what was and had not been asked for so."""
        name, topic_id = outcome.topic
        charge = self.charges.pop(name, None) or self.charges.pop(topic_id, None)
        if charge is None:
            return
        carried_out = _carried_out(rules, api_key, charge, outcome)
        if carried_out != charge.partitions:
            self._correct(charge, carried_out - charge.partitions, rules.clock())
        self._used += carried_out

    def stay(self, rules: Rules) -> None:
        """Count what was used, and leave the topics charged of which nobody says what became of them."""
        rules.partitions.forget(charge.entry.topic for charge in self.charges.values())
        used = self._used + sum(charge.partitions for charge in self.charges.values())
        self.account.live_meter.use_of(KIND).used += used
        self._used = 0
        self.charges.clear()

    def _correct(self, charge: Charge, change: int, now_ms: int) -> None:
        """Charge more or less than was thought when the request went."""
        for bound in self.bounds:
            if charge.taken:
                bound.record(change, now_ms)
            else:
                bound.count(change, now_ms)
            live = bound.live
            shadow = live.shadow() if isinstance(live, TokenBound) else None
            if charge.in_shadow and shadow is not None:
                shadow.record(change, now_ms)


def _carried_out(rules: Rules, api_key: int, charge: Charge, outcome: Outcome) -> int:
    """Return how many partitions were made or deleted, and note how many the topic has now.

    Brokers' metadata shows that a moment later, and other connections may have changed the topic meanwhile.
    """
    if outcome.error_code not in _NOT_SURELY_REFUSED:
        return 0
    partitions, topic = rules.partitions, charge.entry.topic
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
