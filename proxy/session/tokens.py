"""SASL tokens without Kafka's headers (SaslHandshake v0; GSSAPI without any handshake), on both sides of a session."""

from typing import TYPE_CHECKING

from protocol.errors import Cause, ProtocolError
from protocol.headers import MORE
from protocol.sasl import raw_token_end
from proxy.session.in_flight import ACCOUNT
from proxy.session.states import ANSWER_BORDER, ANSWERING, AT_BORDER, RAW_TOKENS, UNTIL_ANSWERED, Event, begin, end

if TYPE_CHECKING:
    from proxy.session.answer_side import AnswerSide
    from proxy.session.request_side import RequestSide


def read_tokens(requests: "RequestSide", answers: "AnswerSide", raw: bool) -> None:
    """Have both sides read tokens from now on, or requests and answers again."""
    if raw:
        requests.reasons = begin(Event.TOKENS, requests.reasons, RAW_TOKENS)
        answers.reasons = begin(Event.TOKENS, answers.reasons, RAW_TOKENS)
    else:
        requests.reasons = end(Event.TOKENS_OVER, requests.reasons, RAW_TOKENS)
        requests.in_flight.clear()  # the last token of GSSAPI gets no answer of its own
        answers.reasons = end(Event.TOKENS_OVER, answers.reasons, RAW_TOKENS)


def take_requests(side: "RequestSide", now_ms: int) -> None:
    """Pass on the client's tokens, each after the answer to the one before where every one is answered."""
    splitter = side.splitter
    if not splitter.ready:
        return
    login = side.gates.login
    held = splitter.release()
    needed = 0
    while held and side.reasons & AT_BORDER == RAW_TOKENS:
        size = login.token(held, side.gates.served, now_ms)
        if size <= 0:
            needed = login.needed(held) if size == MORE else 0
            break
        side.write(held[:size])
        held = held[size:]
        if side.sasl.raw_is_answered:
            side.stop(Event.READ, ANSWERING)
    if held:
        splitter.hold(held, 0, needed)
    if not side.reasons & AT_BORDER:
        side.feed(b"", now_ms)


def take_answers(side: "AnswerSide", now_ms: int) -> None:
    """Pass on the broker's tokens; the one that ends the exchange is the last. ProtocolError for one too many."""
    splitter = side.splitter
    if not splitter.ready:
        return
    held = splitter.release()
    wanted = 0
    while held and side.reasons & ANSWER_BORDER == RAW_TOKENS:
        wanted = raw_token_end(held, side.rules.unauthenticated_request_limit)
        if wanted > len(held):
            break
        if not side.in_flight:
            raise ProtocolError(Cause.UNEXPECTED_RESPONSE, "raw SASL token with none in flight")
        side.in_flight.pop(0)[ACCOUNT].meter.bytes_out += wanted
        side.sasl.raw_answer(held[4:wanted], now_ms)
        side.write(held[:wanted])
        held = held[wanted:]
        wanted = 0
    if held:
        splitter.hold(held, 0, wanted)
    if not side.reasons & ANSWER_BORDER and held:
        side.feed(b"", now_ms)
    elif side.requests.reasons & UNTIL_ANSWERED:
        side.pair.answered(now_ms)
