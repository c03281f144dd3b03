"""A session between two fake wires under a fake clock, and frames to feed it: no loop, no socket, no waiting."""

from collections.abc import Callable, Mapping
from functools import cache
from struct import pack, unpack_from
from types import MappingProxyType

from config.settings import RequestCosts as Prices
from protocol.api_versions import advertised_limits
from protocol.errors import ProtocolError
from protocol.locator import Endpoint
from protocol.requests import NOT_AUTHENTICATED, WHICH_BROKERS
from proxy.brokers.topic_partitions import TopicPartitions
from proxy.identity.credentials import Credentials
from proxy.identity.mechanisms.oauthbearer import Names
from proxy.identity.mechanisms.registry import Mechanisms
from proxy.identity.sasl import SaslRules
from proxy.session.serving import Answerer, Served, serve
from proxy.session.session import Session
from proxy.session.throttling import Throttling, Timer
from proxy.session.worker_state import WorkerState
from proxy.usage.accounts import Accounts
from proxy.usage.meters import Meters
from proxy.usage.request_costs import RequestCosts
from quotas.engine import Engine, Window
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy

PRODUCER, CONSUMER = QuotaKind.PRODUCER_BYTE_RATE, QuotaKind.CONSUMER_BYTE_RATE
KIB = 1024

ADDRESSES = {1: (b"proxy.example", 9101), 2: (b"proxy.example", 9102)}


class FakeWire:
    """Records what a transport was told."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.paused = False
        self.closed = False
        self.aborted = False
        self.bounded = False
        self.finished = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.sent.append(bytes(data))

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def bound_receive_buffer(self) -> None:
        self.bounded = True

    def has_finished(self) -> bool:
        return self.finished

    def take(self) -> bytes:
        """Return everything written since the last call."""
        data = b"".join(self.sent)
        self.sent.clear()
        return data


class _Timer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeLoop:
    """A clock in ms that only ``advance`` moves, and the calls that are due by then."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self._calls: list[tuple[int, _Timer, object]] = []

    def clock(self) -> int:
        return self.now_ms

    def call_later(self, delay_s: float, callback: object) -> Timer:
        timer = _Timer()
        self._calls.append((self.now_ms + round(delay_s * 1000), timer, callback))
        return timer

    def later(self, callback: Callable[[], None]) -> None:
        """Call back at the next ``turn``, or ``advance`` by no time at all."""
        self.call_later(0, callback)

    def turn(self) -> None:
        """Make the one call that has waited longest."""
        _, _, callback = self._calls.pop(0)
        assert callable(callback)
        callback()

    def advance(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while due := sorted((call for call in self._calls if call[0] <= end_ms), key=lambda call: call[0]):
            call = due[0]
            self._calls.remove(call)
            self.now_ms = max(self.now_ms, call[0])
            if not call[1].cancelled:
                assert callable(call[2])
                call[2]()
        self.now_ms = end_ms


@cache
def _served(
    response: str, answered: frozenset[int], fetch_max_version: int | None
) -> tuple[dict[int, tuple[int, int]], dict[int, Served], dict[int, Served]]:
    """Return tables that many plays share, with their counts of requests: to make them takes longer than most plays."""
    limits = advertised_limits(fetch_max_version=fetch_max_version)
    return limits, serve(limits, response, answered=answered), serve(limits, response, authenticated=False)


class Play:
    """One session, connected unless said otherwise, and everything around it."""

    def __init__(
        self,
        quotas: Mapping[QuotaKind, float] | None = None,
        *,
        mode: str = "enforce",
        response: str = "mute",
        max_delay_ms: int | None = None,
        max_hold_ms: int = 8000,
        connected: bool = True,
        authenticated: bool = True,
        fetch_max_version: int | None = None,
        sub_claim: str = "sub",
        credentials: Credentials | None = None,
        peer: str = "10.0.0.1:5",
        policy: Policy | None = None,
        engine: Engine | None = None,
        answerers: Mapping[int, Answerer] = MappingProxyType({}),
        prices: Prices | None = None,
        names_one_controller: bool = False,
    ) -> None:
        self.loop = FakeLoop()
        policy = policy or (Policy({Entity(client_id="app"): dict(quotas)}) if quotas else Policy({}))
        self.engine = engine or Engine(policy, Window())
        self.shared: list[tuple[str, bool]] = []
        """Logins that share a counter: of which mechanism, and whether their credential is known."""
        self.outcomes: list[tuple[str, bool]] = []
        self.claimed: list[str | None] = []
        """Of each outcome: who the client said it was."""
        self.owners: dict[str, str] = {}
        """Of delegation tokens, known already."""
        self.asked_for: list[tuple[str, Callable[[str], None]]] = []
        """Delegation tokens whose owner was asked for, and whom to tell."""
        self.rejected: list[tuple[str, ProtocolError]] = []
        self.rejected_client_id = ""
        self.told: list[int] = []
        self.closed = 0
        limits, served, served_before = _served(response, frozenset(answerers), fetch_max_version)
        self.throttling = Throttling(
            mode=mode,
            window_ms=1000,
            max_delay_ms=max_delay_ms,
            max_hold_ms=max_hold_ms,
            call_later=self.loop.call_later,
            clock=self.loop.clock,
        )
        self.costs = RequestCosts(prices or Prices())
        self.costs.on = policy.has(QuotaKind.REQUEST_PERCENTAGE)
        self.worker = WorkerState(
            engine=self.engine,
            throttling=self.throttling,
            served=served,
            served_before_authentication=served_before,
            advertised=limits,
            request_limit=1_000_000,
            unauthenticated_request_limit=1000,
            response_limit=2_000_000,
            find_coordinator_limit=100_000,
            gathered_limit=1_000_000,
            clock=self.loop.clock,
            on_rejected=self._on_rejected,
            later=self.loop.later,
            answerers=answerers,
            partitions=TopicPartitions(lambda: (), self.loop.clock),
            costs=self.costs,
        )
        self.sasl_rules = SaslRules(
            Mechanisms(Names((sub_claim,))).begin,
            self._owner_of,
            self._on_outcome,
            credentials
            or Credentials(4, self.loop.clock, lambda mechanism, known: self.shared.append((mechanism, known))),
        )
        self.meters = Meters(1000)
        self.listener = Accounts(self.meters, self.engine, "PLAIN")
        self.client, self.broker = FakeWire(), FakeWire()
        self.session = Session(
            self.worker,
            self.client,
            self._advertise,
            self._on_closed,
            sasl=self.sasl_rules,
            accounts=self.listener,
            peer=peer,
            user="ANONYMOUS",
            authenticated=authenticated,
            names_one_controller=lambda: names_one_controller,
        )
        if connected:
            self.session.connected(self.broker, 1)

    def _advertise(self, endpoint: Endpoint) -> tuple[bytes, int] | None:
        self.told.append(endpoint.node_id)
        return ADDRESSES.get(endpoint.node_id)

    def _on_outcome(self, mechanism: str, succeeded: bool, _peer: str, claimed: str | None) -> None:
        self.outcomes.append((mechanism, succeeded))
        self.claimed.append(claimed)

    def _on_closed(self, session: Session) -> None:
        assert session is self.session
        self.closed += 1

    def _owner_of(self, token_id: str, then: Callable[[str], None]) -> str | None:
        owner = self.owners.get(token_id)
        if owner is None:
            self.asked_for.append((token_id, then))
        return owner

    @property
    def user(self) -> str:
        """Whom requests are charged to now."""
        return self.session.identity.user

    def _on_rejected(self, side: str, error: ProtocolError, _peer: str, client_id: str) -> None:
        self.rejected.append((side, error))
        self.rejected_client_id = client_id

    def from_client(self, data: bytes) -> bytes:
        """Feed and return what went to the broker."""
        try:
            self.session.requests.feed(data, self.loop.now_ms)
        except ProtocolError as error:
            self.session.reject("client", error)
        return self.broker.take()

    def from_broker(self, data: bytes) -> bytes:
        """Feed and return what went to the client."""
        try:
            self.session.answers.feed(data, self.loop.now_ms)
        except ProtocolError as error:
            self.session.reject("broker", error)
        return self.client.take()


QUESTION = WHICH_BROKERS.frame("sluice", 0x536C7569)
"""The proxy's own: whether the broker serves the client."""


def serves(play: Play, *, authenticated: bool = True) -> bytes:
    """Answer that question, which must have been the last thing sent, and return what then goes to the broker."""
    answer = pack(">ihii", 0, -1, 1, 0) if authenticated else NOT_AUTHENTICATED
    assert play.from_broker(frame(QUESTION[8:12] + answer)) == b""
    return play.broker.take()


def produce_quota(**options: object) -> Play:
    """1 KiB/s: ten KiB pass at once (N - 1 windows of one second), what follows is throttled."""
    return Play({PRODUCER: KIB}, **options)  # type: ignore[arg-type]  # options of Play


def fetch_quota(**options: object) -> Play:
    """1 KiB/s, likewise."""
    return Play({CONSUMER: KIB}, **options)  # type: ignore[arg-type]  # options of Play


def throttle_of(answer: bytes) -> int:
    """Return the throttle time of a Produce answer, its last field."""
    return int(unpack_from(">i", answer, len(answer) - 4)[0])


def frame(payload: bytes) -> bytes:
    return pack(">i", len(payload)) + payload


def request(key: int, version: int, correlation_id: int, body: bytes = b"", client_id: bytes = b"app") -> bytes:
    """Return a request with header v1 (no API version used with it here is flexible)."""
    return frame(pack(">hhih", key, version, correlation_id, len(client_id)) + client_id + body)


def produce(
    correlation_id: int, record_bytes: int, acks: int = 1, version: int = 7, client_id: bytes = b"app"
) -> bytes:
    """Return a Produce v3 to v8 with one topic and partition; ``record_bytes`` of records nobody looks at."""
    records = bytes(record_bytes)
    body = pack(">hhiihsiii", -1, acks, 30_000, 1, 1, b"t", 1, 0, record_bytes) + records
    return request(0, version, correlation_id, body, client_id)


def produce_answer(correlation_id: int, throttle_ms: int = 0) -> bytes:
    """Return the answer of Produce v5 to v7."""
    return frame(pack(">iihsiihqqqi", correlation_id, 1, 1, b"t", 1, 0, 0, 7, -1, 0, throttle_ms))


def fetch(correlation_id: int, max_bytes: int = 52_428_800, min_bytes: int = 1, version: int = 11) -> bytes:
    """Return a Fetch v7 to v11 of no partition."""
    return request(1, version, correlation_id, pack(">iiiibiiiih", -1, 500, min_bytes, max_bytes, 0, 0, -1, 0, 0, 0))


def fetch_answer(correlation_id: int, record_bytes: int, throttle_ms: int = 0) -> bytes:
    """Return an answer of Fetch v11: throttle_time_ms first, then bytes that stand for the rest."""
    return frame(pack(">iihi", correlation_id, throttle_ms, 0, 0) + bytes(record_bytes))


def heartbeat(correlation_id: int) -> bytes:
    return request(12, 3, correlation_id, b"\0\1g\0\0\0\1\0\1m\xff\xff")


def heartbeat_answer(correlation_id: int) -> bytes:
    return frame(pack(">iih", correlation_id, 0, 0))


def metadata(correlation_id: int, padding: int = 0) -> bytes:
    """Return a Metadata v4 of no topics."""
    return request(3, 4, correlation_id, bytes(5 + padding))


def metadata_answer(correlation_id: int, topic_bytes: int = 0) -> bytes:
    """Return an answer of Metadata v4 that names no broker; bytes that are no topic stand behind it."""
    return frame(pack(">iiihii", correlation_id, 0, 0, -1, 0, 0) + bytes(topic_bytes))


def list_offsets(correlation_id: int, padding: int = 0) -> bytes:
    """Return a request that needs nothing."""
    return request(2, 5, correlation_id, bytes(9 + padding))


def list_offsets_answer(correlation_id: int, padding: int = 0) -> bytes:
    return frame(pack(">iii", correlation_id, 0, 0) + bytes(padding))


def handshake(correlation_id: int, mechanism: str, version: int = 1) -> bytes:
    name = mechanism.encode()
    return request(17, version, correlation_id, pack(">h", len(name)) + name)


def handshake_answer(correlation_id: int, error_code: int = 0) -> bytes:
    return frame(pack(">ihih", correlation_id, error_code, 1, 5) + b"PLAIN")


def authenticate(correlation_id: int, token: bytes, version: int = 1) -> bytes:
    return request(36, version, correlation_id, pack(">i", len(token)) + token)


def authenticate_answer(correlation_id: int, token: bytes = b"", error_code: int = 0, lifetime_ms: int = 0) -> bytes:
    """Return the answer of SaslAuthenticate v1."""
    return frame(pack(">ihhi", correlation_id, error_code, -1, len(token)) + token + pack(">q", lifetime_ms))
