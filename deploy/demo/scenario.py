"""The scenario: clients, quotas and timing."""

from dataclasses import dataclass
from typing import Final

from tests.harness.clients.kinds import AIOKAFKA, CONFLUENT, KAFKA_PYTHON, ClientKind

KIB: Final = 2**10
MIB: Final = 2**20

NODE_IDS: Final = (1, 2, 3)
WINDOW_SAMPLES: Final = 11
SAMPLE_S: Final = 0.1
"""A tenth of Kafka's default of one second, so that everything happens ten times as fast: the burst of an idle client
is one second's worth of its quota and not ten.
"""
AVERAGED_S: Final = 3 * WINDOW_SAMPLES * SAMPLE_S
"""The averaging period of shown rates: whole windows, because a fast client under Kafka's quota sends a burst whenever
the previous one has left the window.
"""
SETTLING_S: Final = 4.0
"""The time excluded from the verdict: the first burst of a client or of a raised quota, and a client's start."""


@dataclass(frozen=True, slots=True)
class Participant:
    """A client with its own client-id."""

    client_id: str
    does: str
    library: ClientKind
    topic: str
    produces: bool
    record_bytes: int = 8 * KIB
    pace_bytes_per_s: int | None = None
    """None: as fast as possible."""

    @property
    def is_greedy(self) -> bool:
        return self.pace_bytes_per_s is None

    @property
    def quota_kind(self) -> str:
        return "producer_byte_rate" if self.produces else "consumer_byte_rate"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic with one partition: quotas apply per broker, so each topic is on one broker."""

    name: str
    leader: int


ORDERS: Final = Topic("orders", leader=1)
CLICKS: Final = Topic("clicks", leader=2)
PAYMENTS: Final = Topic("payments", leader=3)
TOPICS: Final = (ORDERS, CLICKS, PAYMENTS)

PACE_BYTES_PER_S: Final = MIB // 2

GREEDY_PRODUCER: Final = Participant("greedy-producer", "writes, greedily", CONFLUENT, ORDERS.name, produces=True)
GREEDY_CONSUMER: Final = Participant("greedy-consumer", "reads, greedily", AIOKAFKA, CLICKS.name, produces=False)
STEADY_PRODUCER: Final = Participant(
    "steady-producer",
    "writes 0.5 MiB/s",
    KAFKA_PYTHON,
    PAYMENTS.name,
    produces=True,
    record_bytes=4 * KIB,
    pace_bytes_per_s=PACE_BYTES_PER_S,
)
STEADY_CONSUMER: Final = Participant(
    "steady-consumer",
    "reads 0.5 MiB/s",
    KAFKA_PYTHON,
    PAYMENTS.name,
    produces=False,
    pace_bytes_per_s=PACE_BYTES_PER_S,
)
PARTICIPANTS: Final = (GREEDY_PRODUCER, GREEDY_CONSUMER, STEADY_PRODUCER, STEADY_CONSUMER)


@dataclass(frozen=True, slots=True)
class Quotas:
    """The quota file, in MiB per second: two clients by name, and a default."""

    greedy_producer: int = 1
    greedy_consumer: int = 2
    everybody_else: int = 8

    def text(self) -> str:
        others = self.everybody_else
        return f"""\
quotas:
  - {{entity: {{client-id: {GREEDY_PRODUCER.client_id}}}, producer_byte_rate: {self.greedy_producer}MiB}}
  - {{entity: {{client-id: {GREEDY_CONSUMER.client_id}}}, consumer_byte_rate: {self.greedy_consumer}MiB}}
  - {{entity: {{client-id: {{default: true}}}}, producer_byte_rate: {others}MiB, consumer_byte_rate: {others}MiB}}
"""

    def bytes_per_s(self, participant: Participant) -> int:
        """Return the quota of a participant."""
        named = {GREEDY_PRODUCER: self.greedy_producer, GREEDY_CONSUMER: self.greedy_consumer}
        return named.get(participant, self.everybody_else) * MIB


BEFORE: Final = Quotas()
AFTER: Final = Quotas(greedy_producer=3)


@dataclass(frozen=True, slots=True)
class Plan:
    """The measured time before and after the quota file changes."""

    before_s: float = 14.0
    after_s: float = 14.0

    @classmethod
    def lasting(cls, total_s: float) -> "Plan":
        """Return a plan of that duration. Raises ValueError if it is too short to measure anything."""
        if total_s < SHORTEST_S:
            raise ValueError(f"{total_s:g} s is too short: nothing could be measured in less than {SHORTEST_S:g} s")
        return cls(total_s / 2, total_s / 2)

    @property
    def total_s(self) -> float:
        return self.before_s + self.after_s


SHORTEST_S: Final = 20.0
"""Each half: the excluded time, and then nearly twice the averaging period."""
