"""What is changed in answers: versions offered, addresses of brokers, throttle times; each whole, or in slices."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, Final, Protocol

from protocol.api_versions import intersect
from protocol.cluster_ids import cluster_id_at, cluster_id_behind
from protocol.compile import SLICE_BYTES
from protocol.error_codes import coordinator_errors
from protocol.errors import Cause, ProtocolError
from protocol.locator import Endpoint, locate, splice
from protocol.overlay import ADDRESSES_FIRST, FIND_COORDINATOR, METADATA, RECORDS
from protocol.quorum import names_controllers, without_listeners
from protocol.rewriting import MOST_LOOKED_UP, Rewriting
from protocol.table import ApiSpec
from proxy.session.gates.settling import wanted
from proxy.session.serving import AUTHENTICATED, NEGOTIATE, PROVES, REWRITE, SETTLE, TELL, Served

if TYPE_CHECKING:
    from proxy.session.pair import Pair

Advertise = Callable[[Sequence[Endpoint], str | None], Mapping[int, tuple[bytes, int]]]
"""(Broker addresses of an answer, the id of its cluster) → node id → the (host, port) that a client is told, listening
already. The id is None unless the answer is one that names all brokers, with these; "" if it does not say its id."""

INT: Final = Struct(">i")
"""Of an ApiVersions response, whose header is v0 in all versions."""
NO_ERROR: Final = b"\0\0"


class Sliced(Protocol):
    """What becomes of a long answer, a slice at a time."""

    def advance(self) -> bool:
        """Do one slice; True when it is over. Raises ProtocolError for what is no answer."""
        ...


class Changes:
    """Changes the answers of one connection."""

    __slots__ = ("_advertise", "_pair", "under_way")

    def __init__(self, pair: "Pair", advertise: Advertise) -> None:
        self._pair = pair
        self._advertise = advertise
        self.under_way: Sliced | None = None
        """The long answer that stands first in line, being changed in slices or done."""

    def needed(self, actions: int, spec: ApiSpec, size: int) -> int:
        """Return how many bytes of a long answer must be there before it is looked at; ProtocolError if it is too long.

        One that is wanted only to tell a throttle is then not wanted at all: the mute is what enforces it.
        """
        rules = self._pair.rules
        if actions & SETTLE:
            return wanted(size)
        if actions & PROVES and size <= rules.gathered_limit:
            return 4 + size
        if not actions & (REWRITE | NEGOTIATE | AUTHENTICATED | PROVES):
            return 4 + size if size <= rules.gathered_limit else 0
        if spec.api_key in ADDRESSES_FIRST and not actions & PROVES:
            return SLICE_BYTES
        if actions & NEGOTIATE:
            raise ProtocolError(Cause.FRAME_TOO_LARGE, f"{spec} response of {size} bytes: no broker has so many APIs")
        if actions & AUTHENTICATED:
            limit = rules.unauthenticated_request_limit
        else:
            limit = rules.response_limit if spec.api_key in RECORDS else rules.gathered_limit
        if size > limit:
            raise too_long(spec, size, limit)
        return 4 + size

    def of_whole(self, frame: bytes, actions: int, api: Served, throttle_ms: int, now_ms: int) -> bytes | None:
        """Read a gathered frame, and return what the client gets: ``frame`` itself where nothing has to change.

        None for one with so many brokers that it is to be changed in slices.
        """
        spec = api.spec
        if actions & NEGOTIATE:
            self._pair.rules.errors.note(spec.api_key, int.from_bytes(frame[8:10], "big", signed=True))
            frame = intersect(frame, spec, self._pair.rules.advertised)
            if not actions & TELL or frame[8:10] != NO_ERROR:  # an error is told in v0 layout (KIP-511)
                return frame
        if actions & AUTHENTICATED:
            self._pair.rules.errors.note(spec.api_key, self._pair.sasl.answer(spec, frame, now_ms))
            return frame
        if names_controllers(spec):
            return without_listeners(spec, frame)
        located = locate(spec, frame)
        if spec.api_key == FIND_COORDINATOR:
            self._note_errors(spec, frame)
        if len(located.endpoints) > MOST_LOOKED_UP:
            return None
        told_ms: int | None = None
        if actions & TELL and located.throttle_offset >= 0:
            # Never less than the broker's own: it does not read this connection for that long.
            told_ms = max(throttle_ms, INT.unpack_from(frame, located.throttle_offset)[0])
        if not located.endpoints and api.plain is not None:
            api.plain.learn(frame)
        if told_ms is None and not located.endpoints:
            return frame
        cluster_id = cluster_id_behind(spec, frame, located.endpoints) if spec.api_key == METADATA else None
        return splice(frame, located, told_ms, self._advertise(located.endpoints, cluster_id))

    def _note_errors(self, spec: ApiSpec, frame: bytes) -> None:
        errors = self._pair.rules.errors
        with suppress(ProtocolError):  # they are only counted: what cannot be read of them is the client's to find
            for error_code in coordinator_errors(spec, frame):
                errors.note(spec.api_key, error_code)

    def of_long(self, chunk: bytes, position: int, spec: ApiSpec, size: int, told_ms: int | None) -> Rewriting | None:
        """Change the long answer of ``size`` bytes at ``position``, as far as it has come, and tell ``told_ms``.

        None if that takes longer than a slice: ``under_way`` is then to be advanced, and this to be called again.
        """
        rewriting = self.under_way
        if not isinstance(rewriting, Rewriting):
            frame = chunk[position : position + 4 + size]
            rewriting = Rewriting(spec, frame, size, told_ms, self._told)
            if not rewriting.advance():
                self.under_way = rewriting
                return None
        self.under_way = None
        if spec.api_key == METADATA and not rewriting.needs_more:
            self._advertise((), cluster_id_at(spec, chunk, position + rewriting.end))
        return rewriting

    def _told(self, endpoint: Endpoint) -> tuple[bytes, int] | None:
        return self._advertise((endpoint,), None).get(endpoint.node_id)


def too_long(spec: ApiSpec, size: int, limit: int) -> ProtocolError:
    """Return why an answer that would have to be held in memory is refused."""
    return ProtocolError(
        Cause.FRAME_TOO_LARGE,
        f"{spec} response of {size} bytes has to be held in memory, and the limit is {limit}: limits.gathered",
    )
