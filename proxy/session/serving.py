"""Which API versions a worker serves, and what has to be done with each: a table, so that the session has no list.

An API version that is not in the table is refused, as a broker refuses a version it has not enabled.

Some requests the proxy answers itself, each in its turn: after what the broker still has to answer. An answerer gets
the whole request, up to its own limit. While it works on one the client is not read, so that its answer is the next
one, whatever time it takes.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from protocol.api_versions import unsupported_version_answer
from protocol.errors import ProtocolError
from protocol.frames import REQUEST_HEAD
from protocol.outline import Outline
from protocol.overlay import ADDRESSES_LAST, CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, FIND_COORDINATOR
from protocol.quorum import names_controllers
from protocol.sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE
from protocol.table import SPECS, ApiSpec

# Policies for a request, beyond being forwarded.
FORWARD: Final = 0
PRODUCE: Final = 1
"""Charged on its header; acks decide whether an answer will come."""
FETCH: Final = 2
"""Waits for its turn, with max_bytes lowered to what the quota has left."""
COORDINATE: Final = 3
"""Group or transaction traffic: its connection is not muted, only its Produce and Fetch wait."""
AUTHENTICATE: Final = 4
"""SASL: gathered, observed, and nothing behind it is read before its answer."""
LOOK_UP: Final = 5
"""FindCoordinator: each of its keys makes a broker's address in the answer, so there is a limit to its size."""
ANSWER: Final = 6
"""The proxy answers it itself, if it is for its user (``Answerer``)."""
MUTATE: Final = 7
"""It creates or deletes topics: where a quota holds for that, charged topic by topic, and cut of what is refused."""
GREET: Final = 8
"""ApiVersions of a client that has not proved who it is: small, and nobody's."""
PROVE: Final = 9
"""Any other request of such a client: it waits until that is proved, and is then what it is."""

# Actions on an answer, beyond being forwarded; flags.
CHARGE: Final = 1
"""Its size is charged against the consumer's quota."""
REWRITE: Final = 2
"""It names brokers: the whole frame is gathered and their addresses replaced."""
NEGOTIATE: Final = 4
"""It names versions: the whole frame is gathered and intersected with the table."""
TELL: Final = 8
"""A throttle is due: throttle_time_ms is patched, and the answer held back where the client expects that."""
PROVES: Final = 16
"""It is the broker's answer to the proxy's own question whether it serves the client: it goes no further."""
AUTHENTICATED: Final = 32
"""SASL: gathered and observed; it may say who the client is."""
SETTLE: Final = 64
"""It says what became of topics that were charged; refused ones are added to it."""
GATHERED: Final = REWRITE | NEGOTIATE | AUTHENTICATED | SETTLE | PROVES
"""Actions on the whole of an answer, or on the slices of a long one."""

PRODUCE_KEY: Final = 0
FETCH_KEY: Final = 1
API_VERSIONS_KEY: Final = 18
_FETCH_KEYS: Final = (FETCH_KEY, 78)  # ShareFetch
_SASL_KEYS: Final = (SASL_HANDSHAKE, SASL_AUTHENTICATE)

# JoinGroup, Heartbeat, LeaveGroup, SyncGroup, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit,
# ConsumerGroupHeartbeat, ShareGroupHeartbeat, StreamsGroupHeartbeat: members and transactions that time out.
_COORDINATION_KEYS: Final = (11, 12, 13, 14, 24, 25, 26, 28, 68, 76, 88)

_ON_REQUEST: Final[Mapping[int, int]] = {
    PRODUCE_KEY: PRODUCE,
    **dict.fromkeys(_FETCH_KEYS, FETCH),
    **dict.fromkeys(_SASL_KEYS, AUTHENTICATE),
    FIND_COORDINATOR: LOOK_UP,
    **dict.fromkeys((CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS), MUTATE),
    **dict.fromkeys(_COORDINATION_KEYS, COORDINATE),
}
"""By api key; FORWARD for all others."""
_BEFORE_AUTHENTICATION: Final[Mapping[int, int]] = {**dict.fromkeys(_SASL_KEYS, AUTHENTICATE), API_VERSIONS_KEY: GREET}
"""By api key; PROVE for all others."""


class Served:
    """One API version as a worker serves it, with the count of requests seen."""

    __slots__ = ("delayed", "on_answer", "on_request", "outline", "requests", "spec")

    def __init__(self, spec: ApiSpec, *, on_request: int, on_answer: int, delayed: bool) -> None:
        self.spec = spec
        self.on_request = on_request
        self.on_answer = on_answer
        self.delayed = delayed
        """A throttled answer is held back for the throttle time (KIP-13) instead of sent at once (KIP-219)."""
        self.requests = 0
        self.outline = Outline(spec) if spec.endpoints and spec.api_key in ADDRESSES_LAST else None
        """The layout of an answer that may name brokers at its end."""


def serve(
    limits: Mapping[int, tuple[int, int]], response: str, *, authenticated: bool = True, answered: Collection[int] = ()
) -> dict[int, Served]:
    """Return what is served, keyed as ``REQUEST_HEAD`` unpacks it: api key << 16 | version.

    ``limits`` are the advertised version ranges; ``response`` is ``mute``, ``delay`` or ``auto``: auto holds
    answers back for versions from before KIP-219, whose clients take throttle_time_ms as "was delayed".
    ``authenticated=False`` gives the table for connections that have not proved who they are. ``answered`` are the api
    keys that the proxy answers itself, once that is proved.
    """
    table: dict[int, Served] = {}
    for key_version, spec in SPECS.items():
        lowest, highest = limits.get(spec.api_key, (0, -1))
        if not lowest <= spec.api_version <= highest:
            continue
        if not authenticated:
            on_request = _BEFORE_AUTHENTICATION.get(spec.api_key, PROVE)
        elif spec.api_key in answered:
            on_request = ANSWER
        else:
            on_request = _ON_REQUEST.get(spec.api_key, FORWARD)
        before_kip_219 = spec.obeyed_from is not None and spec.api_version < spec.obeyed_from
        delayed = response == "delay" or (response == "auto" and before_kip_219)
        table[key_version] = Served(spec, on_request=on_request, on_answer=_on_answer(spec), delayed=delayed)
    return table


def requests_by_api(tables: Iterable[Mapping[int, Served]]) -> list[int]:
    """Return how many requests have been served by these tables, by api key."""
    requests = [0] * 128
    for table in tables:
        for served in table.values():
            requests[served.spec.api_key] += served.requests
    return requests


def _on_answer(spec: ApiSpec) -> int:
    actions = CHARGE if spec.api_key in _FETCH_KEYS else 0
    if spec.endpoints or names_controllers(spec):
        actions |= REWRITE
    if spec.api_key == API_VERSIONS_KEY:
        actions |= NEGOTIATE
    if spec.api_key in _SASL_KEYS:
        actions |= AUTHENTICATED
    return actions


# ----------------------------------------------------------------------------- requests that the proxy answers itself

_MOST_BYTES: Final = 64 * 1024
"""Limit for an ApiVersions of a version to come; today's have names of a client's software."""


@dataclass(frozen=True, slots=True)
class LocalRequest:
    """A request that the proxy is to answer: all of its bytes, size included, and who sent it."""

    frame: bytes
    user: str
    client_id: str
    """"" where it was not read: of a version that is not in the table, what stands where is unknown."""
    peer: str

    @property
    def correlation_id(self) -> int:
        correlation_id: int = REQUEST_HEAD.unpack_from(self.frame)[2]
        return correlation_id


Done = Callable[[bytes | ProtocolError | None], None]
"""Takes the answer that was waited for; or why the request was none, which ends the connection; or None where nobody
will ever answer it, which cuts the connection off.
"""


class Answerer(Protocol):
    def most_bytes(self, api_key: int, user: str) -> int:
        """Return the longest request of ``user`` that it takes: a longer one ends the connection, before it is read. 0:
        none, and the broker answers.
        """
        ...

    def answer(self, request: LocalRequest, done: Done) -> bytes | None:
        """Return the whole answer, size included; or None, and call ``done`` with it later, in the same thread.

        ``done`` may be called when the client has gone. Raises ProtocolError for what is no request.
        """
        ...


class NewerApiVersions:
    """Answers ApiVersions newer than any that is known with error 35, and with what would be understood (KIP-511)."""

    def __init__(self, newest: int) -> None:
        self._newest = newest

    def most_bytes(self, api_key: int, user: str) -> int:  # noqa: ARG002  the same for everybody
        return _MOST_BYTES

    def answer(self, request: LocalRequest, done: Done) -> bytes | None:  # noqa: ARG002  at once
        return unsupported_version_answer(request.correlation_id, self._newest)
