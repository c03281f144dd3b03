"""State and settings that all sessions of a worker share."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Protocol

from protocol.errors import Cause, ProtocolError
from proxy.brokers.partitions import NoPartitions, Partitions
from proxy.session.serving import API_VERSIONS_KEY, Answerer, NewerApiVersions, Served
from proxy.session.throttling import Throttling
from proxy.usage.latencies import Latencies
from proxy.usage.request_costs import RequestCosts
from proxy.usage.response_errors import ResponseErrors
from quotas.engine import Engine

FREE_BYTES: Final = 16 * 1024
"""Bytes of each connection that are not counted."""
MOST_BYTES: Final = 64 * 1024 * 1024


class Rejectable(Protocol):
    """A session."""

    def reject(self, side: str, error: ProtocolError) -> None: ...


class Gathering:
    """The connections of which more is kept than is everybody's: bounded for all of them together.

    Kept are requests that are not whole yet (a SASL token, an AlterClientQuotas, a CreateTopics under a quota), and all
    that connections send which have not proved who they are. A few KiB are everybody's: no login of a usual length ever
    ends because strangers have begun long ones.
    """

    __slots__ = ("_kept", "bytes", "most_bytes")

    def __init__(self) -> None:
        self._kept: dict[Rejectable, int] = {}
        self.bytes = 0
        """Kept of all of them together."""
        self.most_bytes = MOST_BYTES

    def note(self, session: Rejectable, kept_bytes: int) -> Rejectable | None:
        """Note how much is kept of ``session``. If the total is too much, return the session with most, to close it."""
        self.bytes += kept_bytes - self._kept.get(session, 0)
        self._kept[session] = kept_bytes
        if self.bytes <= self.most_bytes:
            return None
        return max(self._kept, key=lambda each: self._kept[each])

    def forget(self, session: Rejectable) -> None:
        """Take note that nothing is kept of ``session`` any more, or no more than is everybody's."""
        self.bytes -= self._kept.pop(session, 0)


class Rules:
    """Settings and state of all sessions of a worker; set once, read on the hot path."""

    __slots__ = (
        "_newer_api_versions",
        "advertised",
        "answerers",
        "clock",
        "costs",
        "engine",
        "errors",
        "find_coordinator_limit",
        "gathered_limit",
        "gathering",
        "latencies",
        "later",
        "mutations_limit",
        "on_rejected",
        "partitions",
        "protected_topics",
        "request_limit",
        "response_limit",
        "served",
        "served_before_authentication",
        "throttling",
        "unauthenticated_request_limit",
    )

    def __init__(
        self,
        *,
        engine: Engine,
        throttling: Throttling,
        served: dict[int, Served],
        served_before_authentication: dict[int, Served],
        advertised: Mapping[int, tuple[int, int]],
        request_limit: int,
        unauthenticated_request_limit: int,
        response_limit: int,
        find_coordinator_limit: int,
        gathered_limit: int,
        clock: Callable[[], int],
        on_rejected: Callable[[str, ProtocolError, str], None],
        later: Callable[[Callable[[], None]], None],
        protected_topics: frozenset[bytes] = frozenset(),
        answerers: Mapping[int, Answerer] = MappingProxyType({}),
        errors: ResponseErrors | None = None,
        latencies: Latencies | None = None,
        mutations_limit: int = 256 * 1024,
        partitions: Partitions | None = None,
        gathering: Gathering | None = None,
        costs: RequestCosts,
    ) -> None:
        self.engine = engine
        self.throttling = throttling
        self.served = served
        self.served_before_authentication = served_before_authentication
        self.advertised = advertised
        """Version range by api key: what ApiVersions answers are cut down to."""
        self.request_limit = request_limit
        self.unauthenticated_request_limit = unauthenticated_request_limit
        self.response_limit = response_limit
        self.find_coordinator_limit = find_coordinator_limit
        self.gathered_limit = gathered_limit
        """Limit for answers that are held in memory whole; those with records have ``response_limit`` alone."""
        self.errors = errors or ResponseErrors()
        self.gathering = gathering or Gathering()
        """The bytes of requests that the proxy keeps for clients."""
        self.latencies = latencies or Latencies()
        """How long brokers take to answer."""
        self.clock = clock
        self.on_rejected = on_rejected
        """(side, error, peer): a side broke the protocol and its session is closed."""
        self.later = later
        """Calls back when others have had their turn (``Turns``): nothing long is done at once."""
        self.protected_topics = protected_topics
        """Topics that no client may produce to through the proxy."""
        self.answerers = answerers
        """The answerers in place of the broker, by api key."""
        self.mutations_limit = mutations_limit
        """Limit for requests that create or delete topics, which are held in memory whole under a quota for that."""
        self.partitions: Partitions = partitions or NoPartitions()
        self.costs = costs
        self._newer_api_versions = NewerApiVersions(advertised.get(API_VERSIONS_KEY, (0, 0))[1])

    def answerer(self, key_version: int) -> Answerer:
        """Return who answers an API version here. Raises ProtocolError for one that is not served at all."""
        api_key, api_version = key_version >> 16, key_version & 0xFFFF
        if api_key == API_VERSIONS_KEY and self._newer_api_versions.takes(api_version):
            return self._newer_api_versions
        lowest, highest = self.advertised.get(api_key, (0, -1))
        if api_key in self.answerers and lowest <= api_version <= highest:
            return self.answerers[api_key]
        cause = Cause.UNSUPPORTED_VERSION if api_key in self.advertised else Cause.UNKNOWN_API
        raise ProtocolError(cause, f"api key {api_key} version {api_version} is not served")
