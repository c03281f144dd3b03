"""Usage records: what the meters counted, as rows (docs/usage-records.md)."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from proxy.usage.meters import ListenerMeters, Meter, MeterKey, Meters
from quotas.engine import Engine
from quotas.entities import Entity
from quotas.kinds import QuotaKind

MAX_ROWS: Final = 1000
"""Rows of one document."""
MAX_NAME_BYTES: Final = 512 * 1024
"""Names of one document, with which it still is smaller than the largest batch that brokers take by default."""
SLICE: Final = 100
"""Meters looked at before others get their turn: a tenth of a millisecond."""

# In the order of Meter.take.
COLUMNS: Final = (
    *("listener", "broker", "user", "client_id", "bytes_in", "bytes_out", "requests", "request_time_ms"),
    *("connections", "connections_opened", "connections_refused"),
    *("produce_bytes", "produce_requests", "produce_limit", "produce_rule"),
    *("fetch_bytes", "fetch_requests", "fetch_limit", "fetch_rule"),
    *("produce_throttled", "produce_throttle_ms", "produce_muted_ms"),
    *("fetch_throttled", "fetch_throttle_ms", "fetch_muted_ms"),
)
_REFUSED: Final = COLUMNS.index("connections_refused")

Row = Sequence[object]


class Recorder:
    """Takes what was used, one interval after the other."""

    def __init__(self, meters: Meters, listeners: Sequence[tuple[str, ListenerMeters]], engine: Engine) -> None:
        self._meters = meters
        self._listeners = listeners
        self._engine = engine
        self._rules: dict[Entity, str] = {}
        """How rules are described, as of one generation of the engine."""
        self._rules_generation = -1

    def take(self, now_ms: int) -> Iterator[list[Row] | None]:
        """Yield the rows of an interval that ends now, as many as one document may have; None: let others have a turn.

        ``now_ms`` is on the clock of the sessions. What is counted while this runs belongs to the next interval
        where its meter has been taken already.
        """
        page = _Page(list(self._refused()))
        if self._rules_generation != self._engine.generation:
            self._rules_generation = self._engine.generation
            self._rules.clear()
        keys = iter(self._meters)
        while batch := list(islice(keys, SLICE)):
            idle = []
            for key in batch:
                if not self._take(key, now_ms, page):
                    idle.append(key)
                elif page.full:
                    yield page.rows
                    page = _Page([])
            self._meters.drop_unused(idle)
            yield None
        if page.rows:
            yield page.rows

    def _take(self, key: MeterKey, now_ms: int, page: "_Page") -> bool:
        """Put what was counted on a meter on the page; False if that is nothing."""
        meter = self._meters[key]
        if not meter.active:
            return False
        if meter.generation != self._engine.generation:
            self._look_up_limits(meter)
        page.rows.append(meter.take(now_ms))
        page.name_bytes += meter.name_bytes
        return True

    def _refused(self) -> Iterator[Row]:
        for name, listener in self._listeners:
            if listener.refused:
                row: list[object] = [0] * len(COLUMNS)
                row[:4] = name, -1, None, None
                row[_REFUSED] = listener.refused
                for column in ("produce_limit", "produce_rule", "fetch_limit", "fetch_rule"):
                    row[COLUMNS.index(column)] = None
                listener.refused = 0
                yield row

    def _look_up_limits(self, meter: Meter) -> None:
        meter.generation = self._engine.generation
        produce_limit, produce_entity = self._limit_of(meter, QuotaKind.PRODUCER_BYTE_RATE)
        fetch_limit, fetch_entity = self._limit_of(meter, QuotaKind.CONSUMER_BYTE_RATE)
        meter.limits = (produce_limit, self._rule(produce_entity), fetch_limit, self._rule(fetch_entity))
        meter.name_bytes = sum(_json_bytes(name) for name in (*meter.key, *meter.limits) if isinstance(name, str))

    def _limit_of(self, meter: Meter, kind: QuotaKind) -> tuple[float | None, Entity | None]:
        return self._engine.limit_of(meter.key.user, meter.key.client_id, kind)

    def _rule(self, entity: Entity | None) -> str | None:
        if entity is None:
            return None
        rule = self._rules.get(entity)
        if rule is None:
            rule = self._rules[entity] = entity.describe()
        return rule


class _Page:
    """The rows of one document to be."""

    __slots__ = ("name_bytes", "rows")

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.name_bytes = 0

    @property
    def full(self) -> bool:
        return len(self.rows) >= MAX_ROWS or self.name_bytes >= MAX_NAME_BYTES


def _json_bytes(name: str) -> int:
    """Return the most bytes that a name takes in JSON: escaped, a character takes up to six."""
    return len(name) if name.isascii() and name.isprintable() else 6 * len(name)
