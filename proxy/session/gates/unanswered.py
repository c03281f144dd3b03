"""The requests of a client that has closed: only those go that expect no answer, as nobody would read it."""

from collections.abc import Mapping
from typing import Final

from protocol.frames import REQUEST_HEAD
from protocol.headers import produce_acks_offset, request_body_offset
from protocol.table import ApiSpec
from proxy.session.serving import PRODUCE, Served

ACKS_0: Final = b"\0\0"


def without_answered(served: Mapping[int, Served], held: bytes) -> tuple[bytes, int] | None:
    """Return ``held`` without the requests that expect an answer, and how many these are.

    A Produce with acks=0 expects none. What is not there to its end stays; None where that is the first request, and it
    expects an answer. Raises ProtocolError where a request ends inside its header.
    """
    kept: list[bytes] = []
    dropped, position = 0, 0
    while len(held) - position >= REQUEST_HEAD.size:
        size, number, _, _ = REQUEST_HEAD.unpack_from(held, position)
        end = position + 4 + size
        if end > len(held) and position:
            break
        api = served.get(number)
        if api is not None and api.on_request == PRODUCE and _is_unanswered(api.spec, held, position, end):
            kept.append(held[position:end])
        elif end > len(held):
            return None
        else:
            dropped += 1
        position = end
    return b"".join((*kept, held[position:])), dropped


def _is_unanswered(spec: ApiSpec, held: bytes, position: int, end: int) -> bool:
    body = request_body_offset(spec, held, position, end)
    return held.startswith(ACKS_0, produce_acks_offset(spec, held, body, end))
