"""A request that is timed: what is known of it until its answer comes."""

from proxy.usage.request_times import ApiTimes
from quotas.engine import Bound


class Timed:
    """Of a request that has been forwarded while a request_percentage is configured."""

    __slots__ = (
        "api",
        "bounds",
        "chunks",
        "elapsed_ns",
        "generation",
        "may_wait",
        "reserved",
        "size",
        "start_ns",
        "work_ns",
    )

    def __init__(self, api: ApiTimes, size: int, may_wait: bool, start_ns: int, chunks: int) -> None:
        self.api = api
        self.size = size
        self.may_wait = may_wait
        """The broker may let it wait by design, which is no work."""
        self.start_ns = start_ns
        """When its last byte was forwarded."""
        self.chunks = chunks
        """What ``RequestTimes.chunks`` was then."""
        self.bounds: tuple[Bound, ...] = ()
        """What it was charged to beforehand, ``reserved`` percent-seconds each."""
        self.generation = -1
        """Of quotas, that in which it was; -1: it was charged to nothing."""
        self.reserved = 0.0
        self.elapsed_ns = 0
        """How long it took, the way there and back taken off where nothing else stood before it."""
        self.work_ns = 0.0
        """What of that was neither the way nor what the proxy did meanwhile, as far as that can be told."""
