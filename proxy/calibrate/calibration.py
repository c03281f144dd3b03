"""``sluice calibrate``: bursts of three kinds of requests, each under a small quota, until its first throttle.

The cost of a request is the inverse of QuotaUtils.throttleTime. A broker whose client has used S seconds of thread time
in a window of W seconds, with a limit of T, throttles it for S / T - W. So with the first throttle X of a fresh
client-id after n requests, S = T * (W + X), and S / n is the cost. It equals the broker's own JMX figure within 1 %
(docs/request-percentage.md).
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import click
from kafka.record.default_records import DefaultRecordBatchBuilder

from config.quotas import RequestCosts as Prices
from config.quotas import Window
from config.settings import Settings
from protocol.error_codes import ERROR_NAMES
from protocol.fetch import partitions_in
from protocol.first_batch import NO_BATCH, first_batch
from protocol.headers import fetch_limits_offset, produce_acks_offset, request_body_offset
from protocol.probes import Probe, all_metadata, fetch_nothing, produce
from proxy.brokers.connection import BrokerConnection
from proxy.brokers.persistent_connection import Access, access_by
from proxy.calibrate.cluster import TIMEOUT_S, Calibrated, CalibrationError, connection_to
from proxy.manage.target import access_to
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

BURST_SHARE: Final = 0.68
"""Cost in a burst / cost of a throttled client's requests: 0.62 on the machine of the table's measurements, 0.75 on
another one. Sparse requests cost more."""
LEAST: Final = 0.5
MOST: Final = 4.0
_EDGE_MS: Final = 20
"""Distance from the border of two samples within which the broker's W may differ from ours."""
EXIT_FAILED: Final = 1
EXIT_STOPPED: Final = 130


class Kind(NamedTuple):
    name: str
    table_us: float
    measured_us: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Calibration:
    broker: int
    kinds: tuple[Kind, ...]
    left: tuple[str, ...]
    """Topics and client-ids left by an earlier calibration, and removed by this one."""

    @property
    def scale(self) -> float:
        return factor([us / kind.table_us for kind in self.kinds for us in kind.measured_us])

    @property
    def spread(self) -> float:
        return max(max(kind.measured_us) / min(kind.measured_us) for kind in self.kinds)

    def lines(self) -> Iterator[str]:
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
    async with AsyncExitStack() as stack:
        cluster = Calibrated(access)
        stack.push_async_callback(cluster.close)
        brokers = await cluster.brokers()
        broker = min(brokers) if wanted is None else wanted
        if broker not in brokers:
            known = ", ".join(map(str, sorted(brokers)))
            raise CalibrationError(f"there is no broker {broker}: give --broker with one of {known}")
        probes = [fetch_nothing(cluster.topic), produce(cluster.topic, _batch()), all_metadata()]
        names = [[f"{cluster.topic}-{kind}-{burst}" for burst in range(BURSTS + _SPARE)] for kind in range(len(probes))]
        stack.push_async_callback(cluster.end)
        left = await cluster.prepare(broker, [name for of_kind in names for name in of_kind], PERCENT)
        bursts = Bursts(await stack.enter_async_context(connection_to(access, *brokers[broker])), window)
        kinds = [await bursts.measure(*of_kind, prices) for of_kind in zip(probes, names, strict=True)]
    return Calibration(broker, tuple(kinds), tuple(left))


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
            raise CalibrationError(f"{probe.name}: the broker answers with {said}: may this login read and write?")
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


def cost_us(percent: float, window: Window, took_ms: float, throttle_ms: int, requests: int) -> float | None:
    """Return the cost of each of ``requests``, which took ``took_ms`` until the first throttle.

    Returns None if the throttle was capped, or fell near the end of a sample.
    """
    beyond_ms = took_ms % window.size_ms
    if throttle_ms >= window.size_ms or took_ms >= window.size_ms * (window.samples - 1):
        return None
    if took_ms > _EDGE_MS and not _EDGE_MS < beyond_ms < window.size_ms - _EDGE_MS:
        return None
    window_ms = window.size_ms * (window.samples - 1) + beyond_ms
    return percent / 100 * (window_ms + throttle_ms) * 1000 / requests


def factor(ratios: list[float]) -> float:
    """Return the ``request_costs.scale`` that bursts ask for, each measured as a part of what the table says."""
    return min(max(median(ratios) / BURST_SHARE, LEAST), MOST)


def run(settings: Settings, command_config: Path | None, broker: int | None) -> int:
    """Measure, print what was found, and return the exit status. Raises click.UsageError."""
    access = access_by(settings.cluster)
    if command_config is not None:
        access = access_to(",".join(map(str, access.addresses)), command_config)
    try:
        found = asyncio.run(calibrate(access, settings.request_costs, settings.quotas.window, broker))
    except CalibrationError as error:
        click.echo(f"not calibrated: {error}", err=True)
        return EXIT_FAILED
    except KeyboardInterrupt:
        click.echo("stopped; what was made for it is removed", err=True)
        return EXIT_STOPPED
    click.echo("\n".join(found.lines()))
    return 0
