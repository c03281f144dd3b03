"""Requests that the proxy answers itself: handed to whoever answers them (``local_answers``)."""

from proxy.session.local_answers import Answerer, LocalRequest
from proxy.session.pair import Pair
from proxy.session.sender import Sender
from proxy.session.serving import Served


class LocalGate:
    """Has the requests of one connection answered here."""

    __slots__ = ("_pair", "_sender")

    def __init__(self, pair: Pair, sender: Sender) -> None:
        self._pair = pair
        self._sender = sender

    def answer(self, answerer: Answerer, frame: bytes, api: Served | None) -> bool:
        """Answer a request that was read whole; False if that takes time. ``api`` is None of what is in no table."""
        account = self._sender.account
        account.meter.other_requests += 1
        account.meter.other_bytes += len(frame)
        client_id = ""
        if api is not None:
            api.requests += 1
            client_id = account.key.client_id
        request = LocalRequest(frame, self._sender.user, client_id, self._pair.peer)
        answer = answerer.answer(request, self._pair.answer_locally)
        if answer is None:
            return False
        self.write(answer)
        return True

    def write(self, answer: bytes) -> None:
        """Send an answer, now or later."""
        self._sender.account.meter.bytes_out += len(answer)
        self._pair.client.write(answer)
