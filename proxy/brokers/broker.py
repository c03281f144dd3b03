"""One broker, where it is, and what the node there has said."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

from protocol.errors import Cause
from proxy.brokers.connection import BrokerConnection

UNKNOWN: Final = -1
"""The node id of a bootstrap address, which may lead to any broker."""


@dataclass(frozen=True, slots=True)
class Verified:
    """The node at this IP address is the broker."""

    ip: str


@dataclass(frozen=True, slots=True)
class Unproven:
    """The proxy cannot ask the node: a session may log in at this IP address, and asks before all else."""

    ip: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The node at the address is another one."""

    cause: Cause
    text: str


Verdict = Verified | Unproven | Refused


@dataclass(slots=True)
class Look:
    """The answer of the node at an address. While the connection stands, it is the same node, and not asked again."""

    connection: BrokerConnection
    cluster_id: str | None = None
    """None: it could not be asked without a client's login."""
    node_ids: tuple[int, ...] = ()
    """The brokers that it names at this address: itself."""
    ip: str = field(init=False)

    def __post_init__(self) -> None:
        self.ip = self.connection.ip  # a system call, which each session would make


@dataclass(slots=True)
class Broker:
    """One broker, at the address advertised by the listener that the route leads to."""

    node_id: int
    host: str
    port: int
    reachable: bool = True
    """The node there answered last time, and was this broker."""
    named: bool = True
    """An answer to the proxy's own question has named it since startup."""
    is_hint: bool = False
    """Only a client was told of it."""
    hint: tuple[str, int] | None = None
    """Another address, of which only a client was told."""
    remembered_as: str = ""
    """The cluster id that the state file has for it."""
    refused: Refused | None = None
    """The reason why the node there was refused last time."""
    was_verified: bool = False
    absent: int = 0
    """How many answers to the proxy's own questions in a row have not named it."""
    absent_at_s: float = 0.0
    look: Look | None = None
    asking: "asyncio.Task[Any] | None" = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def stands(self) -> bool:
        """Whether the node at the address is the one that was asked."""
        return self.look is not None and self.look.connection.is_open

    def move(self, host: str, port: int) -> None:
        self.host, self.port, self.hint, self.reachable = host, port, None, True
        self.lose()

    def lose(self) -> None:
        """Let the node at the address be asked again."""
        if self.look is not None:
            self.look.connection.abort()
            self.look = None
