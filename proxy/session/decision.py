"""Decisions about a request or an answer: returned by the policy that judges it, acted on by its stream."""

from proxy.session.exchange import Body, Exchange


class Splice:
    """``data`` goes in place of the chunk's bytes from ``begin`` to ``end``."""

    __slots__ = ("begin", "data", "end")

    def __init__(self, begin: int, end: int, data: bytes) -> None:
        self.begin = begin
        self.end = end
        self.data = data


class Forward:
    """The request goes to the broker, with an edit or as it came.

    ``exchange`` expects its answer; None with acks=0. ``body`` counts and charges the rest of a request that has not
    come whole. ``stop`` has the reasons to read nothing behind it.
    """

    __slots__ = ("body", "edit", "exchange", "stop")

    def __init__(
        self, exchange: Exchange | None, edit: Splice | None = None, *, body: Body | None = None, stop: int = 0
    ) -> None:
        self.exchange = exchange
        self.edit = edit
        self.body = body
        self.stop = stop


class Park:
    """The request, or the answer, is held with all that follows while ``reason`` holds (``flow``)."""

    __slots__ = ("reason",)

    def __init__(self, reason: int) -> None:
        self.reason = reason


class Need:
    """The request, or the answer, is held until so many bytes of it are there."""

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size


class Reply:
    """The proxy answers the request itself: with ``answer``, or later if that is None."""

    __slots__ = ("answer",)

    def __init__(self, answer: bytes | None) -> None:
        self.answer = answer


Decision = Forward | Park | Need | Reply
"""About a request."""
Change = Splice | Park | Need | None
"""About an answer; None: it goes as it came."""
