"""One request that creates or deletes topics, judged topic by topic, some topics at a time."""

from collections.abc import Callable, Sequence
from typing import Final

from protocol.mutations import Entries, Entry, Topic
from proxy.session.gates.settling import Charge, correct
from quotas.mutations import Buckets, Ruling, TokenBound
from quotas.token_bucket import TokenBucket

_TOPICS: Final = 250
"""Judged in one turn of the loop: some milliseconds."""


class Judging:
    """What has been judged of a request by now: what was charged, and what is refused.

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
        self.judged = min(begin + _TOPICS, len(topics))
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
