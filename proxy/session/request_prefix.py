"""What all Produce, or all Fetch, requests of a client begin with: read once, then recognised by one comparison."""

from protocol.headers import fetch_limits_offset, has_fetch_limits, produce_acks_offset, request_body_offset
from proxy.runtime.names import client_id
from proxy.session.serving import PRODUCE, Served
from proxy.usage.meters import Meter
from quotas.engine import Bound, Engine
from quotas.kinds import QuotaKind

NONE = -1
MORE = -1
"""The request's beginning is not all there yet."""

AFTER_CORRELATION_ID = 12
MAX_KEPT_BYTES = 512
"""Of the beginnings that a connection keeps; a longer one (a client-id alone may have 32 KiB) is read each time."""
_ACKS_BYTES, _LIMITS_BYTES = 2, 8


class RequestPrefix:
    """The bytes from the client-id's length to the first field that is read, and what followed from them.

    For Produce that field is acks, so a transactional id is in the prefix; for Fetch it is min_bytes and max_bytes.
    Equal bytes read the same, so a request that begins as the last one did needs neither its header read nor its
    quota looked up: on the hot path that is one comparison instead of four calls.
    """

    __slots__ = ("_kind", "api", "beginning", "bound", "generation", "meter", "needed", "number", "width")

    def __init__(self, on_request: int) -> None:
        is_produce = on_request == PRODUCE
        self._kind = QuotaKind.PRODUCER_BYTE_RATE if is_produce else QuotaKind.CONSUMER_BYTE_RATE
        self.api: Served
        self.number = NONE
        """Of ``api``: api key << 16 | version; or NONE: the next one is read anew."""
        self.beginning = b""
        """What a request of ``api`` has from AFTER_CORRELATION_ID on if this is its prefix."""
        self.width = 0
        """Bytes from the frame's size to the field that is read, of which ``needed`` must be there."""
        self.needed = 0
        self.generation = -1
        """Of the engine when ``bound`` was resolved."""
        self.bound: Bound
        self.meter: Meter

    def forget(self) -> None:
        """Read the next request anew: its user or its broker is another."""
        self.number = NONE

    def find(self, api: Served, chunk: bytes, position: int, end: int, owner: tuple[str, int], engine: Engine) -> int:
        """Return the offset of the field behind the prefix of the request at ``position``, or MORE.

        ``owner`` is (user, node id of the broker). Raises ProtocolError if the request ends within that field.
        """
        field = position + self.width
        if (
            self.number == api.spec.number
            and self.generation == engine.generation
            and chunk.startswith(self.beginning, position + AFTER_CORRELATION_ID)
            and field + self.needed <= min(end, len(chunk))
        ):
            return field
        return self._read(api, chunk, position, end, owner, engine)

    def _read(self, api: Served, chunk: bytes, position: int, end: int, owner: tuple[str, int], engine: Engine) -> int:
        spec = api.spec
        field = request_body_offset(spec, chunk, position, end)
        needed = 0
        if field >= 0 and self._kind is QuotaKind.PRODUCER_BYTE_RATE:
            needed = _ACKS_BYTES
            field = produce_acks_offset(spec, chunk, field, end)
        elif field >= 0 and has_fetch_limits(spec):
            needed = _LIMITS_BYTES
            field = fetch_limits_offset(spec, chunk, field, end)
        if field < 0 or field + needed > len(chunk):
            return MORE
        self.api = api
        begin = position + AFTER_CORRELATION_ID
        kept = field - begin <= MAX_KEPT_BYTES
        self.number = spec.number if kept else NONE
        self.beginning = chunk[begin:field] if kept else b""
        self.width = field - position
        self.needed = needed
        self.generation = engine.generation
        self.bound = engine.resolve(owner[0], client_id(spec, chunk, position), self._kind, owner[1])
        return field
