"""The quota kinds: a table with a row for each.

Each row holds everything specific to its kind. The quota file, counters, usage records, metrics and the analysis are
driven by this table (docs/extending.md).
"""

from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from math import inf
from typing import Final, NamedTuple, Self


class Law(Enum):
    """The arithmetic that compares usage with a limit."""

    SAMPLED_RATE = auto()
    """A rate over the quota window."""
    TOKEN_BUCKET = auto()


class Written(Enum):
    """The type of a limit (QuotaConfig); the value is its maximum."""

    BYTES = 2**63 - 1
    """A LONG, optionally with a unit."""
    NUMBER = inf
    """A DOUBLE."""
    WHOLE = 2**31 - 1
    """An INT."""


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of a limit; kinds with the same unit share metric families."""

    rate: str
    """The suffix of metric families that show a limit or a rate."""
    charged: str
    """The suffix of the metric family that counts charged units (the limit's unit times seconds)."""
    said: str
    """The help text of that family."""
    used: str
    """The suffix of the usage-record column that counts it, in whole numbers."""
    per_used: float = 1.0
    """The factor from that column to the limit's unit times seconds."""
    by_direction: bool = False
    """The family's label is ``direction`` (the kind's word) and not ``kind``."""


BYTES: Final = Unit(
    "bytes_per_second", "bytes", "Bytes charged: of produce requests, of fetch responses.", "bytes", by_direction=True
)
PERCENT: Final = Unit(
    "percent", "percent_seconds", "Thread time charged: a second of one thread is 100.", "thread_us", per_used=1e-4
)
MUTATIONS: Final = Unit(
    "mutations_per_second", "mutations", "Mutations charged: partitions created or deleted.", "partitions"
)
CONNECTIONS: Final = Unit("connections_per_second", "connections", "Connections charged.", "attempts")


class Columns(NamedTuple):
    """The names of a kind's columns in usage records (docs/usage-records.md)."""

    used: str
    requests: str
    limit: str
    rule: str
    counter_user: str
    counter_client_id: str
    throttled: str
    throttle_ms: str
    muted_ms: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The properties of a quota kind."""

    word: str
    """The kind's name for people, and the prefix of its columns in usage records."""
    doing: str
    """The verb for messages: a client is throttled while ..."""
    unit: Unit
    written: Written
    law: Law = Law.SAMPLED_RATE
    of_ip: bool = False
    """The limits are of addresses; otherwise of users, client-ids and pairs of them."""
    capped: bool = False
    """No throttle is longer than one sample of the window (QuotaUtils)."""
    of_cluster: bool = False
    """Counted once for all brokers, as the controller does (ControllerMutationQuotaManager)."""

    @property
    def columns(self) -> Columns:
        """The kind's columns in usage records, in order."""
        charged = (self.unit.used, "requests", "limit", "rule", "counter_user", "counter_client_id")
        ends = (*charged, "throttled", "throttle_ms", "muted_ms")
        return Columns(*(f"{self.word}_{end}" for end in ends))

    @property
    def shadow_columns(self) -> tuple[str, ...]:
        """The columns of a shadow limit, in usage records that have one."""
        return tuple(f"{self.word}_shadow_{end}" for end in ("limit", "throttled", "throttle_ms", "muted_ms"))

    @property
    def cap_columns(self) -> tuple[str, ...]:
        """The columns of caps, in usage records that have any."""
        return (
            f"{self.word}_caps",
            *(f"{self.word}_cap_{end}" for end in ("rule", "throttled", "throttle_ms", "muted_ms")),
        )


class QuotaKind(StrEnum):
    """The quota kinds; each value is the property name that ``kafka-configs.sh`` uses (QuotaConfig)."""

    row: Row

    def __new__(cls, name: str, *row: Row) -> Self:
        """Create a member from its name and row; ``QuotaKind(name)`` finds a member, as in every Enum."""
        kind = str.__new__(cls, name)
        kind._value_ = name
        (kind.row,) = row
        return kind

    __hash__ = str.__hash__  # hot: every request looks a counter up by its kind, and Enum's own hash is Python code

    PRODUCER_BYTE_RATE = (
        "producer_byte_rate",
        Row(word="produce", doing="producing", unit=BYTES, written=Written.BYTES),
    )
    CONSUMER_BYTE_RATE = (
        "consumer_byte_rate",
        Row(word="fetch", doing="consuming", unit=BYTES, written=Written.BYTES),
    )
    REQUEST_PERCENTAGE = (
        "request_percentage",
        Row(word="request", doing="sending requests", unit=PERCENT, written=Written.NUMBER, capped=True),
    )
    CONTROLLER_MUTATION_RATE = (
        "controller_mutation_rate",
        Row(
            word="mutation",
            doing="changing topics",
            unit=MUTATIONS,
            written=Written.NUMBER,
            law=Law.TOKEN_BUCKET,
            of_cluster=True,
        ),
    )
    CONNECTION_CREATION_RATE = (
        "connection_creation_rate",
        Row(word="connection", doing="connecting", unit=CONNECTIONS, written=Written.WHOLE, of_ip=True, capped=True),
    )


OF_CLIENT: Final = {kind.value: kind for kind in QuotaKind if not kind.row.of_ip}
OF_IP: Final = {kind.value: kind for kind in QuotaKind if kind.row.of_ip}
CLIENT_KINDS: Final = tuple(OF_CLIENT.values())
"""The kinds for users and client-ids: the engine, metrics, usage records and the analysis cover these."""
