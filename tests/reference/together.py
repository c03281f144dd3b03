"""Every request of several clients that share counters: what the model of caps is held to.

Each client is charged to several counters, its quota and its caps. Its requests wait on its connections, one on each,
until what all of these counters owe is over; then the one goes that has waited longest, and is charged to all of them
in that moment (docs/decisions/0022). Else as ``request_level``, whose wire a client's connections share.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from quotas.rate import Window
from tests.reference.request_level import Counter, Shape, covered_s, due_s


@dataclass(frozen=True, slots=True)
class Client:
    """``demand_bytes`` is by second; ``counters`` are indices of limits, the quota first, then the caps."""

    demand_bytes: Sequence[float]
    shape: Shape
    counters: tuple[int, ...]
    connections: int = 1


@dataclass(slots=True)
class Met:
    """What a client met; lists are by second."""

    served_bytes: list[float]
    requests: list[int]
    muted_s: list[float] = field(default_factory=list)
    """How much of each second a request of it waited, or was told to, whichever counter it was for."""
    done_s: float = 0.0
    """When the last of its requests went."""


@dataclass(frozen=True, slots=True)
class Together:
    """What happened to all of them."""

    clients: list[Met]
    in_debt_s: list[list[float]]
    """[counter, second]: how much of each second it was in debt by what it had told."""


def run_together(
    clients: Sequence[Client],
    limits: Sequence[float | None],
    window: Window = Window(),  # noqa: B008  frozen
    *,
    seconds: int,
) -> Together:
    """Let the demand of all clients pass for so long, under ``limits`` by counter."""
    counters = [Counter(limit, window) for limit in limits]
    in_debt: list[list[tuple[float, float]]] = [[] for _ in limits]
    running = [_Running(client, [counters[each] for each in client.counters], seconds) for client in clients]
    waiting = [each for each in running if each.due]
    while waiting:
        # Who came first is the first of those who may go at once.
        now_s, _, number = min((each.goes_s, each.joins_s, number) for number, each in enumerate(waiting))
        if now_s >= seconds:
            break
        each = waiting[number]
        for counter, told_s in zip(each.client.counters, each.go(now_s), strict=True):
            if told_s:
                in_debt[counter].append((now_s, counters[counter].over_s))
        if not each.due:
            del waiting[number]
    return Together(
        [each.found(seconds) for each in running],
        [covered_s(spans, seconds) for spans in in_debt],
    )


class _Running:
    """A client, its next request and its connections."""

    def __init__(self, client: Client, counters: list[Counter], seconds: int) -> None:
        self.client = client
        self.due = due_s(client.demand_bytes, client.shape.request_bytes)[::-1]
        self._counters = counters
        self._ready_s = [0.0] * client.connections
        """When each connection has its last answer, in the order in which they take turns."""
        self._held: list[tuple[float, float]] = []
        self._met = Met([0.0] * seconds, [0] * seconds)

    @property
    def joins_s(self) -> float:
        """When its next request comes to the line."""
        return max(self.due[-1], self._ready_s[0])

    @property
    def goes_s(self) -> float:
        """When that may go, as far as counters owe by now."""
        return max(self.joins_s, *(counter.over_s for counter in self._counters))

    def go(self, now_s: float) -> list[float]:
        """Send the next request; return what each of its counters tells."""
        shape = self.client.shape
        joins_s = self.joins_s
        told_s = [counter.charge(shape.request_bytes, now_s) for counter in self._counters]
        until_s = max((each.over_s for each, told in zip(self._counters, told_s, strict=True) if told), default=now_s)
        self._held.append((joins_s, max(until_s, now_s)))
        self.due.pop()
        self._ready_s = [*self._ready_s[1:], now_s + shape.transfer_s * len(self._ready_s)]
        self._met.served_bytes[int(now_s)] += shape.request_bytes
        self._met.requests[int(now_s)] += 1
        self._met.done_s = now_s
        return told_s

    def found(self, seconds: int) -> Met:
        if self.due:
            self._held.append((self.joins_s, self.goes_s))
        self._met.muted_s = covered_s(self._held, seconds)
        return self._met
