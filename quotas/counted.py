"""Plain values that the engine returns: the keys, totals and states of counters."""

from math import inf
from operator import add, sub
from typing import Final, NamedTuple

from quotas.entities import Entity
from quotas.kinds import QuotaKind

CLUSTER: Final = -2
"""The ``broker`` of a counter that covers the whole cluster (``Row.of_cluster``)."""


class CounterKey(NamedTuple):
    """The identity of a counter. ``user`` and ``client_id`` are tags; "" where that part plays no role."""

    kind: QuotaKind
    user: str
    client_id: str
    broker: int
    several: int = 0
    """Bits: the user is a group (GROUP), the client-id a prefix (PREFIX), the rule a cap (CAP). A client cannot choose
    a name that sets them.
    """


GROUP: Final = 1
PREFIX: Final = 2
CAP: Final = 4


class Counted(NamedTuple):
    """Totals of a counter, which only grow: charged units (bytes for byte rates), throttled requests and milliseconds
    of throttle, and the throttles that a limit in shadow mode would have caused.
    """

    charged: float = 0.0
    throttled: int = 0
    throttle_ms: int = 0
    shadow_throttled: int = 0
    shadow_throttle_ms: int = 0

    def plus(self, other: "Counted") -> "Counted":
        return Counted(*map(add, self, other))

    def minus(self, other: "Counted") -> "Counted":
        return Counted(*map(sub, self, other))


NOTHING: Final = Counted()


class Gone(NamedTuple):
    """The last totals of a counter that was dropped, and the entity whose limit applied."""

    key: CounterKey
    entity: Entity
    counted: Counted


class CounterState(NamedTuple):
    """The state of one counter. ``rate`` is in the unit of ``limit``, over the quota window.

    ``tokens`` and ``burst`` are set for a token bucket: the tokens left, negative in debt, and its capacity.
    """

    kind: QuotaKind
    user: str
    client_id: str
    broker: int
    entity: Entity
    limit: float | None
    """The enforced limit; None if the rule is in shadow mode."""
    rate: float
    charged_total: float
    throttled_total: int
    throttle_ms_total: int
    tokens: float | None = None
    burst: float = 0.0
    shadow_limit: float | None = None
    """The limit that is measured but not enforced."""
    shadow_throttled_total: int = 0
    shadow_throttle_ms_total: int = 0

    @property
    def ratio(self) -> float | None:
        """The used part of the enforced limit; of a token bucket above 1 it is overdrawn, whatever the rate is."""
        if self.limit is None:
            return None
        if self.tokens is not None and self.burst:
            return 1 - self.tokens / self.burst
        # A limit of 0 comes from ZooKeeper only; any usage of it is an infinite ratio.
        return self.rate / self.limit if self.limit else inf if self.rate else 0.0
