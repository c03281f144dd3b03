"""What a client that has not proved who it is may send: tokens, and which versions there are. All else waits for the
proof; where that cannot be read in the exchange, the broker is asked.
"""

from collections.abc import Mapping
from typing import Final

from protocol.errors import Cause, ProtocolError
from protocol.frames import REQUEST_HEAD
from protocol.headers import MORE
from protocol.requests import NOT_AUTHENTICATED, WHICH_BROKERS
from protocol.sasl import raw_token_end
from proxy.identity.sasl import SaslObserver, State
from proxy.session.calls import SessionCalls
from proxy.session.exchange import RAW_TOKEN, InFlight, expect
from proxy.session.request import Request
from proxy.session.rules import Rules
from proxy.session.sender import Sender
from proxy.session.serving import QUESTION, Served
from proxy.session.wires import CLIENT
from quotas.throttle import INT32_MAX

GSSAPI_TOKEN: Final = 0x60
"""What a GSSAPI token begins with (RFC 2743 §3.1); no api key does."""

_QUESTION_ID: Final = 0x536C7569
_QUESTION: Final = WHICH_BROKERS.frame("sluice", _QUESTION_ID)
"""Metadata of no topics: it needs no rights, costs a broker next to nothing, and changes nothing there. ApiVersions
would not do: it is answered to everybody."""


class LoginPolicy:
    """Takes the logins of one connection.

    What the client sends behind a token waits for the answer, as at a broker: it belongs to whoever the client then is,
    and of two tokens under way no answer could be taken for that of the other.
    """

    __slots__ = ("_in_flight", "_rules", "_sasl", "_sender", "_session")

    def __init__(
        self, session: SessionCalls, rules: Rules, sasl: SaslObserver, sender: Sender, in_flight: InFlight
    ) -> None:
        self._session = session
        self._rules = rules
        self._sasl = sasl
        self._sender = sender
        self._in_flight = in_flight

    def observe(self, request: Request) -> None:
        """Observe a whole SASL request. Raises ProtocolError if it is broken."""
        self._sasl.request(request.api.spec, request.frame)

    def check_size(self, request: Request) -> None:
        """Raise ProtocolError for a request that is too long for a client that nobody knows yet."""
        if request.size > self._rules.unauthenticated_request_limit:
            raise ProtocolError(Cause.FRAME_TOO_LARGE, f"{request.api.spec} request of {request.size} bytes")

    # --------------------------------------------------------------------------- whether the broker serves the client

    def ask(self, now_ms: int) -> None:
        """Ask the broker whether it serves the client: that is how a login has ended whose end cannot be seen."""
        self._session.ask_broker(_QUESTION)
        self._in_flight.append(expect(_QUESTION_ID, QUESTION, self._sender.account, now_ms))

    def answered(self, answer: bytes) -> bool:
        """Take the answer to that; whether the broker does. If not, the connection is closed, as the broker does."""
        if answer[8:] == NOT_AUTHENTICATED:
            error = ProtocolError(
                Cause.NOT_AUTHENTICATED, "a request of a client that the broker has not authenticated"
            )
            self._session.reject(CLIENT, error)
            return False
        self._sasl.proven()
        return True

    # ------------------------------------------------------------------------------- tokens without Kafka's headers

    def begins_gssapi(self, key_version: int) -> bool:
        """Whether a login begins with what is no request: clients of Kafka 0.9 send GSSAPI without SaslHandshake."""
        sasl = self._sasl
        if key_version >> 24 != GSSAPI_TOKEN or sasl.state is not State.NONE:
            return False
        sasl.begin_without_handshake()
        return True

    def token(self, held: bytes, served: Mapping[int, Served], now_ms: int) -> int:
        """Take the token that ``held`` begins with and return its size; MORE if it is not all there.

        0 if it is a request, and tokens are over. Raises ProtocolError for one that is too long.
        """
        sasl = self._sasl
        if not sasl.raw_is_answered and len(held) >= REQUEST_HEAD.size and REQUEST_HEAD.unpack_from(held)[1] in served:
            sasl.raw_over()
        if not sasl.raw:
            return 0
        size = raw_token_end(held, self._rules.unauthenticated_request_limit)
        if size > len(held):
            return MORE
        sasl.raw_request(held[4:size])
        account = self._sender.account
        account.meter.other_bytes += size
        self._in_flight.append(expect(0, RAW_TOKEN, account, now_ms))
        return size

    def needed(self, held: bytes) -> int:
        """Return how many bytes have to be there before ``token`` can say more of ``held`` than MORE."""
        if not self._sasl.raw_is_answered and len(held) < REQUEST_HEAD.size:
            # From there on it is seen whether it is a request instead, which may be larger than a token.
            return min(raw_token_end(held, INT32_MAX), REQUEST_HEAD.size)
        return raw_token_end(held, self._rules.unauthenticated_request_limit)
