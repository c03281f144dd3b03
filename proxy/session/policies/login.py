"""The rule of a client that has not proved who it is: it may send SASL tokens, and ask for versions. All else waits for
the proof; where that cannot be read in the exchange, the broker is asked.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from protocol.errors import Cause, ProtocolError
from protocol.frames import REQUEST_HEAD
from protocol.requests import NOT_AUTHENTICATED, WHICH_BROKERS
from protocol.sasl import SASL_AUTHENTICATE, raw_token_end
from protocol.table import SPECS, key_version
from proxy.identity.sasl import LoginState
from proxy.session.exchange import Exchange, Need, Request
from proxy.session.flow import BROKER, CLIENT
from proxy.session.serving import FORWARD, PROVES, Served

if TYPE_CHECKING:
    from proxy.session.session import Session

GSSAPI_TOKEN: Final = 0x60
"""The first byte of a GSSAPI token (RFC 2743 §3.1), and of no api key."""

_QUESTION_ID: Final = 0x536C7569
_QUESTION: Final = WHICH_BROKERS.frame("sluice", _QUESTION_ID)
"""Metadata of no topics: it needs no rights, costs a broker next to nothing, and changes nothing there. ApiVersions
would not do: it is answered to everybody."""
_ASKED: Final = Served(WHICH_BROKERS.spec, on_request=FORWARD, on_answer=PROVES, delayed=False)
_RAW_TOKEN: Final = Served(SPECS[key_version(SASL_AUTHENTICATE, 0)], on_request=FORWARD, on_answer=0, delayed=False)
"""A SASL token without a header (SaslHandshake v0); its answer has none either."""


Vouch = Callable[[bytes], ProtocolError | None]
"""Takes the answer to the question, which says who the node is; returns why the session may not go on there."""


class LoginPolicy:
    """Takes the logins of one connection.

    Requests behind a token wait for its answer, as at a broker: they belong to whoever the client then is, and answers
    to two tokens under way could not be told apart.
    """

    __slots__ = ("_session", "vouch")

    def __init__(self, session: "Session") -> None:
        self._session = session
        self.vouch: Vouch | None = None
        """While the node at the broker's address has not said who it is."""

    def check_size(self, request: Request) -> None:
        """Raise ProtocolError for a request that is too long for a client that nobody knows yet."""
        request.check_size(self._session.worker.unauthenticated_request_limit, "limits.request_before_authentication")

    # --------------------------------------------------------------------------- whether the broker serves the client

    def ask(self, now_ms: int) -> None:
        """Ask the broker whether it serves the client, which tells how a login has ended, and who the broker is."""
        self._session.requests.write(_QUESTION)
        self._session.in_flight.append(Exchange(_QUESTION_ID, _ASKED, self._session.identity.account, now_ms))

    def answered(self, answer: bytes) -> bool:
        """Take the answer to that; whether the broker does. If not, the connection is closed, as the broker does."""
        if answer[8:] == NOT_AUTHENTICATED:
            error = ProtocolError(
                Cause.NOT_AUTHENTICATED, "a request of a client that the broker has not authenticated"
            )
            self._session.reject(CLIENT, error)
            return False
        if self.vouch is not None and (refused := self.vouch(answer)) is not None:
            self._session.reject(BROKER, refused)
            return False
        self.vouch = None
        self._session.sasl.proven()
        return True

    # ------------------------------------------------------------------------------- tokens without Kafka's headers

    def begins_gssapi(self, key_version: int) -> bool:
        """Whether a login begins with what is no request: clients of Kafka 0.9 send GSSAPI without SaslHandshake."""
        sasl = self._session.sasl
        if key_version >> 24 != GSSAPI_TOKEN or sasl.state is not LoginState.NONE:
            return False
        sasl.begin_without_handshake()
        return True

    def token(self, held: bytes, served: Mapping[int, Served], now_ms: int) -> bytes | Need | None:
        """Take the token that ``held`` begins with and return it, if it is all there.

        Returns None if that is a request, and tokens are over. Raises ProtocolError for a token that is too long.
        """
        sasl = self._session.sasl
        if not sasl.raw_is_answered and len(held) >= REQUEST_HEAD.size and REQUEST_HEAD.unpack_from(held)[1] in served:
            sasl.raw_over()
        if not sasl.raw:
            return None
        size = raw_token_end(held, self._session.worker.unauthenticated_request_limit)
        if size > len(held):
            may_be_request = not sasl.raw_is_answered and len(held) < REQUEST_HEAD.size
            return Need(min(size, REQUEST_HEAD.size) if may_be_request else size)
        sasl.raw_request(held[4:size])
        account = self._session.identity.account
        account.meter.other_bytes += size
        self._session.in_flight.append(Exchange(0, _RAW_TOKEN, account, now_ms))
        return held[:size]
