"""The charges for the topics of one request: taken before it goes, settled by its answer."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from protocol.fields import NO_ID
from protocol.mutation_answers import TopicResult
from protocol.mutations import DEFAULT_PARTITIONS, Entries, Topic, TopicEntry
from protocol.overlay import CREATE_PARTITIONS, DELETE_TOPICS
from proxy.session.worker_state import WorkerState
from proxy.usage.accounts import Account
from quotas.kinds import QuotaKind
from quotas.mutations import Ruling, TokenBound

KIND: Final = QuotaKind.CONTROLLER_MUTATION_RATE

_NOT_SURELY_REFUSED: Final = frozenset((0, -1, 7))
"""Done, UNKNOWN_SERVER_ERROR, REQUEST_TIMED_OUT: a controller may go on after that."""


class Charge(NamedTuple):
    entry: TopicEntry
    partitions: int
    over: bool
    """Over the limit, in a mode that does not enforce it: counted, and no tokens taken for it."""
    in_shadow: bool
    """Tokens were taken from the buckets of shadow limits too, if there are any."""


class TopicCharges:
    """The topics of one request: charged before it goes, or refused; settled by its answer.

    ``strict``: its version knows that topics may be refused. ``enforced``: topics over the limit are refused, and not
    only counted.
    """

    __slots__ = ("_quota", "_shadow", "_shadows", "account", "bounds", "charged", "enforced", "entries", "over")

    def __init__(
        self, account: Account, bounds: Sequence[TokenBound], entries: Entries, *, strict: bool, enforced: bool
    ) -> None:
        self.account = account
        self.bounds = bounds
        self.entries = entries
        self.enforced = enforced
        self._shadows = [(bound, bucket) for bound in bounds if (bucket := bound.shadow()) is not None]
        self._quota = Ruling(bounds, strict=strict)
        self._shadow = Ruling([bucket for _, bucket in self._shadows], strict=True)
        self.charged: dict[bytes, Charge] = {}
        """By the name or the id of the topic; an answer takes them out."""
        self.over: dict[Topic, TopicEntry] = {}

    @property
    def refused(self) -> list[TopicEntry]:
        return list(self.over.values()) if self.enforced else []

    def charge(self, entry: TopicEntry, partitions: int, now_ms: int) -> None:
        """Charge a topic, or refuse it. One that is named twice, which brokers refuse, is charged once."""
        if entry.topic in self.over or entry.key in self.charged:
            return
        over = not self._quota.accepts(partitions, now_ms)
        in_shadow = self._shadow.accepts(partitions, now_ms)
        if over:
            self.over[entry.topic] = entry
            if self.enforced:
                return
            for bound in self.bounds:
                bound.count(partitions, now_ms)
        self.charged[entry.key] = Charge(entry, partitions, over, in_shadow)

    def throttle_ms(self, now_ms: int) -> int:
        return self._quota.throttle_ms(now_ms)

    def count_shadow(self, now_ms: int) -> None:
        """Count the throttle that the shadow limits would have caused."""
        shadow_ms = self._shadow.throttle_ms(now_ms)
        if shadow_ms > 0:
            slowest, _ = max(self._shadows, key=lambda each: each[1].throttle_ms(now_ms))
            slowest.count_shadow(shadow_ms)
            self.account.meter.count_shadow(KIND, shadow_ms, now_ms, now_ms)

    def give_back(self, now_ms: int) -> None:
        """Take back what was charged: the request does not go."""
        for charge in self.charged.values():
            self._correct(charge, -charge.partitions, now_ms)

    def settle(self, worker: WorkerState, api_key: int, outcome: TopicResult) -> None:
        """Give back what was not carried out of a topic, and charge what was and had not been asked for so."""
        name, topic_id = outcome.topic
        charge = self.charged.pop(name, None) or self.charged.pop(topic_id, None)
        if charge is None:
            return
        carried_out = _carried_out(worker, api_key, charge, outcome)
        if carried_out != charge.partitions:
            self._correct(charge, carried_out - charge.partitions, worker.clock())
        self.account.live_meter.use_of(KIND).used += carried_out

    def stay(self, worker: WorkerState) -> None:
        """Leave the topics charged of which nobody says what became of them."""
        worker.partitions.forget(charge.entry.topic for charge in self.charged.values())
        self.account.live_meter.use_of(KIND).used += sum(charge.partitions for charge in self.charged.values())
        self.charged.clear()

    def _correct(self, charge: Charge, change: int, now_ms: int) -> None:
        """Charge more or less than was thought when the request went."""
        for bound in self.bounds:
            if charge.over:
                bound.count(change, now_ms)
            else:
                bound.record(change, now_ms)
        if charge.in_shadow:
            for _, bucket in self._shadows:
                bucket.record(change, now_ms)


def _carried_out(worker: WorkerState, api_key: int, charge: Charge, outcome: TopicResult) -> int:
    """Return how many partitions were made or deleted, and note how many the topic has now.

    Brokers' metadata shows that a moment later, and other connections may have changed the topic meanwhile.
    """
    if outcome.error_code not in _NOT_SURELY_REFUSED:
        return 0
    partitions, topic = worker.partitions, charge.entry.topic
    by_name = (outcome.topic[0], NO_ID)
    known = partitions.known((topic, by_name))
    if outcome.error_code or api_key == DELETE_TOPICS:
        partitions.forget((topic, by_name))
        return charge.partitions if outcome.error_code else known.get(by_name, known.get(topic, charge.partitions))
    asked = charge.entry.partitions
    if api_key == CREATE_PARTITIONS:
        present = known.get(topic, asked - charge.partitions)
        partitions.remember(topic, max(asked, present))
        return max(asked - present, 0)
    if outcome.partitions > 0 and asked == DEFAULT_PARTITIONS:
        partitions.default_partitions = outcome.partitions
    made = max(outcome.partitions, asked)
    if made > 0:
        partitions.remember(topic, made)
    return outcome.partitions if outcome.partitions > 0 else charge.partitions
