"""What counters have counted, and whose they are: plain values that leave the engine."""

from typing import Final, NamedTuple

from quotas.entities import Entity
from quotas.kinds import QuotaKind

CLUSTER: Final = -2
"""The broker of a counter that is for all of them (``Row.of_cluster``)."""

FOLDED: Final = "other"
"""The user and the client-id under which counters are summed up that are too many to be told apart."""


class CounterKey(NamedTuple):
    """What tells one counter from another; user and client_id are tags, "" where that part plays no role."""

    kind: QuotaKind
    user: str
    client_id: str
    broker: int
    several: int = 0
    """Bits: the user is a group (GROUP), the client-id a prefix (PREFIX), the rule a cap (CAP). No client can call
    itself into one.
    """


GROUP: Final = 1
PREFIX: Final = 2
CAP: Final = 4


class Counted(NamedTuple):
    """What only grows: the charged units (bytes for byte rates), throttled requests, milliseconds of throttle; of these
    two also what a limit in shadow would have given.
    """

    charged: float = 0.0
    throttled: int = 0
    throttle_ms: int = 0
    shadow_throttled: int = 0
    shadow_throttle_ms: int = 0

    def plus(self, other: "Counted") -> "Counted":
        return Counted(
            self.charged + other.charged,
            self.throttled + other.throttled,
            self.throttle_ms + other.throttle_ms,
            self.shadow_throttled + other.shadow_throttled,
            self.shadow_throttle_ms + other.shadow_throttle_ms,
        )


NOTHING: Final = Counted()


class Gone(NamedTuple):
    """What a counter has counted that is there no more, and whose limit held for it."""

    key: CounterKey
    entity: Entity
    counted: Counted


class CounterState(NamedTuple):
    """What one counter stood at; ``rate`` is in the unit of ``limit``, over the window of enforcement.

    Of a token bucket also what it has left, negative in debt, and the most that it holds.
    """

    kind: QuotaKind
    user: str
    client_id: str
    broker: int
    entity: Entity
    limit: float | None
    """In force; None where the rule is in shadow."""
    rate: float
    charged_total: float
    throttled_total: int
    throttle_ms_total: int
    tokens: float | None = None
    burst: float = 0.0
    shadow_limit: float | None = None
    """Measured, and holding nobody."""
    shadow_throttled_total: int = 0
    shadow_throttle_ms_total: int = 0
