"""What OpenSSL's callbacks know of a client; in a module of its own, because mypyc cannot compile their classes."""

from contextvars import ContextVar
from socket import socket
from typing import Final


class Handshake:
    """One client's handshake, as far as OpenSSL's callbacks have to know it."""

    __slots__ = ("client", "server_name")

    def __init__(self, client: socket) -> None:
        self.client = client
        self.server_name: str | None = None
        """The host that the client wants to reach (SNI)."""


HANDSHAKE: Final[ContextVar[Handshake]] = ContextVar("HANDSHAKE")
"""The handshake of the task that called ``connect_accepted_socket``; transports keep the context they are made in."""
