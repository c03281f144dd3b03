"""The two ends of a session, as it sees them."""

from typing import Protocol

CLIENT, BROKER = "client", "broker"


class Wire(Protocol):
    """One end of a connection, as asyncio's transports have it."""

    def write(self, data: bytes) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class ClientWire(Wire, Protocol):
    """A client's end."""

    def bound_receive_buffer(self) -> None: ...

    def has_finished(self) -> bool:
        """Whether the client has closed its side, as the kernel sees it: also while it is not read."""
        ...


def dropped(data: bytes) -> None:
    """Take bytes for a connection that is gone."""
