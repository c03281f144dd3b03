"""The states of a session: why its client is not read from, and why its broker is not.

Each side has any number of reasons at a time, and is read again when none is left. A reason begins (+) and ends (-)
with these events alone, and ends only where it had begun; whatever else happens is a fault, and in tests an error.

| event            | what has happened                                   | client's side               | broker's side |
|------------------|-----------------------------------------------------|-----------------------------|---------------|
| MADE             | a session for a client, and no broker yet           | +CONNECTING                 |               |
| CONNECTED        | the broker connection stands                        | -CONNECTING                 |               |
| READ             | requests came that are not just to be passed on     | +ANSWERING +CROWDED +TURN   |               |
|                  |                                                     | +IN_LINE +MIDWAY +LOCAL     |               |
| TOKENS           | SASL tokens without headers come now                | +RAW_TOKENS                 | +RAW_TOKENS   |
| TOKENS_OVER      | requests come again                                 | -RAW_TOKENS                 | -RAW_TOKENS   |
| THROTTLE         | a counter is in debt, and this connection met it    | +THROTTLED +ANSWERING       |               |
| THROTTLE_OVER    | the throttle time is over                           | -THROTTLED                  | -HELD_BACK    |
| ANSWERED         | nothing is in flight, and nothing is THROTTLED      | -ANSWERING                  |               |
| ROOM             | half of what was in flight has been answered        | -CROWDED                    |               |
| NEXT             | others have had their turn                          | -TURN                       | -WALKED       |
| ADMITTED         | the turn under the quota has come, or is given up   | -IN_LINE -MIDWAY            | -OVERSIZED    |
| LOCALLY_ANSWERED | the proxy's own answer has been sent                | -LOCAL                      |               |
| BROKER_FULL      | the broker takes no more bytes                      | +BACKPRESSURE               |               |
| BROKER_READS     | it takes bytes again                                | -BACKPRESSURE               |               |
| CLIENT_FULL      | the client takes no more bytes                      | +UNTAKEN                    | +UNTAKEN      |
| CLIENT_READS     | it takes bytes again                                | -UNTAKEN                    | -UNTAKEN      |
| GOT              | an answer came that may not be passed on yet        |                             | +HELD_BACK    |
|                  |                                                     |                             | +WALKED       |
|                  |                                                     |                             | +OVERSIZED    |
| HALF_CLOSED      | the client has closed its half                      | +FINISHED                   |               |
| DRAIN            | the proxy is stopping                               | +DRAINING                   |               |

FINISHED and DRAINING never end: the session does, when all is answered.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Final

CONNECTING: Final = 1
"""The broker connection does not stand yet."""
THROTTLED: Final = 2
"""Until the throttle was computed + throttle time (KIP-219)."""
ANSWERING: Final = 4
"""Until what is in flight is answered: a throttle ends with its answer out, whichever is later (KIP-219)."""
CROWDED: Final = 8
"""As many requests wait for their answers as a session may have."""
DRAINING: Final = 16
"""The proxy is stopping."""
BACKPRESSURE: Final = 32
"""The broker takes no more bytes. It needs no border: what was read is forwarded."""
FINISHED: Final = 64
"""The client has closed its half; what it sent is still worked on."""
RAW_TOKENS: Final = 128
"""Not a reason to stop, but to read otherwise: SASL tokens come without Kafka's headers (SaslHandshake v0)."""
UNTAKEN: Final = 256
"""The client takes no more answers. A broker, too, reads no request while the answer to the last one is not sent."""
TURN: Final = 512
"""So many requests came at once that others have their turn first."""
IN_LINE: Final = 1024
"""A request waits for its turn under its quota."""
MIDWAY: Final = 2048
"""So does the rest of a large Produce: like back-pressure it needs no border."""
LOCAL: Final = 4096
"""The proxy itself is to answer, and is still at it: the next answer is its own."""
HELD_BACK: Final = 8192
"""An answer waits for its throttle time (response mode ``delay``)."""
WALKED: Final = 16384
"""A long answer is being changed, in slices."""
OVERSIZED: Final = 32768
"""An answer waits for its turn: it is larger than what its Fetch was granted, and the quota is in debt."""

WITHIN: Final = BACKPRESSURE | MIDWAY
"""The reasons that stop within a frame too."""
HELD_UP: Final = CONNECTING | THROTTLED | ANSWERING | CROWDED | DRAINING | UNTAKEN | TURN | IN_LINE | LOCAL
"""The reasons that stop a client between frames: a request under way is forwarded to its end."""
AT_BORDER: Final = HELD_UP | RAW_TOKENS
"""The reasons for which the fast path takes no requests."""
ANSWER_BORDER: Final = HELD_BACK | WALKED | OVERSIZED | RAW_TOKENS
"""The reasons for which the fast path takes no answers."""
UNTIL_ANSWERED: Final = ANSWERING | CROWDED | DRAINING | FINISHED
"""The reasons that end when what is in flight has been answered."""


class Event(IntEnum):
    """An event that changes the reasons of a side."""

    MADE = 0
    CONNECTED = 1
    READ = 2
    TOKENS = 3
    TOKENS_OVER = 4
    THROTTLE = 5
    THROTTLE_OVER = 6
    ANSWERED = 7
    ROOM = 8
    NEXT = 9
    ADMITTED = 10
    LOCALLY_ANSWERED = 11
    BROKER_FULL = 12
    BROKER_READS = 13
    CLIENT_FULL = 14
    CLIENT_READS = 15
    GOT = 16
    HALF_CLOSED = 17
    DRAIN = 18


Watch = Callable[[Event, int, int, int], None]
"""(event, reasons before, begun, ended): told of each transition before it takes place."""

_watch: list[Watch] = []


def watched_by(watch: Watch | None) -> None:
    """Tell ``watch`` of every transition of every session, None for nobody. For tests."""
    _watch[:] = [] if watch is None else [watch]


def begin(event: Event, before: int, begun: int) -> int:
    """Return the reasons of a side after ``event``, which begins those of ``begun``."""
    for watch in _watch:
        watch(event, before, begun, 0)
    return before | begun


def end(event: Event, before: int, ended: int) -> int:
    """Return the reasons of a side after ``event``, which ends those of ``ended``."""
    for watch in _watch:
        watch(event, before, 0, ended)
    return before & ~ended


class Flow:
    """One direction of a session: why its end is not read."""

    __slots__ = ("reasons",)

    def __init__(self) -> None:
        self.reasons = 0

    def read_tokens(self, raw: bool) -> None:
        """Read SASL tokens without headers from now on, or frames again."""
        if raw:
            self.reasons = begin(Event.TOKENS, self.reasons, RAW_TOKENS)
        else:
            self.reasons = end(Event.TOKENS_OVER, self.reasons, RAW_TOKENS)
