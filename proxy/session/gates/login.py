"""What a client that has not proved who it is may send: tokens, and requests that nobody is charged for."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from protocol.errors import Cause, ProtocolError
from protocol.frames import REQUEST_HEAD, Head
from protocol.headers import MORE, produce_acks, request_body_offset
from protocol.sasl import raw_token_end
from proxy.identity.sasl import State
from proxy.session.in_flight import RAW_TOKEN, InFlight, expect
from proxy.session.sender import Sender
from proxy.session.serving import PRODUCE, Served

if TYPE_CHECKING:
    from proxy.session.pair import Pair

GSSAPI_TOKEN: Final = 0x60
"""What a GSSAPI token begins with (RFC 2743 §3.1); no api key does."""


class LoginGate:
    """Takes the logins of one connection.

    What the client sends behind a token waits for the answer, as at a broker: it belongs to whoever the client then is,
    and of two tokens under way no answer could be taken for that of the other.
    """

    __slots__ = ("_in_flight", "_pair", "_sender")

    def __init__(self, pair: "Pair", sender: Sender, in_flight: InFlight) -> None:
        self._pair = pair
        self._sender = sender
        self._in_flight = in_flight

    def request(self, api: Served, chunk: bytes, position: int, head: Head) -> bool:
        """Look at a SASL request; False if it is not all there. Raises ProtocolError for one that is too long."""
        size: int = head[0]
        end = position + 4 + size
        if size > self._pair.rules.unauthenticated_request_limit:
            raise ProtocolError(Cause.FRAME_TOO_LARGE, f"{api.spec} request of {size} bytes")
        if end > len(chunk):
            return False
        self._pair.sasl.request(api.spec, chunk[position:end])
        return True

    def unproved(self, api: Served, chunk: bytes, position: int, head: Head, now_ms: int) -> int:
        """Let a Produce or Fetch go that nobody can be charged for: who sends it has not been proved.

        A broker that demands proof refuses it. One that does not proves the client by its answer. Returns 0, or MORE
        if it is not all there as far as acks. Raises ProtocolError if it ends before them.
        """
        end = position + 4 + head[0]
        body = request_body_offset(api.spec, chunk, position, end)
        acks = produce_acks(api.spec, chunk, body, end) if body != MORE and api.on_request == PRODUCE else 1
        if body == MORE or acks is None:
            return MORE
        if acks:
            self.expect(api, head, now_ms)
        else:
            self._count(api, head)
        return 0

    def expect(self, api: Served, head: Head, now_ms: int) -> None:
        """Count a request that nothing is charged for, and expect its answer."""
        self._count(api, head)
        self._in_flight.append(expect(head[2], api, self._sender.account, now_ms))

    def _count(self, api: Served, head: Head) -> None:
        api.requests += 1
        meter = self._sender.account.meter
        meter.other_requests += 1
        meter.other_bytes += 4 + head[0]

    # ------------------------------------------------------------------------------- tokens without Kafka's headers

    def begins_gssapi(self, key_version: int) -> bool:
        """Whether a login begins with what is no request: clients of Kafka 0.9 send GSSAPI without SaslHandshake."""
        sasl = self._pair.sasl
        if key_version >> 24 != GSSAPI_TOKEN or sasl.state is not State.NONE:
            return False
        sasl.begin_without_handshake()
        return True

    def token(self, held: bytes, served: Mapping[int, Served], now_ms: int) -> int:
        """Take the token that ``held`` begins with and return its size; MORE if it is not all there.

        0 if it is a request, and tokens are over. Raises ProtocolError for one that is too long.
        """
        sasl = self._pair.sasl
        size = raw_token_end(held, self._pair.rules.unauthenticated_request_limit)
        if not sasl.raw_is_answered and len(held) >= REQUEST_HEAD.size and REQUEST_HEAD.unpack_from(held)[1] in served:
            sasl.raw_over()
        if not sasl.raw:
            return 0
        if size > len(held):
            return MORE
        sasl.raw_request(held[4:size])
        account = self._sender.account
        account.meter.other_bytes += size
        self._in_flight.append(expect(0, RAW_TOKEN, account, now_ms))
        return size

    def needed(self, held: bytes) -> int:
        """Return how many bytes have to be there before ``token`` can say more of ``held`` than MORE."""
        size = raw_token_end(held, self._pair.rules.unauthenticated_request_limit)
        if not self._pair.sasl.raw_is_answered and len(held) < REQUEST_HEAD.size:
            return min(size, REQUEST_HEAD.size)  # from there on it is seen whether it is a request instead
        return size
