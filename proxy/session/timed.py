"""A request that is timed: what is known of it until its answer comes."""

from quotas.engine import Bound


class Timed:
    """Of a request that has been forwarded while a request_percentage is configured."""

    __slots__ = ("bounds", "may_wait", "reserved", "size", "start_ns")

    def __init__(self, size: int, may_wait: bool, start_ns: int) -> None:
        self.size = size
        self.may_wait = may_wait
        """The broker may let it wait by design, which is no work."""
        self.start_ns = start_ns
        """When its last byte was forwarded."""
        self.bounds: tuple[Bound, ...] = ()
        """What it was charged to beforehand, ``reserved`` percent-seconds each."""
        self.reserved = 0.0
