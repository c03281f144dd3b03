"""The clients' traffic, second by second: requests in bursts, throttled by quotas as in Kafka.

The loop is closed: a client over its limit is muted for S/T - W seconds, and its delayed demand is sent later. So the
records are censored, as those of a real cluster are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.analysis.population import Bools, Floats, Ints, Objects, Population
from quotas.rate import Window
from quotas.throttle import excess

Counts = NDArray[np.int64]
Column = Floats | Ints | Objects | Counts

WINDOW: Final = Window()
WINDOW_S: Final = WINDOW.keep_ms // 1000
BURST: Final = 8.0
"""The factor of a client's demand in a burst."""
INTO_BURST, OUT_OF_BURST = 0.02, 0.3
"""The chances per ten seconds."""
TURNS: Final = 10
PEAK: Final = 20.0
"""A client's highest rate, as a multiple of its mean."""
PATIENCE_S: Final = 2
"""The most demand that a client queues, in seconds of its highest rate."""
REQUEST_HEAD, ANSWER_BYTES, FETCH_REQUEST_BYTES = 4, 64, 120


@dataclass(frozen=True, slots=True)
class Second:
    """The rows of one second: their meters, and the columns of a document."""

    meters: Ints
    columns: Mapping[str, Column]


class Traffic:
    """The state of all clients; ``next()`` advances by one second."""

    def __init__(self, population: Population, random: np.random.Generator) -> None:
        self._population = population
        self._random = random
        meters = len(population.unit)
        self._second = 0
        self._rate = population.requests_per_s.copy()
        self._chance = -np.expm1(-self._rate)
        self._peak = population.request_bytes * np.maximum(population.requests_per_s, 1) * PEAK
        self._waiting = np.zeros(meters)
        self._muted_until = np.zeros(meters)
        self._unit_sent = np.zeros((WINDOW_S, len(population.unit_limit)))
        self._unit_sum = np.zeros(len(population.unit_limit))
        self._quotas = _quotas_in_force(population)

    def next(self) -> Second:
        """Return the rows of the next second."""
        self._change_bursts()
        now = self._second
        fired = self._random.random(len(self._chance)) < self._chance
        meters = np.flatnonzero(fired | (self._waiting > 0) | (self._muted_until > now))
        sent, requests = self._send(meters, fired[meters], now)
        throttle_s = self._charge(meters, sent, now)
        throttled, muted_s = self._mute(meters, np.where(sent > 0, throttle_s, 0), requests, now)
        self._second += 1
        throttle_ms = np.maximum(throttle_s, 0) * 1000 * throttled
        counted = {
            "bytes": sent.astype(np.int64),
            "requests": requests,
            "throttle_ms": throttle_ms.astype(np.int64),
            "throttled": throttled,
            "muted_ms": np.rint(muted_s * 1000).astype(np.int64),
        }
        return Second(meters, self._columns(meters, counted))

    def _change_bursts(self) -> None:
        """Begin or end bursts for a tenth of the clients."""
        population = self._population
        turn = slice(self._second % TURNS, None, TURNS)
        usual = population.requests_per_s[turn]
        bursting = self._rate[turn] > usual
        drawn = self._random.random(len(usual))
        bursting = np.where(bursting, drawn > OUT_OF_BURST, drawn < INTO_BURST)
        self._rate[turn] = np.where(bursting, usual * BURST, usual)
        self._chance[turn] = -np.expm1(-self._rate[turn])

    def _send(self, meters: Ints, fired: Bools, now: int) -> tuple[Floats, Counts]:
        """Return the bytes and requests sent: none while muted, and no faster than a client can."""
        size = self._population.request_bytes[meters]
        rate = self._rate[meters]
        noise = self._random.standard_normal(len(meters))
        count = np.maximum(np.rint(rate + np.sqrt(rate) * noise), 1) * fired
        wanted = self._waiting[meters] + count * size * (1 + 0.2 * np.tanh(noise))
        free_s = np.clip(1 - (self._muted_until[meters] - now), 0, 1)
        sent = np.floor(np.minimum(wanted, self._peak[meters] * free_s))
        left = np.minimum(wanted - sent, self._peak[meters] * PATIENCE_S)
        self._waiting[meters] = np.where(left < 1, 0, left)
        return sent, np.ceil(sent / size).astype(np.int64)

    def _charge(self, meters: Ints, sent: Floats, now: int) -> Floats:
        """Return the throttle time by each one's quota."""
        population = self._population
        units = population.unit[meters]
        oldest = now % WINDOW_S
        self._unit_sum -= self._unit_sent[oldest]
        self._unit_sent[oldest] = np.bincount(units, sent, len(self._unit_sum))
        self._unit_sum += self._unit_sent[oldest]
        return excess(self._unit_sum[units] / WINDOW_S, population.unit_limit[units], WINDOW_S)

    def _mute(self, meters: Ints, throttle_s: Floats, requests: Counts, now: int) -> tuple[Counts, Floats]:
        """Return the number of throttled requests, and how long of this second the clients were muted."""
        hit = throttle_s > 0
        before_s = np.clip(self._muted_until[meters] - now, 0, 1)
        begin_s = (1 + before_s) / 2  # in the middle of the unmuted time
        self._muted_until[meters] = np.where(hit, now + begin_s + throttle_s, self._muted_until[meters])
        muted_s = before_s + np.where(hit, np.minimum(1 - begin_s, throttle_s), 0)
        return np.where(hit, np.minimum(requests, self._population.connections[meters]), 0), muted_s

    def _columns(self, meters: Ints, counted: Mapping[str, Counts]) -> dict[str, Column]:
        """Return the columns of a document. A client writes or reads; columns of the other direction are 0."""
        population = self._population
        produces = population.produces[meters]
        size, requests = counted["bytes"], counted["requests"]
        columns: dict[str, Column] = {
            "listener": population.listener[meters],
            "broker": population.broker[meters],
            "user": population.user[meters],
            "client_id": population.client_id[meters],
            "bytes_in": np.where(produces, size + REQUEST_HEAD * requests, FETCH_REQUEST_BYTES * requests),
            "bytes_out": np.where(produces, ANSWER_BYTES * requests, size + REQUEST_HEAD * requests),
            "requests": requests,
            "request_time_ms": requests * (1 + (meters % 17)),
            "connections": population.connections[meters],
            "connections_opened": (self._random.random(len(meters)) < 0.002).astype(np.int64),
            "connections_refused": np.zeros(len(meters), dtype=np.int64),
        }
        for kind, mine in (("produce", produces), ("fetch", ~produces)):
            columns |= {f"{kind}_{name}": np.where(mine, values, 0) for name, values in counted.items()}
        columns |= {name: values[meters] for name, values in self._quotas.items()}
        return columns


_NOBODY: Final = np.array(None, dtype=object)


def _quotas_in_force(population: Population) -> dict[str, Column]:
    """Return the columns of limits and rules, for all meters."""
    policy = population.policy
    rules = np.array([*policy.rules, None], dtype=object)
    of_pairs = np.array(["client-id" in rule for rule in policy.rules])[population.rule]
    columns: dict[str, Column] = {}
    for kind, limits in (("produce", policy.produce_limit), ("fetch", policy.fetch_limit)):
        limit = limits[population.rule]
        columns[f"{kind}_limit"] = limit
        columns[f"{kind}_rule"] = rules[np.where(np.isnan(limit), -1, population.rule)]
        columns[f"{kind}_counter_user"] = np.where(np.isnan(limit), _NOBODY, population.user)
        columns[f"{kind}_counter_client_id"] = np.where(np.isnan(limit) | ~of_pairs, _NOBODY, population.client_id)
    return columns
