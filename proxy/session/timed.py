"""A request that is timed: what is known of it until its answer comes."""

from quotas.engine import Bound


class Timed:
    """Of a request that has been forwarded while a request_percentage is configured."""

    __slots__ = ("bound", "chunks", "may_wait", "reserved", "size", "start_ns")

    def __init__(self, size: int, may_wait: bool, start_ns: int, chunks: int) -> None:
        self.size = size
        self.may_wait = may_wait
        """The broker may let it wait by design, which is no work."""
        self.start_ns = start_ns
        """When its last byte was forwarded."""
        self.chunks = chunks
        """What ``RequestTimes.chunks`` was then."""
        self.bound: Bound | None = None
        """What it was charged to beforehand, ``reserved`` percent-seconds."""
        self.reserved = 0.0
