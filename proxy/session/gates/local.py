"""Requests that the proxy answers itself: handed to whoever answers them (``local_answers``), counted, and sent."""

from typing import TYPE_CHECKING

from protocol.error_codes import UNSUPPORTED_VERSION
from proxy.session.local_answers import Answerer, LocalRequest, NewerApiVersions
from proxy.session.sender import Sender
from proxy.session.serving import API_VERSIONS_KEY, Served

if TYPE_CHECKING:
    from proxy.session.pair import Pair


def answered(pair: "Pair", sender: Sender, answerer: Answerer, frame: bytes, api: Served | None) -> bool:
    """Have a request answered that was read whole; False if that takes time. ``api`` is None of what is in no table."""
    account = sender.account
    account.meter.other_requests += 1
    account.meter.other_bytes += len(frame)
    client_id = ""
    if api is not None:
        api.requests += 1
        client_id = account.key.client_id
    if isinstance(answerer, NewerApiVersions):
        pair.rules.errors.note(API_VERSIONS_KEY, UNSUPPORTED_VERSION)
    answer = answerer.answer(LocalRequest(frame, sender.user, client_id, pair.peer), pair.answer_locally)
    if answer is None:
        return False
    send(pair, sender, answer)
    return True


def send(pair: "Pair", sender: Sender, answer: bytes) -> None:
    """Send an answer, at once or when its time has come."""
    sender.account.meter.bytes_out += len(answer)
    pair.client.write(answer)
