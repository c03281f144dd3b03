"""State and settings that all sessions of a worker share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from protocol.errors import Cause, ProtocolError
from protocol.overlay import FETCH, PRODUCE
from protocol.table import SPECS
from proxy.brokers.topic_partitions import TopicPartitions
from proxy.session.flow import CLIENT
from proxy.session.serving import API_VERSIONS_KEY, Answerer, NewerApiVersions, Served
from proxy.session.throttling import Throttling
from proxy.usage.latencies import Latencies
from proxy.usage.request_costs import RequestCosts
from proxy.usage.response_errors import ResponseErrors
from quotas.engine import Engine

FREE_BYTES: Final = 16 * 1024
"""Bytes of each connection that are not counted."""
MOST_BYTES: Final = 64 * 1024 * 1024
_MOST_VERSION: Final = 0x7FFF
_CAPPED_BY: Final = {FETCH: "kafka.fetch_max_version", PRODUCE: "usage.topic.protect"}
"""The setting that may keep newer versions from clients, by api key."""


class Rejectable(Protocol):
    def reject(self, side: str, error: ProtocolError) -> None: ...


class HeldRequests:
    """The bytes of requests that are held for clients, bounded for all connections together.

    Counted are requests that are not whole yet (a SASL token, an AlterClientQuotas, a CreateTopics under a quota), and
    all that connections send which have not proved who they are; but only of connections of which more than FREE_BYTES
    are held: no login of a usual length ever ends because strangers have begun long ones.
    """

    __slots__ = ("_held", "bytes", "most_bytes")

    def __init__(self) -> None:
        self._held: dict[Rejectable, int] = {}
        self.bytes = 0
        self.most_bytes = MOST_BYTES

    def count(self, session: Rejectable, held_bytes: int) -> None:
        """Count how much is held of ``session``. If the total is too much, the session with most is closed."""
        self.bytes += held_bytes - self._held.get(session, 0)
        self._held[session] = held_bytes
        if self.bytes > self.most_bytes:
            problem = (
                f"requests that are not whole yet take more than {self.most_bytes} bytes together, and of this "
                "connection's most is kept"
            )
            most = max(self._held, key=lambda each: self._held[each])
            most.reject(CLIENT, ProtocolError(Cause.KEPT_TOO_MUCH, problem))

    def forget(self, session: Rejectable) -> None:
        """Take note that nothing that counts is held of ``session`` any more."""
        self.bytes -= self._held.pop(session, 0)


@dataclass(slots=True, kw_only=True, eq=False)
class WorkerState:
    """Settings and state of all sessions of a worker; set once, read on the hot path."""

    engine: Engine
    throttling: Throttling
    served: dict[int, Served]
    served_before_authentication: dict[int, Served]
    advertised: Mapping[int, tuple[int, int]]
    """Version range by api key: what ApiVersions answers are cut down to."""
    request_limit: int
    unauthenticated_request_limit: int
    response_limit: int
    find_coordinator_limit: int
    gathered_limit: int
    """Limit for answers that are held in memory whole; those with records have ``response_limit`` alone."""
    mutations_limit: int = 256 * 1024
    """Limit for requests that create or delete topics, which are held in memory whole under a quota for that."""
    clock: Callable[[], int]
    on_rejected: Callable[[str, ProtocolError, str, str], None]
    """(side, error, peer): a side broke the protocol and its session is closed."""
    later: Callable[[Callable[[], None]], None]
    """Calls back when others have had their turn (``CallQueue``): nothing long is done at once."""
    answerers: Mapping[int, Answerer] = field(default_factory=dict)
    """The answerers in place of the broker, by api key."""
    errors: ResponseErrors = field(default_factory=ResponseErrors)
    latencies: Latencies = field(default_factory=Latencies)
    """How long brokers take to answer."""
    partitions: TopicPartitions
    held_requests: HeldRequests = field(default_factory=HeldRequests)
    costs: RequestCosts

    def answerer(self, key_version: int) -> Answerer:
        """Return who answers an API version here. Raises ProtocolError for one that is not served at all."""
        api_key, api_version = key_version >> 16, key_version & 0xFFFF
        lowest, highest = self.advertised.get(api_key, (0, -1))
        if api_key == API_VERSIONS_KEY and highest < api_version <= _MOST_VERSION:
            return NewerApiVersions(highest)
        if api_key in self.answerers and lowest <= api_version <= highest:
            return self.answerers[api_key]
        cause = Cause.UNSUPPORTED_VERSION if api_key in self.advertised else Cause.UNKNOWN_API
        spec = SPECS.get(key_version)
        if spec is None:
            raise ProtocolError(cause, f"api key {api_key} version {api_version} is not known")
        by = f", by {_CAPPED_BY[api_key]}" if spec.advertised and api_key in _CAPPED_BY else ""
        served = f"versions {lowest} to {highest} are{by}" if highest >= 0 else "it is between brokers"
        raise ProtocolError(cause, f"{spec} is not offered to clients: {served}")
