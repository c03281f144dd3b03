"""Changes of topics that were charged and forwarded: settled by what the answer says has become of each."""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from protocol.errors import ProtocolError
from protocol.fields import NO_ID
from protocol.mutation_answers import THROTTLING_QUOTA_EXCEEDED, Outcome, in_order, read_outcomes, with_refused
from protocol.mutations import DEFAULT_PARTITIONS, Entry
from protocol.overlay import CREATE_PARTITIONS, DELETE_TOPICS
from protocol.table import ApiSpec
from proxy.usage.accounts import Account
from quotas.kinds import QuotaKind
from quotas.mutations import TokenBound

if TYPE_CHECKING:
    from proxy.session.pair import Pair

KIND: Final = QuotaKind.CONTROLLER_MUTATION_RATE

SETTLED_BYTES: Final = 256 * 1024
"""Of longer answers nothing is read: they are long because much has been carried out."""
_BEGINNING_BYTES: Final = 64
_NOT_SURELY_REFUSED: Final = frozenset((0, -1, 7))
"""Done, UNKNOWN_SERVER_ERROR, REQUEST_TIMED_OUT: a controller may go on after that."""


def wanted(size: int) -> int:
    """Return how many bytes of an answer of ``size`` must be there before it is looked at."""
    return 4 + size if size <= SETTLED_BYTES else _BEGINNING_BYTES


class Charge(NamedTuple):
    """What one topic was charged."""

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

    __slots__ = ("_forwarded", "_pair")

    def __init__(self, pair: "Pair") -> None:
        self._pair = pair
        self._forwarded: tuple[Forwarded, ...] = ()  # a list takes memory while it is empty

    def add(self, forwarded: Forwarded) -> None:
        """Wait for an answer."""
        self._forwarded = (*self._forwarded, forwarded)

    def answer(
        self, spec: ApiSpec, chunk: bytes, position: int, size: int, throttle_ms: int, now_ms: int
    ) -> tuple[bytes, int]:
        """Settle the oldest request by its answer at ``position``, and add the topics that were refused here.

        Returns as ``with_refused``; b"" and 0 where the answer goes as it came. Raises ProtocolError where it is none.
        """
        forwarded = self._forwarded[0]
        self._forwarded = self._forwarded[1:]
        outcomes: Sequence[Outcome] | None = None
        frame = chunk[position : position + 4 + size]
        if size <= SETTLED_BYTES:
            with suppress(ProtocolError):  # what cannot be read is passed on, and stays charged
                outcomes = read_outcomes(spec, frame)
        errors = self._pair.rules.errors
        for outcome in outcomes or ():
            errors.note(spec.api_key, outcome.error_code)
        errors.note(spec.api_key, THROTTLING_QUOTA_EXCEEDED, len(forwarded.refused))
        self._settle(forwarded, outcomes or (), spec.api_key, now_ms)
        if not forwarded.refused and not throttle_ms:
            return b"", 0
        if outcomes is None or not forwarded.refused:
            return with_refused(spec, chunk, position, size, throttle_ms, forwarded.refused)
        return in_order(spec, frame, throttle_ms, outcomes, forwarded.refused, forwarded.asked), len(frame)

    def _settle(self, forwarded: Forwarded, outcomes: Sequence[Outcome], api_key: int, now_ms: int) -> None:
        """Give back what was not carried out, and charge what was and had not been asked for so."""
        charges = dict(forwarded.charges)
        used = 0
        for outcome in outcomes:
            name, topic_id = outcome.topic
            charge = charges.pop(name, None) or charges.pop(topic_id, None)
            if charge is None:
                continue
            carried_out = self._carried_out(api_key, charge, outcome)
            if carried_out != charge.partitions:
                for bound in forwarded.bounds:
                    _correct(bound, charge, carried_out - charge.partitions, now_ms)
            used += carried_out
        self._pair.rules.partitions.forget(charge.entry.topic for charge in charges.values())
        used += sum(charge.partitions for charge in charges.values())
        forwarded.account.live_meter.use_of(KIND).used += used

    def _carried_out(self, api_key: int, charge: Charge, outcome: Outcome) -> int:
        """Return how many partitions were made or deleted, and note how many the topic has now.

        Brokers' metadata shows that a moment later, and other connections may have changed the topic meanwhile.
        """
        if outcome.error_code not in _NOT_SURELY_REFUSED:
            return 0
        partitions, topic = self._pair.rules.partitions, charge.entry.topic
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

    def leave(self, now_ms: int) -> None:
        """Let what was forwarded stay charged: nobody will see its answer. The connection is over."""
        for forwarded in self._forwarded:
            self._settle(forwarded, (), 0, now_ms)
        self._forwarded = ()


def _correct(bound: TokenBound, charge: Charge, change: int, now_ms: int) -> None:
    """Charge more or less than was thought when the request went."""
    if charge.taken:
        bound.record(change, now_ms)
    else:
        bound.count(change, now_ms)
    live = bound.live
    shadow = live.shadow() if isinstance(live, TokenBound) else None
    if charge.in_shadow and shadow is not None:
        shadow.record(change, now_ms)
