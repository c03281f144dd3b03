"""The work that is due on an answer before it goes: charging, holding, telling a throttle, reading, rewriting.

Where its first bytes are enough (a Fetch is charged and told, and its records stream on), the rest goes as it comes; of
all others the frame is gathered. A long answer is changed in slices.
"""

from collections.abc import Callable, Generator
from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, Final

from protocol.api_versions import intersect
from protocol.compile import SLICE_BYTES
from protocol.controllers import is_candidate, name_controller
from protocol.error_codes import coordinator_errors
from protocol.errors import Cause, ProtocolError
from protocol.headers import MORE
from protocol.locator import Endpoint, patch_throttle, read_throttle, throttle_position
from protocol.overlay import ADDRESSES_FIRST, FIND_COORDINATOR
from protocol.quorum import names_controllers, without_listeners
from protocol.resumable_walk import ResumableWalk, names_nobody
from protocol.rewriting import Rewriting
from protocol.splicer import Told
from protocol.table import WALK, ApiSpec
from proxy.session.admission import Ended
from proxy.session.exchange import Change, Exchange, Need, Park, Splice, Streamed
from proxy.session.flow import HELD_BACK, THROTTLED, WALKED
from proxy.session.policies.requests import Policies
from proxy.session.serving import AUTHENTICATED, CHARGE, GATHERED, NEGOTIATE, PROVES, REWRITE, SETTLE, TELL

if TYPE_CHECKING:
    from proxy.session.session import Session

INT: Final = Struct(">i")
"""Error code of an ApiVersions response, whose header is v0 in all versions."""
NO_ERROR: Final = b"\0\0"


_FIXED_OFFSET_BYTES: Final = 64  # size, correlation id, header tags and a throttle_time_ms at a fixed offset


class Responses:
    __slots__ = ("_names_one_controller", "_policies", "_result", "_session", "_told", "_work")

    def __init__(
        self,
        session: "Session",
        policies: Policies,
        told: Told,
        names_one_controller: Callable[[], bool],
    ) -> None:
        """``names_one_controller``: whether all answers name the same controller (``protocol.controllers``)."""
        self._names_one_controller = names_one_controller
        self._session = session
        self._policies = policies
        self._told = told
        self._work: Generator[None, None, Need | Splice | None] | None = None
        """The work on a long answer, in slices."""
        self._result: Need | Splice | None = None
        """The change of that answer, once it is done; its offsets count from the beginning of the answer."""

    def process(
        self, exchange: Exchange, chunk: bytes, position: int, size: int, now_ms: int, wait: Ended | None = None
    ) -> Change:
        """Do what is due on the answer at ``position``, whose wait has ended so if it has waited.

        Raises ProtocolError for what is no answer to that request.
        """
        api = exchange.api
        spec, actions = api.spec, exchange.actions
        walked = api.outline if size > SLICE_BYTES and spec.throttle_offset >= 0 else None
        gathered = walked is None and (actions & GATHERED or (actions & TELL and spec.throttle_offset == WALK))
        wanted = 4 + size if gathered else min(4 + size, _FIXED_OFFSET_BYTES)
        if gathered and size > SLICE_BYTES:
            gathered = wanted = self._needed(actions, spec, size)
        if len(chunk) - position < wanted:
            return Need(wanted)
        if actions & CHARGE and (park := self._policies.fetches.after(exchange, size, now_ms, wait)):
            return park
        actions = exchange.actions
        is_throttled = self._session.requests.reasons & THROTTLED
        if actions & TELL and api.delayed and is_throttled and now_ms < exchange.throttled_until_ms:
            return Park(HELD_BACK)
        if actions & PROVES:
            if self._policies.login.answered(chunk[position : position + 4 + size]):
                self._policies.lift_restriction()
            return Splice(position, position + 4 + size, b"")
        if gathered:
            return self._change(exchange, chunk, position, size, now_ms)
        edit: Splice | None = None
        if actions & TELL and spec.throttle_offset >= 0:
            offset = throttle_position(spec, chunk, position, position + 4 + size)
            if offset != MORE:  # no broker has sent so many header tags: the mute is what enforces it
                told_ms = max(exchange.throttle_ms, INT.unpack_from(chunk, offset)[0])
                edit = Splice(offset, offset + INT.size, INT.pack(told_ms))
        return edit if walked is None else Streamed(ResumableWalk(walked, size, self._told), edit)

    def _change(self, exchange: Exchange, chunk: bytes, position: int, size: int, now_ms: int) -> Change:
        """Change an answer that has been gathered; a long one in slices, while the broker is not read."""
        actions = exchange.actions
        if self._work is None:
            frame = chunk[position : position + 4 + size]
            if actions & SETTLE:
                self._work = self._policies.topics.settle(exchange, frame, size)
            else:
                if size <= SLICE_BYTES or actions & AUTHENTICATED:
                    changed = self._read(exchange, frame, now_ms)
                    if changed is not None:
                        return None if changed is frame else Splice(position, position + 4 + size, changed)
                self._work = self._rewrite(exchange, frame, size)
            while not self.advance():
                if size > SLICE_BYTES or not actions & SETTLE:
                    return Park(WALKED)
        self._work, change = None, self._result
        return Splice(position, position + change.end, change.data) if isinstance(change, Splice) else change

    def advance(self) -> bool:
        """Do one slice of the work on a long answer; True when it is over. Raises ProtocolError for no answer."""
        if self._work is None:
            return True
        try:
            next(self._work)
        except StopIteration as ended:
            self._result = ended.value
            return True
        return False

    def _rewrite(self, exchange: Exchange, frame: bytes, size: int) -> Generator[None, None, Need | Splice]:
        """Change an answer that names brokers. Where it names them in front, the rest is forwarded as it comes."""
        spec, limit = exchange.api.spec, self._session.worker.gathered_limit
        ids: list[int] = []
        """The node ids among which the controller is chosen."""

        def told(endpoint: Endpoint) -> tuple[bytes, int] | None:
            if is_candidate(spec, frame, endpoint):
                ids.append(endpoint.node_id)
            return self._told(endpoint)

        rewriting = Rewriting(spec, frame, size, exchange.throttle_ms if exchange.actions & TELL else None, told)
        while not rewriting.advance():
            yield
        if rewriting.needs_more:
            if len(frame) > limit:
                raise too_long(spec, len(frame), limit)
            return Need(min(4 + size, 2 * len(frame)))
        end, written = rewriting.end, rewriting.written()
        if not ids or not self._names_one_controller():
            return Splice(0, end, written)
        named = name_controller(spec, frame, end, written, min(ids), is_whole=len(frame) >= 4 + size)
        return Need(min(4 + size, len(frame) + SLICE_BYTES)) if named is None else Splice(0, *named)

    def _needed(self, actions: int, spec: ApiSpec, size: int) -> int:
        """Return how many bytes of a long answer must be there before it is looked at; ProtocolError if it is too long.

        One that is wanted only to tell a throttle is then not wanted at all: the mute is what enforces it.
        """
        worker = self._session.worker
        if actions & SETTLE:
            return self._policies.topics.wanted(size)
        if not actions & (REWRITE | NEGOTIATE | AUTHENTICATED | PROVES):
            return 4 + size if size <= worker.gathered_limit else 0
        if spec.api_key in ADDRESSES_FIRST and not actions & PROVES:
            return SLICE_BYTES
        if actions & NEGOTIATE:
            raise ProtocolError(Cause.FRAME_TOO_LARGE, f"{spec} response of {size} bytes: no broker has so many APIs")
        limit = worker.unauthenticated_request_limit if actions & AUTHENTICATED else worker.gathered_limit
        if size > limit:
            raise too_long(spec, size, limit)
        return 4 + size

    def _read(self, exchange: Exchange, frame: bytes, now_ms: int) -> bytes | None:
        """Read a gathered frame, and return what the client gets: ``frame`` itself where nothing has to change; None
        where brokers, or a throttle behind them, have to be written.
        """
        actions, spec, outline = exchange.actions, exchange.api.spec, exchange.api.outline
        if actions & NEGOTIATE:
            self._session.worker.errors.count(spec.api_key, int.from_bytes(frame[8:10], "big", signed=True))
            frame = intersect(frame, spec, self._session.worker.advertised)
            if actions & TELL and frame[8:10] == NO_ERROR:  # an error is told in v0 layout (KIP-511)
                frame = patch_throttle(spec, frame, max(exchange.throttle_ms, read_throttle(spec, frame) or 0))
            return frame
        if actions & AUTHENTICATED:
            self._session.worker.errors.count(spec.api_key, self._session.sasl.answer(spec, frame, now_ms))
            return frame
        if outline is not None and not actions & TELL and names_nobody(outline, frame, 0, len(frame) - 4):
            return frame
        if names_controllers(spec):
            return without_listeners(spec, frame)
        if spec.api_key == FIND_COORDINATOR:
            self._count_errors(spec, frame)
        return None

    def _count_errors(self, spec: ApiSpec, frame: bytes) -> None:
        errors = self._session.worker.errors
        with suppress(ProtocolError):  # they are only counted: what cannot be read of them is the client's to find
            for error_code in coordinator_errors(spec, frame):
                errors.count(spec.api_key, error_code)


def too_long(spec: ApiSpec, size: int, limit: int) -> ProtocolError:
    """Return why an answer that would have to be held in memory is refused."""
    return ProtocolError(
        Cause.FRAME_TOO_LARGE,
        f"{spec} response of {size} bytes has to be held in memory, and the limit is {limit}: limits.gathered",
    )
