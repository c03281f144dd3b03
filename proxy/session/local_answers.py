"""Requests that the proxy answers itself, each in its turn: after what the broker still has to answer.

An answerer gets the whole request, up to its own limit. While it works on one the client is not read, so that its
answer is the next one, whatever time it takes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from protocol.api_versions import unsupported_version_answer
from protocol.errors import ProtocolError
from protocol.frames import REQUEST_HEAD

_MOST_VERSION: Final = 0x7FFF
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
    def key_version(self) -> int:
        """Api key << 16 | version."""
        key_version: int = REQUEST_HEAD.unpack_from(self.frame)[1]
        return key_version

    @property
    def correlation_id(self) -> int:
        correlation_id: int = REQUEST_HEAD.unpack_from(self.frame)[2]
        return correlation_id


Done = Callable[[bytes | ProtocolError | None], None]
"""Takes the answer that was waited for; or why the request was none, which ends the connection; or None where nobody
will ever answer it, which cuts the connection off.
"""


class Answerer(Protocol):
    """Answers the requests of an API."""

    def most_bytes(self, user: str) -> int:
        """Return the longest request of ``user`` that it takes; a longer one ends the connection, before it is read."""
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

    def most_bytes(self, user: str) -> int:  # noqa: ARG002  the same for everybody
        return _MOST_BYTES

    def takes(self, version: int) -> bool:
        """Whether ``version`` is newer than what is served."""
        return self._newest < version <= _MOST_VERSION

    def answer(self, request: LocalRequest, done: Done) -> bytes | None:  # noqa: ARG002  at once
        return unsupported_version_answer(request.correlation_id, self._newest)
