"""The quota kinds: a table with a row for each.

What a kind is by itself stands in its row alone. The quota file, the counters, usage records, metrics and the analysis
go by the table: what they have for a kind follows from its row (docs/extending.md).
"""

from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from math import inf
from typing import Final, NamedTuple, Self


class Law(Enum):
    """How what was used is held against a limit."""

    SAMPLED_RATE = auto()
    """A rate over the window of enforcement."""
    TOKEN_BUCKET = auto()


class Whose(Enum):
    """Whom limits are for."""

    CLIENT = auto()
    """Users, client-ids and pairs of them."""
    IP = auto()


class Written(Enum):
    """How a limit is written, by the type that Kafka gives it (QuotaConfig); the value is its most."""

    BYTES = 2**63 - 1
    """A LONG, with a unit if one likes."""
    NUMBER = inf
    """A DOUBLE."""
    WHOLE = 2**31 - 1
    """An INT."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What a limit counts; several kinds may share one, and then share its metric families."""

    rate: str
    """The end of the names of families that show a limit, or a rate."""
    charged: str
    """The end of the name of the family that counts what was charged: in the limit's unit times seconds."""
    said: str
    """What that family says of itself."""
    used: str
    """The end of the name of the column that counts it in usage records, in whole numbers."""
    per_used: float = 1.0
    """How many units of the limit, times a second, one of that column is."""
    by_direction: bool = False
    """The family tells kinds apart by their word, as ``direction``, and not by ``kind``."""


BYTES: Final = Unit(
    "bytes_per_second",
    "bytes",
    "Bytes charged: of produce requests, of fetch responses.",
    "bytes",
    by_direction=True,
)
PERCENT: Final = Unit(
    "percent",
    "percent_seconds",
    "Time of threads charged: a second of one thread is 100.",
    "thread_us",
    per_used=1e-4,
)
MUTATIONS: Final = Unit(
    "mutations_per_second",
    "mutations",
    "Mutations charged: partitions that were created or deleted.",
    "partitions",
)
CONNECTIONS: Final = Unit(
    "connections_per_second",
    "connections",
    "Connections charged.",
    "attempts",
)


class Columns(NamedTuple):
    """The columns of usage records that a kind has, by name (docs/usage-records.md)."""

    used: str
    requests: str
    limit: str
    rule: str
    throttled: str
    throttle_ms: str
    muted_ms: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What is inherent to a quota kind."""

    word: str
    """For users, and what the columns of usage records begin with."""
    doing: str
    """The same in a sentence: who is throttled is so while ..."""
    unit: Unit
    written: Written
    law: Law = Law.SAMPLED_RATE
    whose: Whose = Whose.CLIENT
    capped: bool = False
    """No throttle is longer than one sample of the window (QuotaUtils)."""
    of_cluster: bool = False
    """Counted once for all brokers, as the controller does (ControllerMutationQuotaManager)."""
    enforced: bool = False
    """By this version; others may stand in a quota file, and are warned of."""

    @property
    def columns(self) -> Columns:
        """In usage records, in the order in which further kinds have them."""
        ends = (self.unit.used, "requests", "limit", "rule", "throttled", "throttle_ms", "muted_ms")
        return Columns(*(f"{self.word}_{end}" for end in ends))

    @property
    def shadow_columns(self) -> tuple[str, ...]:
        """Those of a limit that is measured and holds nobody, in usage records that have any."""
        return tuple(f"{self.word}_shadow_{end}" for end in ("limit", "throttled", "throttle_ms", "muted_ms"))

    @property
    def cap_columns(self) -> tuple[str, ...]:
        """Those of caps, likewise."""
        ends = ("limits", "rule", "throttled", "throttle_ms", "muted_ms")
        return (f"{self.word}_caps", *(f"{self.word}_cap_{end}" for end in ends))


class QuotaKind(StrEnum):
    """What a quota limits; the value is the property name that ``kafka-configs.sh`` uses (QuotaConfig)."""

    row: Row

    def __new__(cls, name: str, *row: Row) -> Self:
        """Make a member of its name and its one row; ``QuotaKind(name)`` finds a member, as in every Enum."""
        kind = str.__new__(cls, name)
        kind._value_ = name
        (kind.row,) = row
        return kind

    __hash__ = str.__hash__  # a counter is found by its kind with each request, and Enum's own is written in Python

    PRODUCER_BYTE_RATE = (
        "producer_byte_rate",
        Row(word="produce", doing="producing", unit=BYTES, written=Written.BYTES, enforced=True),
    )
    CONSUMER_BYTE_RATE = (
        "consumer_byte_rate",
        Row(word="fetch", doing="consuming", unit=BYTES, written=Written.BYTES, enforced=True),
    )
    REQUEST_PERCENTAGE = (
        "request_percentage",
        Row(word="request", doing="sending requests", unit=PERCENT, written=Written.NUMBER, capped=True, enforced=True),
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
            enforced=True,
        ),
    )
    CONNECTION_CREATION_RATE = (
        "connection_creation_rate",
        Row(
            word="connection",
            doing="connecting",
            unit=CONNECTIONS,
            written=Written.WHOLE,
            whose=Whose.IP,
            capped=True,
            enforced=True,
        ),
    )


METERED: Final = tuple(kind for kind in QuotaKind if kind.row.enforced and kind.row.whose is Whose.CLIENT)
"""The kinds by which clients are held up: what metrics, usage records and the analysis have something about."""
