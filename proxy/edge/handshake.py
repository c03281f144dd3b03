"""Per-client state of OpenSSL's callbacks; a module of its own because mypyc cannot compile the callbacks' classes."""

from contextvars import ContextVar
from socket import socket
from typing import Final


class Handshake:
    """State of a client's TLS handshake."""

    __slots__ = ("client", "server_name")

    def __init__(self, client: socket) -> None:
        self.client = client
        self.server_name: str | None = None
        """The host name that the client sent (SNI)."""


HANDSHAKE: Final[ContextVar[Handshake]] = ContextVar("HANDSHAKE")
"""The handshake of the task that called ``connect_accepted_socket``; transports keep the context they are created
in."""
