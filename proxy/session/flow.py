"""The states of a session: why its client is not read from, and why its broker is not.

Each side has any number of reasons at a time, and is read again when none is left. A reason ends only where it has
begun, and begins once, but for those marked * (a longer throttle, one more request, a second stop).

| reason       | side   | holds                                                                                        |
|--------------|--------|----------------------------------------------------------------------------------------------|
| CONNECTING   | client | until the broker connection stands                                                           |
| THROTTLED *  | client | until the throttle was computed + throttle time (KIP-219)                                    |
| ANSWERING *  | client | until what is in flight is answered, and no throttle is on: that ends with its answer out    |
| CROWDED *    | client | while as many requests wait for answers as a session may have, until half are answered       |
| DRAINING *   | client | from the proxy's stop to the session's end                                                   |
| BACKPRESSURE | client | while the broker takes no more bytes                                                         |
| FINISHED     | client | from the client's half-close to the session's end; what it sent is still worked on           |
| RAW_TOKENS   | both   | no reading up: while SASL tokens come without Kafka's headers (SaslHandshake v0)             |
| UNTAKEN      | both   | while the client takes no more answers: a broker, too, reads no request meanwhile            |
| TURN         | client | until other sessions have had their turn: very many requests came at once                    |
| IN_LINE      | client | while a request waits in a counter's queue                                                   |
| MIDWAY       | client | while the rest of a large Produce waits there                                                |
| LOCAL        | client | until the proxy's own answer, which is the next one, is sent                                 |
| HELD_BACK    | broker | until the throttle time of an answer is over (response mode ``delay``)                       |
| WALKED       | broker | until a long answer is changed, in slices                                                    |
| OVERSIZED    | broker | while an answer larger than its Fetch was granted waits in a counter's queue                 |

In tests every session is held to this table.
"""

from collections.abc import Callable
from typing import Final, Protocol

CLIENT: Final = "client"
BROKER: Final = "broker"

CONNECTING: Final = 1
THROTTLED: Final = 2
ANSWERING: Final = 4
CROWDED: Final = 8
DRAINING: Final = 16
BACKPRESSURE: Final = 32
FINISHED: Final = 64
RAW_TOKENS: Final = 128
UNTAKEN: Final = 256
TURN: Final = 512
IN_LINE: Final = 1024
MIDWAY: Final = 2048
LOCAL: Final = 4096
HELD_BACK: Final = 8192
WALKED: Final = 16384
OVERSIZED: Final = 32768

WITHIN: Final = BACKPRESSURE | MIDWAY
"""The reasons that stop a client within a frame too: what was read is forwarded."""
HELD_UP: Final = CONNECTING | THROTTLED | ANSWERING | CROWDED | DRAINING | UNTAKEN | TURN | IN_LINE | LOCAL
"""The reasons that stop a client between frames: a request under way is forwarded to its end."""
AT_BORDER: Final = HELD_UP | RAW_TOKENS
"""The reasons for which the fast path takes no requests."""
OF_ANSWERS: Final = HELD_BACK | WALKED | OVERSIZED
"""The reasons on the broker's side alone: an answer came that may not be passed on yet."""
ANSWER_BORDER: Final = OF_ANSWERS | RAW_TOKENS
"""The reasons for which the fast path takes no answers."""
UNTIL_ANSWERED: Final = ANSWERING | CROWDED | DRAINING | FINISHED
"""The reasons that end when what is in flight has been answered."""

_watch: "list[Callable[[Flow, int, int], None]]" = []


def watched_by(watch: "Callable[[Flow, int, int], None] | None") -> None:
    """Tell ``watch`` of what begins and ends on a side of any session, before it does; None for nobody. For tests."""
    _watch[:] = [] if watch is None else [watch]


class Wire(Protocol):
    """One end of a session, as asyncio's transports have it."""

    def write(self, data: bytes) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class ClientWire(Wire, Protocol):
    def bound_receive_buffer(self) -> None: ...

    def has_finished(self) -> bool:
        """Whether the client has closed its side, as the kernel sees it: also while it is not read."""
        ...


class Flow:
    """One direction of a session: why its end is not read."""

    __slots__ = ("reasons",)

    def __init__(self) -> None:
        self.reasons = 0

    def begin(self, reasons: int) -> None:
        for watch in _watch:
            watch(self, reasons, 0)
        self.reasons |= reasons

    def end(self, reasons: int) -> None:
        for watch in _watch:
            watch(self, 0, reasons)
        self.reasons &= ~reasons
