"""Faults, and those on the wire: a class each, whose first line says what happens."""

import random
import time
from collections.abc import Generator, Sequence
from itertools import pairwise
from math import inf
from typing import ClassVar, Final

from bench.reliability.stage import Stage
from bench.reliability.wire import Ending, FaultGate, Piece

TICK_S: Final = 0.5
OFTEN_S: Final = (0.2, 1.0)
"""Between two connections that are cut, at one gate and in one direction."""


class Fault:
    """`strike` is a generator: it yields how long to wait for its next act; closed, it heals what it did."""

    id: ClassVar[str]
    least_s: ClassVar[float] = 0.0
    """It lasts that long at least."""
    times: ClassVar[int | None] = None
    """It strikes that often, within `most_s`."""
    most_s: ClassVar[float] = 3600.0
    longest_pause_s: ClassVar[float] = inf
    """The longest that a client with acks=all may be without an acknowledgement."""
    moves_leaders: ClassVar[bool] = False
    without: ClassVar[frozenset[str]] = frozenset()
    """Client libraries that it is not struck at."""
    allows_repetition: ClassVar[bool] = True
    """Where the mode does."""

    def __init__(self) -> None:
        self.struck = 0
        """How often it did something."""

    @property
    def what(self) -> str:
        return (self.__doc__ or "").partition("\n")[0].rstrip(".")

    def missing(self) -> str:
        """Why it cannot be had on this machine, or nothing."""
        return ""

    def strike(self, stage: Stage, rng: random.Random) -> Generator[float, None, None]:
        raise NotImplementedError


class OnWire(Fault):
    """Cuts what passes gates; `cut` is called in their threads."""

    at_clients: ClassVar[bool] = True
    """Between clients and Sluice; else between Sluice and the brokers."""
    of_requests: ClassVar[bool] = True
    of_answers: ClassVar[bool] = False

    def cut(self, chunk: bytes, starts: Sequence[int]) -> list[Piece]:
        raise NotImplementedError

    def strike(self, stage: Stage, rng: random.Random) -> Generator[float, None, None]:
        self.rng = rng
        gates = gates_of(stage, at_clients=self.at_clients)
        mine = self.cut
        for gate in gates:
            gate.requests += (mine,) if self.of_requests else ()
            gate.answers += (mine,) if self.of_answers else ()
        try:
            while True:
                yield TICK_S
        finally:
            for gate in gates:
                gate.requests = tuple(each for each in gate.requests if each != mine)
                gate.answers = tuple(each for each in gate.answers if each != mine)


def gates_of(stage: Stage, *, at_clients: bool) -> list[FaultGate]:
    return stage.clients if at_clients else list(stage.brokers.values())


class EndedConnection(OnWire):
    """Ends a connection within a frame, now and then."""

    ending: ClassVar[Ending]

    def __init__(self) -> None:
        super().__init__()
        self._due_s = 0.0

    def is_due(self) -> bool:
        if time.monotonic() < self._due_s:
            return False
        self._due_s = time.monotonic() + self.rng.uniform(*OFTEN_S)
        self.struck += 1
        return True

    def cut(self, chunk: bytes, starts: Sequence[int]) -> list[Piece]:
        if len(chunk) > 1 and self.is_due():
            return [Piece(chunk[: self.rng.randrange(1, len(chunk))], ending=self.ending)]
        return [Piece(chunk)]


class ResetMidRequest(EndedConnection):
    """The client's connection is reset within a request."""

    id = "F1"
    ending = Ending.RESET


class FinMidRequest(EndedConnection):
    """The client's connection ends within a request."""

    id = "F2"
    ending = Ending.FIN


class HalfClose(EndedConnection):
    """The client ends its direction after a whole request, and waits for the answer."""

    id = "F3"

    def cut(self, chunk: bytes, starts: Sequence[int]) -> list[Piece]:
        if len(starts) > 1 and starts[-1] > 0 and self.is_due():
            return [Piece(chunk[: starts[-1]], ending=Ending.HALF_CLOSE)]
        if starts == [0] and int.from_bytes(chunk[:4], "big") + 4 == len(chunk) and self.is_due():
            return [Piece(chunk, ending=Ending.HALF_CLOSE)]
        return [Piece(chunk)]


class OneByteSegments(OnWire):
    """Requests and answers come in segments of one byte, the first kilobyte of each read."""

    id = "F4"
    of_answers = True

    def cut(self, chunk: bytes, starts: Sequence[int]) -> list[Piece]:
        self.struck += 1
        return [*(Piece(chunk[at : at + 1]) for at in range(min(len(chunk), 1024))), Piece(chunk[1024:])]


class Latency(OnWire):
    """200 ± 150 ms in each direction between client and Sluice."""

    id = "F5"
    of_answers = True

    def cut(self, chunk: bytes, starts: Sequence[int]) -> list[Piece]:
        self.struck += 1
        return [Piece(chunk, wait_s=self.rng.uniform(0.05, 0.35))]


class Bandwidth(OnWire):
    """64 KB/s in each direction of each connection."""

    id = "F6"
    of_answers = True
    bytes_per_s: ClassVar[int] = 64_000

    def cut(self, chunk: bytes, starts: Sequence[int]) -> list[Piece]:
        self.struck += 1
        step = self.bytes_per_s // 10
        parts = [chunk[at : at + step] for at in range(0, len(chunk), step)]
        return [Piece(part, wait_s=len(part) / self.bytes_per_s) for part in parts]


class ResetMidAnswer(EndedConnection):
    """A broker's connection is reset within an answer."""

    id = "F9"
    at_clients, of_requests, of_answers = False, False, True
    ending = Ending.RESET


class FinMidAnswer(EndedConnection):
    """A broker's connection ends within an answer."""

    id = "F10"
    at_clients, of_requests, of_answers = False, False, True
    ending = Ending.FIN


class SplitAnswers(OnWire):
    """Each answer of a broker comes in two segments, split at each offset of its first 64 bytes in turn."""

    id = "F14"
    at_clients, of_requests, of_answers = False, False, True

    def cut(self, chunk: bytes, starts: Sequence[int]) -> list[Piece]:
        places = []
        for start in starts:
            self.struck += 1
            places.append(start + 1 + self.struck % 64)
        places = [0, *(place for place in places if place < len(chunk)), len(chunk)]
        return [Piece(chunk[begin:end], wait_s=0.002 if begin else 0.0) for begin, end in pairwise(places)]


class JoinedAnswers(OnWire):
    """Answers of a broker gather for 20 ms and come in one segment."""

    id = "F15"
    at_clients, of_requests, of_answers = False, False, True

    def cut(self, chunk: bytes, starts: Sequence[int]) -> list[Piece]:
        self.struck += len(starts) > 1
        return [Piece(chunk), Piece(b"", wait_s=0.02)]


class CorruptSize(EndedConnection):
    """The size of a broker's answer is negative, too large, too small, or zero."""

    id = "F16"
    at_clients, of_requests, of_answers = False, False, True
    sizes: ClassVar[tuple[int, ...]] = (-1, 0, 3, 0x7FFFFFFF, 0x16030100)

    def cut(self, chunk: bytes, starts: Sequence[int]) -> list[Piece]:
        if starts and starts[0] + 4 <= len(chunk) and self.is_due():
            at = starts[0]
            size = self.rng.choice(self.sizes).to_bytes(4, "big", signed=True)
            return [Piece(chunk[:at] + size + chunk[at + 4 :])]
        return [Piece(chunk)]


class Shut(Fault):
    """Something is done to gates for a while, and undone, again and again."""

    at_clients: ClassVar[bool] = False
    shut_s: ClassVar[tuple[float, float]] = (2.0, 6.0)
    open_s: ClassVar[float] = 4.0

    def shut(self, gate: FaultGate) -> None:
        raise NotImplementedError

    def chosen(self, stage: Stage, rng: random.Random) -> list[FaultGate]:
        return [rng.choice(gates_of(stage, at_clients=self.at_clients))]

    def strike(self, stage: Stage, rng: random.Random) -> Generator[float, None, None]:
        while True:
            gates = self.chosen(stage, rng)
            try:
                for gate in gates:
                    self.shut(gate)
                    self.struck += 1
                yield rng.uniform(*self.shut_s)
            finally:
                for gate in gates:
                    gate.open()
            yield self.open_s


class BlackHole(Shut):
    """Between clients and Sluice everything is held for 40 s, then let through."""

    id = "F7"
    least_s = 42.0
    at_clients = True
    shut_s = (40.0, 40.0)

    def chosen(self, stage: Stage, rng: random.Random) -> list[FaultGate]:
        return stage.clients

    def shut(self, gate: FaultGate) -> None:
        gate.silence()


class SilentBroker(Shut):
    """A broker accepts connections and says nothing."""

    id = "F11"
    least_s = 25.0
    shut_s = (10.0, 20.0)

    def shut(self, gate: FaultGate) -> None:
        gate.silence()


class RefusedBroker(Shut):
    """A broker's port refuses connections, and those that were there are gone."""

    id = "F12"

    def shut(self, gate: FaultGate) -> None:
        gate.shut()


class NoAnswerToSyn(Shut):
    """A broker's address answers no SYN, and nothing passes the connections that are there."""

    id = "F13"
    least_s = 15.0
    shut_s = (8.0, 12.0)

    def shut(self, gate: FaultGate) -> None:
        gate.block()
