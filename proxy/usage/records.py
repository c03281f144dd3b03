"""Usage records: the counts of all meters, as columns (docs/usage-records.md)."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from proxy.usage.accounts import Accounts
from proxy.usage.addresses import COLUMNS as OF_ADDRESS
from proxy.usage.addresses import NOTHING as NO_ADDRESS
from proxy.usage.addresses import Addresses, AddressRow
from proxy.usage.by_kind import BY_HAND, NO_CAP, NO_SHADOW, NOTHING, Caps, Further, Shadows
from proxy.usage.meter import NO_LIMIT, Limit, Meter, MeterKey
from proxy.usage.meters import Meters
from quotas.engine import Engine
from quotas.entities import Entity
from quotas.kinds import CLIENT_KINDS, QuotaKind

MAX_ROWS: Final = 1000
"""Limit of rows in one document."""
MAX_NAME_BYTES: Final = 512 * 1024
"""Limit of names in one document: it then fits into the largest batch that brokers accept by default."""
SLICE: Final = 100
"""Meters processed before other tasks get a turn: a tenth of a millisecond."""

# in the order of Meter.take
COLUMNS: Final = (
    *("listener", "broker", "user", "client_id", "bytes_in", "bytes_out", "requests", "request_time_ms"),
    *("connections", "connections_opened", "connections_refused"),
    *(name for kind in BY_HAND for name in kind.row.columns[:6]),
    *(name for kind in BY_HAND for name in kind.row.columns[6:]),
)
"""Columns of every document, followed by those of each further kind that has figures in any row."""
_REFUSED: Final = COLUMNS.index("connections_refused")
_NULL: Final = [COLUMNS.index(name) for kind in BY_HAND for name in kind.row.columns[2:6]]
"""Columns that are null in a row without a client."""
_FURTHER_LIMITS: Final = tuple(kind for kind in CLIENT_KINDS if kind not in BY_HAND)

Row = Sequence[object]
NamedCaps = Mapping[QuotaKind, Row]
"""``by_kind.Caps`` with the cap's name: ``Row.cap_columns``."""
Columns = dict[str, Row]
"""Column name → values."""


class Recorder:
    """Reads the meters and yields rows of usage records, interval after interval."""

    def __init__(
        self,
        meters: Meters,
        listeners: Sequence[tuple[str, Accounts]],
        engine: Engine,
        addresses: Addresses | None = None,
    ) -> None:
        self._meters = meters
        self._addresses = addresses
        self._listeners = listeners
        self._engine = engine
        self._rules: dict[Entity, str] = {}
        """Entity → description, for the current generation of the engine."""
        self._rules_generation = -1

    def take(self, now_ms: int) -> Iterator[Columns | None]:
        """Yield the rows of the interval that ends now, one document at a time; None: let other tasks have a turn.

        ``now_ms`` is on the sessions' clock. Counts during the iteration belong to the next interval once their meter
        is done.
        """
        page = _Page(list(self._refused()))
        for address in self._addresses.take(now_ms) if self._addresses is not None else ():
            if address is None:
                yield None
                continue
            page.add_address(address)
            if page.full:
                yield page.columns()
                page = _Page([])
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
                    yield page.columns()
                    page = _Page([])
            self._meters.drop_unused(idle)
            yield None
        if page.rows:
            yield page.columns()

    def _take(self, key: MeterKey, now_ms: int, page: "_Page") -> bool:
        """Add a meter's counts to the page; return False if there are none."""
        meter = self._meters[key]
        if not meter.active:
            return False
        if meter.generation != self._engine.generation:
            self._look_up_limits(meter)
        shadows, caps = meter.take_shadows(now_ms), self._named(meter.take_caps(now_ms))
        row, further = self._meters.take(meter, now_ms)
        page.add(row, further, shadows, caps, meter.key.exempt)
        page.name_bytes += meter.name_bytes
        return True

    def _refused(self) -> Iterator[Row]:
        for name, listener in self._listeners:
            if listener.refused:
                yield _of_nobody(name, refused=listener.refused)
                listener.refused = 0

    def _look_up_limits(self, meter: Meter) -> None:
        meter.generation = self._engine.generation
        produce, fetch = BY_HAND
        meter.limits = (self._limit_of(meter, produce), self._limit_of(meter, fetch))
        names: list[object] = [*meter.key, *meter.limits[0], *meter.limits[1]]
        for kind in _FURTHER_LIMITS:
            limit, rule, user, client_id = self._limit_of(meter, kind)
            if limit is not None or (meter.by_kind is not None and kind in meter.by_kind.uses):
                use = meter.use_of(kind)
                use.limit, use.names = limit, (rule, user, client_id)
                names += use.names
        user, client_id = meter.key.user, meter.key.client_id
        limited = () if meter.key.exempt else CLIENT_KINDS
        shadows = {kind: self._engine.shadow_of(user, client_id, kind) for kind in limited}
        meter.set_shadow_limits({kind: limit for kind, limit in shadows.items() if limit is not None})
        caps = {kind: self._engine.caps_of(user, client_id, kind) for kind in limited} if self._engine.has_caps else {}
        rules = {
            kind: json.dumps(
                [
                    {
                        "rule": self._rule(entity),
                        "limit": limit,
                        "user": of.user or None,
                        "client_id": of.client_id or None,
                    }
                    for limit, entity, of in of_kind
                ],
                ensure_ascii=False,
            )
            for kind, of_kind in caps.items()
            if of_kind
        }
        meter.set_caps(rules)
        names += [text for of_kind in rules.values() for text in (of_kind, of_kind)]  # one of them may be named again
        meter.name_bytes = sum(_json_bytes(name) for name in names if isinstance(name, str))

    def _limit_of(self, meter: Meter, kind: QuotaKind) -> Limit:
        """Return a meter's limit in force, its rule, and the names of its counter."""
        client = meter.key.user, meter.key.client_id, kind
        limit, entity = (None, None) if meter.key.exempt else self._engine.limit_of(*client)
        if entity is None:
            return NO_LIMIT
        counter = self._engine.counter_of(*client)
        return limit, self._rule(entity), counter.user or None, counter.client_id or None

    def _rule(self, entity: Entity) -> str:
        rule = self._rules.get(entity)
        if rule is None:
            rule = self._rules[entity] = entity.describe(shared=self._engine.is_shared(entity))
        return rule

    def _named(self, caps: Caps) -> NamedCaps:
        """Return the figures of caps, with the cap that throttled longest by name."""
        return {
            kind: (names, most if most is None else self._rule(most), *figures)
            for kind, (names, most, *figures) in caps.items()
        }


def _of_nobody(listener: str, broker: int = -1, refused: int = 0) -> Row:
    """Return a row of connections whose client is unknown."""
    row: list[object] = [0] * len(COLUMNS)
    row[:4] = listener, broker, None, None
    row[_REFUSED] = refused
    for column in _NULL:
        row[column] = None
    return row


class _Page:
    """The rows of one document under construction."""

    __slots__ = ("_addresses", "_caps", "_exempt", "_further", "_shadows", "name_bytes", "rows")

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.name_bytes = 0
        self._exempt: set[int] = set()
        """Numbers of the rows to which no quota applies."""
        self._further: dict[QuotaKind, dict[int, Row]] = {}
        """Further kinds: kind → row number → figures."""
        self._shadows: dict[QuotaKind, dict[int, Row]] = {}
        """Limits in shadow: kind → row number → figures."""
        self._caps: dict[QuotaKind, dict[int, Row]] = {}
        """Caps: kind → row number → figures."""
        self._addresses: dict[int, AddressRow] = {}
        """Row number → connections of an address."""

    def add(self, row: Row, further: Further, shadows: Shadows, caps: NamedCaps, exempt: bool) -> None:
        """Add a row and its figures of further kinds, limits in shadow and caps."""
        if exempt:
            self._exempt.add(len(self.rows))
        for kind, figures in further.items():
            self._further.setdefault(kind, {})[len(self.rows)] = figures
        for kind, shadow in shadows.items():
            self._shadows.setdefault(kind, {})[len(self.rows)] = shadow
        for kind, cap in caps.items():
            self._caps.setdefault(kind, {})[len(self.rows)] = cap
        self.rows.append(row)

    def add_address(self, address: AddressRow) -> None:
        """Add a row of an address."""
        if address.exempt:
            self._exempt.add(len(self.rows))
        self._addresses[len(self.rows)] = address
        self.rows.append(_of_nobody(address.listener, address.broker))
        self.name_bytes += sum(
            _json_bytes(name) for name in (address.listener, address.ip, address.figures[2]) if isinstance(name, str)
        )

    def columns(self) -> Columns:
        """Return column name → values."""
        columns: Columns = dict(zip(COLUMNS, zip(*self.rows, strict=True), strict=True))
        for kind in (kind for kind in QuotaKind if kind in self._further):
            of_kind = self._further[kind]
            figures = (of_kind.get(number, NOTHING) for number in range(len(self.rows)))
            columns.update(zip(kind.row.columns, zip(*figures, strict=True), strict=True))
        for kind in (kind for kind in QuotaKind if kind in self._shadows):
            shadows = (self._shadows[kind].get(number, NO_SHADOW) for number in range(len(self.rows)))
            columns.update(zip(kind.row.shadow_columns, zip(*shadows, strict=True), strict=True))
        for kind in (kind for kind in QuotaKind if kind in self._caps):
            caps = (self._caps[kind].get(number, NO_CAP) for number in range(len(self.rows)))
            columns.update(zip(kind.row.cap_columns, zip(*caps, strict=True), strict=True))
        if self._addresses:
            found = [self._addresses.get(number) for number in range(len(self.rows))]
            columns["ip"] = [None if each is None else each.ip for each in found]
            figures = (NO_ADDRESS if each is None else each.figures for each in found)
            columns.update(zip(OF_ADDRESS, zip(*figures, strict=True), strict=True))
        if self._exempt:
            columns["exempt"] = [number in self._exempt for number in range(len(self.rows))]
        return columns

    @property
    def full(self) -> bool:
        return len(self.rows) >= MAX_ROWS or self.name_bytes >= MAX_NAME_BYTES


def _json_bytes(name: str) -> int:
    """Return an upper bound of a name's size in JSON: an escaped character takes up to six bytes."""
    return len(name) if name.isascii() and name.isprintable() else 6 * len(name)
