"""Clients that want more than their quota, by hand: each way around a throttle that is known.

A `Counter` is one client-id under attack, and what came of it: bytes that reached the client, of fetches, or that stand
in the broker's log, of produces. The proxy is asked for nothing. A `Way` is one life of a connection (or of some),
gone through again and again by each of its threads until the time is over; nobody takes notice of throttle times.
"""

import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proxy.session.admission import LENIENCE_MS
from tests.harness.load import PRODUCE
from tests.harness.measure import LEAD_S, SAMPLE_S, WINDOW_S, LogMeter, Series
from tests.harness.sasl import log_in_plain
from tests.harness.wire import Address, Connection, frame

HEARTBEAT: Final = 12
OLD_FETCH: Final = 4
"""The oldest version that brokers of today know; from before KIP-219."""
ANSWER_S: Final = 120.0
PAUSE_S: Final = 0.05
PIPELINED: Final = 100
RUNAWAY_BYTES: Final = 300_000_000
"""Nobody who is held comes near it: more would only fill the disk."""
FIRST_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Login:
    """By PLAIN; `renewed` is how far into its lifetime it is made anew."""

    user: str
    password: str
    renewed: float = 0.97


class Counter:
    """One client-id with a quota of `limit` bytes per second for one API, and everybody who uses it at `address`."""

    def __init__(
        self, name: str, address: Address, request: bytes, limit: int, *, quantum: int, login: Login | None = None
    ) -> None:
        self.name = name
        self.request = request
        self.limit = limit
        self.quantum = quantum
        """The least that can pass at once: a request of Produce, a batch of what is fetched."""
        self.login = login
        self.received = Series([(time.monotonic(), 0)])
        self.lives = 0
        self.lost = 0
        """Lives that ended otherwise than as they meant to."""
        self.ran_away_s: float | None = None
        self._address = address
        self._total = 0
        self._lock = threading.Lock()
        self._open: set[Connection] = set()
        self._over = threading.Event()

    @property
    def is_produce(self) -> bool:
        return bool(struct.unpack_from(">h", self.request, 4)[0] == PRODUCE)

    @property
    def client_id(self) -> str:
        length: int = struct.unpack_from(">h", self.request, 12)[0]
        return self.request[14 : 14 + length].decode()

    @contextmanager
    def connection(self, timeout_s: float = ANSWER_S) -> Iterator[Connection]:
        with _Counted(self._address, timeout_s, self) as connection:
            self._open.add(connection)
            try:
                if self._over.is_set():
                    raise ConnectionError("the time is over")
                yield connection
            finally:
                self._open.discard(connection)

    def sleep(self, seconds: float) -> None:
        self._over.wait(seconds)

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def note(self, count: int) -> None:
        """So many bytes have come to the client."""
        with self._lock:
            self._total += count
            self.received.append(time.monotonic(), self._total)
        self._check(self._total)

    def sent(self, count: int) -> None:
        """So many bytes of Produce have been acknowledged: only to see that it does not run away."""
        with self._lock:
            self._total += count
        self._check(self._total)

    def live(self, way: "Way", delay_s: float) -> None:
        self.sleep(delay_s)
        while not self.is_over:
            self.lives += 1
            try:
                way(self)
            except OSError:
                self.lost += not self.is_over
                self.sleep(PAUSE_S)

    def end(self) -> None:
        self._over.set()
        for connection in list(self._open):
            connection.cut()

    def _check(self, total: int) -> None:
        if total > RUNAWAY_BYTES and self.ran_away_s is None:
            self.ran_away_s = time.monotonic()
            self.end()


Way = Callable[[Counter], None]
Ways = Sequence[tuple[Way, int]]
"""Ways, and how many threads go each of them."""


@dataclass(frozen=True, slots=True)
class Attack:
    """So many threads of each way, all on one counter, the first of each at once and the others `stagger_s` apart."""

    counter: Counter
    ways: Ways
    stagger_s: float = 0.0
    log: Path | None = None
    """Of what is produced to."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one counter was given."""

    counter: Counter
    series: Series

    def rate(self, windows: int) -> float:
        """Bytes per second behind the first window, against the quota; of three windows or more."""
        return self._rate(windows) / self.counter.limit

    def mark(self, windows: int) -> float:
        """The most that `rate` may be: a request more or less does not count, however large against the quota."""
        return 1.1 + self.counter.quantum / self.counter.limit / (windows * WINDOW_S)

    @property
    def _brought_forward_s(self) -> float:
        """What deadlines of re-authentication may bring forward."""
        return LENIENCE_MS / 1000 if self.counter.login is not None else 0.0

    def first(self) -> float:
        """Bytes of the first ten seconds, in seconds' worth of the quota."""
        if self.series.is_empty():
            return 0.0
        start_s = self.series.start_s()
        return self.series.rate(start_s - LEAD_S, start_s + FIRST_S) * (FIRST_S + LEAD_S) / self.counter.limit

    def first_mark(self) -> float:
        """What one connection gets by Kafka's own law, with small requests, and one request.

        That is an allowance at once, and up to two seconds' worth more within the first ten seconds, because the time
        that it is taken over goes up and down between ten seconds and eleven.
        """
        return WINDOW_S + 2.0 + self._brought_forward_s + self.counter.quantum / self.counter.limit

    def _rate(self, windows: int) -> float:
        if self.series.is_empty():
            return 0.0
        if self.counter.ran_away_s is not None:  # it was stopped: what it had reached by then
            start_s = self.series.start_s() - SAMPLE_S
            return self.series.rate(start_s, max(self.counter.ran_away_s, start_s + SAMPLE_S))
        return self.series.steady_rate(windows)  # a request more or less is in `mark`


def attack(attacks: Iterable[Attack], duration_s: float) -> dict[str, Outcome]:
    """All at the same time, for so long; by the names of their counters."""
    attacks = list(attacks)
    with ExitStack() as stack:
        logs = {each.counter.name: stack.enter_context(LogMeter(each.log)) for each in attacks if each.log is not None}
        threads = [thread for each in attacks for thread in _threads(each)]
        for thread in threads:
            thread.start()
        time.sleep(duration_s)
        for each in attacks:
            each.counter.end()
        for thread in threads:
            thread.join(PAUSE_S + 5.0)
        outcomes = {}
        for each in attacks:
            counter = each.counter
            if counter.name not in logs:
                counter.note(0)  # the series lasts until now
            series = logs[counter.name].series if counter.name in logs else counter.received
            outcomes[counter.name] = Outcome(counter, series)
        return outcomes


def _threads(given: Attack) -> Iterator[threading.Thread]:
    for way, count in given.ways:
        for number in range(count):
            yield threading.Thread(target=given.counter.live, args=(way, number * given.stagger_s), daemon=True)


class _Counted(Connection):
    """Counts what comes, to the byte."""

    def __init__(self, address: Address, timeout_s: float, counter: Counter) -> None:
        super().__init__(address, timeout_s)
        self._counter = counter
        self._counts = not counter.is_produce

    def _some(self, size: int) -> bytes:
        found = super()._some(size)
        if self._counts:
            self._counter.note(len(found))
        return found


# ---------------------------------------------------------------------------------------------------------------- ways


def steadily(counter: Counter) -> None:
    """One connection, one request at a time: what any client does. Many that share a counter are a way of their own."""
    with counter.connection() as connection:
        while not counter.is_over:
            _exchange(counter, connection)


def anew_each_time(counter: Counter) -> None:
    """A connection for each request."""
    with counter.connection() as connection:
        _exchange(counter, connection)


def half_closed(counter: Counter) -> None:
    """A connection for each request, closed for writing when it is sent."""
    with counter.connection() as connection:
        connection.send(counter.request)
        connection.finish()
        connection.rest()
        _acknowledged(counter, 1)


def impatient(counter: Counter) -> None:
    """Gone, and back on another connection, when the answer does not come at once."""
    with counter.connection(timeout_s=0.5) as connection, suppress(TimeoutError):
        while not counter.is_over:
            _exchange(counter, connection)


def pipelined(counter: Counter) -> None:
    """A hundred requests at a time on one connection."""
    with counter.connection() as connection:
        while not counter.is_over:
            _pipeline(counter, connection, [counter.request] * PIPELINED)


def beside_heartbeats(counter: Counter) -> None:
    """A Heartbeat of no group before each request, which the broker refuses: the connection has coordinated."""
    with counter.connection() as connection:
        while not counter.is_over:
            connection.exchange(_heartbeat(counter.client_id))
            _exchange(counter, connection)


def pipelined_beside_heartbeats(counter: Counter) -> None:
    """The same, a hundred pairs at a time."""
    with counter.connection() as connection:
        while not counter.is_over:
            _pipeline(counter, connection, [_heartbeat(counter.client_id), counter.request] * PIPELINED)


def logging_in_again(counter: Counter) -> None:
    """Uses a login up to its end, then logs in again on the same connection."""
    with counter.connection() as connection:
        while not counter.is_over:
            _use_a_login(counter, connection)


def reconnecting_at_the_end(counter: Counter) -> None:
    """Uses a login up to its end, then has another on a connection of its own."""
    with counter.connection() as connection:
        _use_a_login(counter, connection)


def _use_a_login(counter: Counter, connection: Connection) -> None:
    login = counter.login
    if login is None:
        raise ValueError(f"{counter.name} has nobody to log in as")
    lifetime_s = log_in_plain(connection, login.user, login.password).session_lifetime_ms / 1000
    end_s = time.monotonic() + lifetime_s * login.renewed
    while time.monotonic() < end_s and not counter.is_over:
        _exchange(counter, connection)


def two_versions(old: bytes) -> Way:
    """Of Fetch: `old`, from before KIP-219, and the counter's own request, many at a time on one connection."""

    def pipelined_versions(counter: Counter) -> None:
        with counter.connection() as connection:
            while not counter.is_over:
                _pipeline(counter, connection, [old, counter.request] * 10)

    return pipelined_versions


def _exchange(counter: Counter, connection: Connection) -> None:
    connection.exchange(counter.request)
    _acknowledged(counter, 1)


def _pipeline(counter: Counter, connection: Connection, requests: Sequence[bytes]) -> None:
    sender = threading.Thread(target=_send_all, args=(connection, requests), daemon=True)
    sender.start()
    for request in requests:
        connection.receive()
        _acknowledged(counter, request is counter.request)
    sender.join()


def _send_all(connection: Connection, requests: Sequence[bytes]) -> None:
    with suppress(OSError):
        for request in requests:
            connection.send(request)


def _acknowledged(counter: Counter, requests: int) -> None:
    if counter.is_produce:
        counter.sent(requests * len(counter.request))


def _heartbeat(client_id: str) -> bytes:
    name = b"no such group"
    body = struct.pack(">h", len(name)) + name + struct.pack(">ih", 1, 0)
    return frame(HEARTBEAT, 1, 1, client_id, body)
