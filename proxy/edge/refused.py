"""How a connection is refused before it has a session."""

from collections.abc import Callable

from protocol.errors import ProtocolError

Close = Callable[[], None]


class Refused(Exception):  # noqa: N818  no error of ours
    """A connection goes no further.

    It is counted for the cause of ``error``, or under the label ``outcome``; ``by_limit``: also in usage records of its
    listener. ``hold`` takes the function that closes it, and calls that in a moment; without it, it is closed at once.
    """

    def __init__(
        self,
        error: ProtocolError | None = None,
        outcome: str | None = None,
        *,
        by_limit: bool = False,
        hold: Callable[[Close], None] | None = None,
    ) -> None:
        super().__init__(error or outcome)
        self.error = error
        self.outcome = outcome
        self.by_limit = by_limit
        self.hold = hold


class LeftEarly(Refused):
    """The client closed the connection before its first request was complete, as health checks do all day."""

    def __init__(self) -> None:
        super().__init__(outcome="left_early")
