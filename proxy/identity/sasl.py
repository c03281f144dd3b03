"""Observes SASL between a client and its broker, and determines the user once the broker has accepted the login.

The observer neither ends nor judges anything: tokens pass unchanged, and only the broker's success turns a claim into
the user. The client's requests arrive one at a time, each after the answer to the one before (``RequestStream``
ensures that), so an answer cannot be mistaken for that of another token.

| state          | event                                           | new state                                     |
|----------------|-------------------------------------------------|-----------------------------------------------|
| any            | answer to SaslHandshake without error           | an exchange is open; IN_PROGRESS at the first |
| any            | error 34 to SaslHandshake, not re-authenticating| unchanged: this connection has no SASL        |
| exchange open  | the mechanism's success                         | AUTHENTICATED as the claim                    |
| IN_PROGRESS    | no recognizable end, and the broker, when       | AUTHENTICATED (see ``proven``)                |
|                | asked, serves the client                        |                                               |
| exchange open  | an error, or any other error to SaslHandshake   | FAILED, anonymous                             |

A re-authentication (KIP-368) is an exchange that opens while AUTHENTICATED: the user stays until it has succeeded.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from protocol.errors import Cause, ProtocolError
from protocol.sasl import (
    ILLEGAL_SASL_STATE,
    SASL_HANDSHAKE,
    authenticate_answer,
    authenticate_token,
    handshake_error,
    handshake_mechanism,
)
from protocol.table import ApiSpec
from proxy.identity.credentials import Credentials
from proxy.identity.mechanisms.mechanism import Claim, Mechanism
from proxy.identity.mechanisms.registry import NAMING
from proxy.identity.principal import confirmed, token_holder
from proxy.runtime.clock import NEVER_MS
from quotas.entities import ANONYMOUS
from quotas.names import counted_as

MAX_RAW_TOKENS: Final = 32
"""GSSAPI, the longest known exchange, has three."""

MAX_READ_BYTES: Final = 64 * 1024
"""Longer tokens are forwarded, and claim nothing: parsing half a megabyte would block the loop for 80 ms."""

_REAUTHENTICATION_MS: Final = 2000
"""Reserve for re-authentication at the end of a session's lifetime; for a short lifetime, a twentieth of it.

Clients re-authenticate after 85 to 95 % of the lifetime (KIP-368), with the first request that they can send. Mutes
have to end by then, but not much earlier: until the client re-authenticates its requests are not throttled."""


class LoginState(StrEnum):
    """The authentication state of a connection."""

    NONE = "none"
    IN_PROGRESS = "in progress"
    FAILED = "failed"
    AUTHENTICATED = "authenticated"


@dataclass(frozen=True, slots=True)
class SaslRules:
    """Parts that the observers of one listener share."""

    begin: Callable[[str], Mechanism | None]
    """Creates the observer of a mechanism, None if it cannot be followed."""
    owner_of: Callable[[str, Callable[[str], None]], str | None]
    """Returns the owner of a delegation token by its id, or None and calls the function once he is known."""
    on_outcome: Callable[[str, bool, str, str | None], None]
    """(mechanism, succeeded, peer, the name that the client claimed or None) → None: counts a login."""
    credentials: Credentials
    """Names clients whose mechanism shows no user."""


class ObservedConnection(Protocol):
    def identified(self, user: str) -> None:
        """Switch to another user."""
        ...

    def read_tokens(self, raw: bool) -> None:
        """Switch to reading SASL tokens without headers, or back to requests."""
        ...


@dataclass(slots=True, eq=False, repr=False)
class SaslObserver:
    """Observer of one connection's SASL. ``_observed`` is called for each change of the user and of raw framing."""

    _rules: SaslRules
    _peer: str
    _observed: ObservedConnection
    _asked: str = ""
    _asked_raw: bool = False
    _began_raw: bool = False
    _open: bool = False
    """The broker has accepted a mechanism, and neither success nor failure has followed yet."""
    _accepted: bool = False
    """The broker has answered a token of this exchange without an error."""
    _exchange: Mechanism | None = None
    _raw_tokens: int = 0
    _by_credential: str | None = None
    """The user from ``Credentials`` for the last success."""
    state: LoginState = LoginState.NONE
    mechanism: str | None = None
    """The mechanism that the broker accepted last."""
    raw: bool = False
    """Tokens come without Kafka's headers: after SaslHandshake v0, until the exchange ends."""
    token_id: str | None = None
    """The id of the delegation token that authenticated the connection."""
    session_lifetime_ms: int = 0
    deadline_ms: int = NEVER_MS
    """The time by which every mute has to end, so that the client can re-authenticate."""

    @property
    def authenticated(self) -> bool:
        return self.state is LoginState.AUTHENTICATED

    # ----------------------------------------------------------------------------- requests and answers as they pass

    def request(self, spec: ApiSpec, frame: bytes) -> None:
        """Read a complete SaslHandshake or SaslAuthenticate request. Raises ProtocolError if it is malformed."""
        if spec.api_key == SASL_HANDSHAKE:
            self._asked = counted_as(handshake_mechanism(spec, frame))
            self._asked_raw = spec.api_version == 0
            return
        self._read(authenticate_token(spec, frame))

    def answer(self, spec: ApiSpec, frame: bytes, now_ms: int) -> int:
        """Read the answer to the last request, and return its error code. Raises ProtocolError if it is malformed."""
        if spec.api_key == SASL_HANDSHAKE:
            error_code = handshake_error(spec, frame)
            if error_code == 0:
                self._begin(self._asked, raw=self._asked_raw)
            elif error_code != ILLEGAL_SASL_STATE or (self.authenticated and self.session_lifetime_ms):
                self._fail()
            return error_code
        error_code, token, lifetime_ms = authenticate_answer(spec, frame)
        if error_code:
            # Outside an exchange, error 34 only means that the connection has none (a listener without SASL).
            if self._open or error_code != ILLEGAL_SASL_STATE:
                self._fail()
            return error_code
        self.session_lifetime_ms = lifetime_ms
        self._answered(token, now_ms)
        return error_code

    def proven(self) -> None:
        """Note that the broker serves the client: an exchange without a recognizable end has succeeded.

        The claim counts if tokens are raw, because a broker reads no requests before such an exchange is done. In other
        exchanges success is recognized, or the broker's result is unknown.
        """
        if self._open and self.state is LoginState.IN_PROGRESS:
            self._succeed(with_claim=self._began_raw)

    @property
    def may_be_over(self) -> bool:
        """The broker has accepted a token of an exchange that cannot be followed: it may have been the last one."""
        return self._open and self._accepted and self._exchange is None

    def _begin(self, mechanism: str, *, raw: bool) -> None:
        self._open = True
        self._accepted = False
        self._began_raw = raw
        self.mechanism = mechanism
        self._exchange = self._rules.begin(mechanism)
        if not self.authenticated:
            self.state = LoginState.IN_PROGRESS
        if raw:
            self._raw_tokens = 0
            self._set_raw(raw=True)

    def _answered(self, token: bytes, now_ms: int) -> None:
        self._accepted = True
        lifetime_ms = self.session_lifetime_ms
        # In an exchange that cannot be followed, a lifetime marks the end: a broker sends none before.
        if self._exchange.from_broker(token) if self._exchange is not None else self._open and lifetime_ms > 0:
            self.deadline_ms = NEVER_MS
            if lifetime_ms > 0:
                self.deadline_ms = now_ms + lifetime_ms - min(lifetime_ms // 20, _REAUTHENTICATION_MS)
            self._succeed()

    def refused(self) -> None:
        """Note that the broker has closed: with an exchange open, that is how it refuses raw tokens."""
        if self._open and self.mechanism is not None:
            self._open = False
            self._rules.on_outcome(self.mechanism, False, self._peer, self._claimed)

    # ------------------------------------------------------------------------------------------------- raw tokens

    @property
    def raw_is_answered(self) -> bool:
        """Every raw token of this mechanism gets a raw answer, and the last one is recognized.

        Neither holds for other mechanisms: there, a frame that can be an ordinary request ends the exchange.
        """
        return self.mechanism in NAMING

    def begin_without_handshake(self) -> None:
        """Read the next frames as raw GSSAPI tokens without SaslHandshake, as clients of Kafka 0.9 send them."""
        self._begin("GSSAPI", raw=True)

    def raw_request(self, token: bytes) -> None:
        """Read a client's raw token. Raises ProtocolError if there are too many."""
        self._raw_tokens += 1
        if self._raw_tokens > MAX_RAW_TOKENS:
            raise ProtocolError(Cause.BAD_BODY, f"more than {MAX_RAW_TOKENS} raw SASL tokens")
        self._read(token)

    def _read(self, token: bytes) -> None:
        if self._exchange is not None:
            self._exchange.from_client(token if len(token) <= MAX_READ_BYTES else b"")  # an empty one claims nothing

    def raw_answer(self, token: bytes, now_ms: int) -> None:
        """Read the broker's raw answer. It is never an error: a broker that refuses closes."""
        self.session_lifetime_ms = 0
        self._answered(token, now_ms)

    def raw_over(self) -> None:
        """Note that an ordinary request has come: raw framing ends, and ``proven`` is still to come."""
        self._set_raw(raw=False)

    def _set_raw(self, *, raw: bool) -> None:
        if raw != self.raw:
            self.raw = raw
            self._observed.read_tokens(raw)

    # ---------------------------------------------------------------------------------------------- how it ends

    def _succeed(self, *, with_claim: bool = True) -> None:
        claim = self._exchange.claim if self._exchange is not None and with_claim else None
        claimed = self._claimed
        mechanism = self.mechanism or ""
        self._over()
        self.state = LoginState.AUTHENTICATED
        self._rules.on_outcome(mechanism, True, self._peer, claimed)
        self._observed.identified(self._user_of(mechanism, claim))

    def _user_of(self, mechanism: str, claim: Claim | None) -> str:
        if claim is not None and claim.name and not claim.is_credential:
            self.leave()
            return self._holder(claim.name) if claim.is_token else confirmed(claim.name)
        if self._by_credential is None:  # a re-authentication may not change the user (KIP-368)
            credential = claim.name if claim is not None and claim.name else None
            self._by_credential = self._rules.credentials.user(mechanism, credential, self._peer)
        return self._by_credential

    def leave(self) -> None:
        """Note that the connection is closed, or has another user."""
        if self._by_credential is not None:
            self._rules.credentials.give_back(self._by_credential)
            self._by_credential = None

    def _fail(self) -> None:
        mechanism = self.mechanism if self._open and self.mechanism else "none accepted"
        claimed = self._claimed
        self._over()
        self.state = LoginState.FAILED
        self.deadline_ms = NEVER_MS
        self.leave()
        self._rules.on_outcome(mechanism, False, self._peer, claimed)
        self._observed.identified(ANONYMOUS)

    @property
    def _claimed(self) -> str | None:
        """The user that the client claims in the open exchange."""
        claim = self._exchange.claim if self._exchange is not None else None
        return None if claim is None or claim.is_credential else claim.name

    def _over(self) -> None:
        self._open = False
        self._exchange = None
        self.token_id = None
        self._set_raw(raw=False)

    def _holder(self, token_id: str) -> str:
        """Return the owner of a delegation token, or a user per token until ``observed`` is given the owner."""
        self.token_id = token_id

        def found(owner: str) -> None:
            if self.token_id == token_id:
                self._observed.identified(confirmed(counted_as(owner)))

        owner = self._rules.owner_of(token_id, found)
        return token_holder(token_id) if owner is None else confirmed(counted_as(owner))
