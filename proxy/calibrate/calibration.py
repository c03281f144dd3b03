"""Bursts of three kinds of requests, each under a small quota of its own, until the broker's first throttle."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from kafka.record.default_records import DefaultRecordBatchBuilder

from config.quotas import Window
from config.request_costs import RequestCosts as Prices
from protocol.error_codes import ERROR_NAMES
from protocol.fetch import partitions_in
from protocol.first_batch import NO_BATCH, first_batch
from protocol.headers import fetch_limits_offset, produce_acks_offset, request_body_offset
from protocol.probes import Probe, all_metadata, fetch_nothing, produce
from proxy.brokers.connection import BrokerConnection
from proxy.brokers.persistent_connection import Access
from proxy.calibrate.cluster import PREFIX, TIMEOUT_S, Calibrated, CalibrationError, connection_to
from proxy.calibrate.inversion import cost_us, factor
from proxy.runtime.clock import monotonic_s
from proxy.usage.request_costs import FETCH, PRODUCE, RequestCosts

PERCENT: Final = 0.4
"""The quota of each burst: it ends after 40 ms of a broker's threads, some hundred requests."""
BURSTS: Final = 5
_SPARE: Final = 3
"""Further bursts of each kind, for those that end at a border of the broker's samples."""
_WARM_UP: Final = 300
_MOST_REQUESTS: Final = 20_000
_RECORDS: Final = 150
_RECORD_BYTES: Final = 100
MOST_SPREAD: Final = 1.5
"""Beyond it, something else has made requests dear: a broker that has just started, or a busy machine."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Results for one kind of request."""

    name: str
    table_us: float
    measured_us: tuple[float, ...]

    @property
    def ratios(self) -> list[float]:
        return [each / self.table_us for each in self.measured_us]

    @property
    def spread(self) -> float:
        return max(self.measured_us) / min(self.measured_us)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Results for one broker."""

    broker: int
    kinds: tuple[Kind, ...]
    left: tuple[str, ...]
    """Topics and client-ids left by an earlier calibration, and removed by this one."""

    @property
    def scale(self) -> float:
        return factor([ratio for kind in self.kinds for ratio in kind.ratios])

    @property
    def spread(self) -> float:
        return max(kind.spread for kind in self.kinds)

    def lines(self) -> Iterator[str]:
        """Yield what to print."""
        if self.left:
            yield f"removed what an earlier calibration had left: {', '.join(self.left)}"
        for kind in self.kinds:
            least, most = min(kind.measured_us), max(kind.measured_us)
            yield (
                f"{kind.name}: {median(kind.measured_us):.0f} µs in bursts ({least:.0f} to {most:.0f}),"
                f" {kind.table_us:.0f} µs in the table"
            )
        if self.spread > MOST_SPREAD:
            yield (
                f"warning: bursts of one kind differ by a factor of {self.spread:.1f}. Was the broker started within "
                "the last minutes, or is its machine busy? Calibrate again when it is not"
            )
        yield f"broker {self.broker}: request_costs.scale: {self.scale:.2g} (spread {self.spread:.1f})"


async def calibrate(access: Access, prices: Prices, window: Window, wanted: int | None) -> Calibration:
    """Measure the broker ``wanted``, or the first. Its topic and quotas are removed again, however it ends.

    Raises CalibrationError.
    """
    cluster = Calibrated(access)
    brokers = await cluster.brokers()
    broker = min(brokers) if wanted is None else wanted
    if broker not in brokers:
        known = ", ".join(map(str, sorted(brokers)))
        raise CalibrationError(f"there is no broker {broker}: give --broker with one of {known}")
    probes = [fetch_nothing(cluster.topic), produce(cluster.topic, _batch()), all_metadata()]
    names = [[f"{cluster.topic}-{kind}-{burst}" for burst in range(BURSTS + _SPARE)] for kind in range(len(probes))]
    try:
        left = await cluster.prepare(broker, [name for of_kind in names for name in of_kind], PERCENT)
        async with connection_to(access, *brokers[broker]) as connection:
            bursts = Bursts(connection, window)
            kinds = [
                await bursts.measure(probe, client_ids, prices) for probe, client_ids in zip(probes, names, strict=True)
            ]
    except BaseException:
        await _removed(cluster)
        raise
    await cluster.remove()
    return Calibration(broker, tuple(kinds), tuple(left))


async def _removed(cluster: Calibrated) -> None:
    """Clean up after a failure, which stays the error to report; name what cannot be removed."""
    try:
        await cluster.remove()
    except CalibrationError as error:
        said = f"topics and quotas of client-ids that begin with {PREFIX} may be left"
        raise CalibrationError(f"{error}; {said}: the next `sluice calibrate` removes them") from error


class Bursts:
    """Measures one broker, over one connection."""

    def __init__(self, connection: BrokerConnection, window: Window) -> None:
        self._connection = connection
        self._window = window

    async def measure(self, probe: Probe, client_ids: Sequence[str], prices: Prices) -> Kind:
        """Return what BURSTS bursts of a kind cost. Raises CalibrationError where the broker gives no throttle."""
        async with asyncio.timeout(TIMEOUT_S):
            for _ in range(_WARM_UP):
                response = await self._asked(probe, "sluice")
        found: list[float] = []
        for client_id in client_ids:
            async with asyncio.timeout(TIMEOUT_S):
                if (us := await self._burst(probe, client_id)) is not None:
                    found.append(us)
            if len(found) == BURSTS:
                return Kind(probe.name, table_us(probe, len(response) - 4, prices), tuple(found))
        raise CalibrationError(
            f"{probe.name}: only {len(found)} of {len(client_ids)} bursts could be read, because the broker's throttles"
            " were as long as they can be. Is its machine very busy, or is its quota.window not the quotas.window here?"
        )

    async def _burst(self, probe: Probe, client_id: str) -> float | None:
        """Return what a request costs by one burst under a quota nobody has used yet; None if it cannot be read."""
        began_s = monotonic_s()
        for requests in range(1, _MOST_REQUESTS + 1):
            throttle_ms = probe.throttle_ms(await self._asked(probe, client_id))
            if throttle_ms > 0:
                return cost_us(PERCENT, self._window, (monotonic_s() - began_s) * 1000, throttle_ms, requests)
        raise CalibrationError(
            f"{probe.name}: {_MOST_REQUESTS} requests met no throttle under request_percentage {PERCENT}. Is there a "
            "quota for the user of this login, which wins over that of the client-id? Then log in as another one"
        )

    async def _asked(self, probe: Probe, client_id: str) -> bytes:
        response = await self._connection.ask(probe.request, client_id)
        if error_code := probe.error_code(response):
            said = ERROR_NAMES.get(error_code, error_code)
            raise CalibrationError(
                f"{probe.name}: the broker answers with {said}: may this login read and write there?"
            )
        return response


def table_us(probe: Probe, response_bytes: int, prices: Prices) -> float:
    """Return what the table, not scaled, says of a request and its response of that size."""
    costs = RequestCosts(prices.model_copy(update={"scale": 1.0}))
    request = probe.request
    frame = request.frame("", 1)
    us = costs.of_request[request.api_key] + response_bytes * costs.of_answer_byte[request.api_key]
    body = request_body_offset(request.spec, frame, 0, len(frame))
    if request.api_key == FETCH:
        limits_at = fetch_limits_offset(request.spec, frame, body, len(frame))
        us += costs.partition_us * partitions_in(request.spec, limits_at, len(frame))
    elif request.api_key == PRODUCE:
        acks_at = produce_acks_offset(request.spec, frame, body, len(frame))
        batch = first_batch(request.spec, frame, acks_at + 2, len(frame)) or NO_BATCH
        us = costs.of_produce(batch) + (len(frame) - 4) * costs.of_produce_byte(batch)
    return us


def _batch() -> bytes:
    """Return a batch of format v2, of records that are not compressed."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for number in range(_RECORDS):
        value = f"{number:08}".encode() * (_RECORD_BYTES // 8)
        builder.append(number, timestamp=None, key=None, value=value, headers=[])
    return bytes(builder.build())
