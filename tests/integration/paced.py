"""Demand that falls due by the clock: what is held up waits, and goes first when it may.

The same demand can be met again and again, under other quotas: what falls due when does not depend on what passes.
"""

import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tests.harness.load import ANSWER_TIMEOUT_S, PRODUCE, Answer, Load, RefusedError, Shape
from tests.harness.wire import Address, Connection

_DRAIN_S: Final = 150.0
"""What fell due before the end and was held up is still sent: half as long again as it took to fall due, and more."""


@dataclass(frozen=True, slots=True)
class Client:
    """Who wants what: ``demand_bytes`` of each second fall due evenly within it, as requests charged for as many."""

    client_id: str
    broker: int
    request: bytes
    charged_bytes: int
    connections: int
    demand_bytes: tuple[float, ...]

    @property
    def due_s(self) -> list[float]:
        """When each request does: when its last byte would have, were the demand a stream."""
        curve = np.concatenate(([0.0], np.cumsum(self.demand_bytes)))
        amounts = np.arange(self.charged_bytes, curve[-1] + 1, self.charged_bytes)
        due: list[float] = np.interp(amounts, curve, np.arange(len(curve))).tolist()
        return due

    @property
    def word(self) -> str:
        """What columns of usage records begin with: ``produce`` or ``fetch``."""
        return "produce" if struct.unpack_from(">h", self.request, 4)[0] == PRODUCE else "fetch"


def run_paced(
    clients: Sequence[Client], brokers: Mapping[int, Address], start_s: float, duration_s: float
) -> list[Load]:
    """All clients at once, from ``start_s`` (Unix time) for ``duration_s``; returns when every answer is in.

    A connection sends what fell due first as soon as it has its answer, and takes no notice of throttle times: it is
    the mute that holds it, not how quickly this program wakes up. Raises TimeoutError where not everything is sent
    ``_DRAIN_S`` after the end.
    """
    loads = [Load(connections=[[] for _ in range(client.connections)]) for client in clients]
    threads = []
    for client, load in zip(clients, loads, strict=True):
        channels = _Channels(client, brokers[client.broker], load, start_s, start_s + duration_s)
        threads += [
            threading.Thread(target=channels.drive, args=(answers,), daemon=True) for answers in load.connections
        ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, start_s + duration_s + _DRAIN_S - time.time()))
    if late := sum(thread.is_alive() for thread in threads):
        raise TimeoutError(f"{late} connections have not sent everything {_DRAIN_S:g} s after the end")
    return loads


def lateness_s(client: Client, load: Load, start_s: float) -> float:
    """Return how much later than due the latest request had its answer, of those that were sent."""
    answered_s = sorted(answer.at_s for answers in load.connections for answer in answers)
    return max((at_s - start_s - due_s for at_s, due_s in zip(answered_s, client.due_s, strict=False)), default=0.0)


class _Channels:
    """The connections of one client, which take turns in what falls due."""

    def __init__(self, client: Client, address: Address, load: Load, start_s: float, end_s: float) -> None:
        self._client_id = client.client_id
        self._shape = Shape(address, client.request)
        # One iterator for all threads: ``next`` of a list's iterator is atomic.
        self._due: Iterator[float] = iter([start_s + due_s for due_s in client.due_s])
        self._load = load
        self._end_s = end_s

    def drive(self, answers: list[Answer]) -> None:
        try:
            with Connection(self._shape.address, ANSWER_TIMEOUT_S) as connection:
                for due_s in self._due:
                    if not self._sleep_until(due_s):
                        break
                    answers.append(self._shape.answer(connection.exchange(self._shape.request), time.time()))
                self._sleep_until(self._end_s)
        except (OSError, RefusedError) as error:
            at = f"{self._client_id}, {time.time() - self._end_s:+.1f} s from the end, after {len(answers)} answers"
            self._load.errors.append(f"{at}: {error!r}")

    def _sleep_until(self, moment_s: float) -> bool:
        """Return whether it came before the end."""
        time.sleep(max(0.0, min(moment_s, self._end_s) - time.time()))
        return moment_s < self._end_s
