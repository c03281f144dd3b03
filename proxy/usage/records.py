"""Usage records: the counts of all meters, as columns (docs/usage-records.md)."""

import json
from collections.abc import Iterator, Sequence
from typing import Final

from proxy.runtime.tasks import SLICE
from proxy.usage.accounts import Accounts
from proxy.usage.addresses import COLUMNS as OF_ADDRESS
from proxy.usage.addresses import NOTHING as NO_ADDRESS
from proxy.usage.addresses import Addresses, AddressKey
from proxy.usage.kind_usage import BY_HAND, CHARGED, NO_LIMIT, NOTHING, Figures, Limit, Row
from proxy.usage.meter import Meter, MeterKey
from proxy.usage.meters import Meters
from quotas.engine import Engine
from quotas.entities import Entity
from quotas.kinds import CLIENT_KINDS
from quotas.precedence import AppliedRule, rules_of

MAX_ROWS: Final = 1000
"""Limit of rows in one document."""
MAX_NAME_BYTES: Final = 512 * 1024
"""Limit of names in one document: it then fits into the largest batch that brokers accept by default."""

# in the order of Meter.take
COLUMNS: Final = (
    *("listener", "broker", "user", "client_id", "bytes_in", "bytes_out", "requests", "request_time_ms"),
    *("connections", "connections_opened", "connections_refused"),
    *(name for kind in BY_HAND for name in CHARGED[kind][:6]),
    *(name for kind in BY_HAND for name in CHARGED[kind][6:]),
)
"""Columns of every document, followed by those that have figures in any row."""
_REFUSED: Final = COLUMNS.index("connections_refused")
_NULL: Final = [COLUMNS.index(name) for kind in BY_HAND for name in CHARGED[kind][2:6]]
"""Columns that are null in a row without a client."""
_ADDRESS: Final = ("ip", *OF_ADDRESS)
_EXEMPT: Final = ("exempt",)
_NOTHING: Final = {**NOTHING, _ADDRESS: (None, *NO_ADDRESS), _EXEMPT: (False,)}
"""The further columns in their order, with the figures of a row that has nothing there."""

Columns = dict[str, Row]
"""Column name → values."""


class Recorder:
    """Reads the meters and yields rows of usage records, interval after interval."""

    def __init__(
        self,
        meters: Meters,
        listeners: Sequence[Accounts],
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
            page.add_address(*address)
            if page.full:
                yield page.columns()
                page = _Page([])
        if self._rules_generation != self._engine.generation:
            self._rules_generation = self._engine.generation
            self._rules.clear()
        for number, key in enumerate(self._meters, 1):
            if not self._take(key, now_ms, page):
                self._meters.drop_unused((key,))
            elif page.full:
                yield page.columns()
                page = _Page([])
            if number % SLICE == 0:
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
        page.add(*meter.take(now_ms, self._rule), exempt=key.exempt)
        page.name_bytes += meter.name_bytes
        return True

    def _refused(self) -> Iterator[Row]:
        for accounts in self._listeners:
            if accounts.refused:
                yield _of_nobody(accounts.listener, refused=accounts.refused)
                accounts.refused = 0

    def _look_up_limits(self, meter: Meter) -> None:
        meter.generation = self._engine.generation
        names: list[object] = [*meter.key]
        limits = dict.fromkeys(BY_HAND, NO_LIMIT)
        for kind in () if meter.key.exempt else CLIENT_KINDS:
            quota, others = rules_of(self._engine.policy, meter.key.user, meter.key.client_id, kind)
            limit, caps = self._limit_of(quota), self._caps_of(others)
            shadow = None if quota is None else quota.shadow
            names += [*limit, caps, caps]  # one of the caps may be named again
            if kind in limits:
                limits[kind], limit = limit, NO_LIMIT
            if kind in meter.kinds or (limit, shadow, caps) != (NO_LIMIT, None, None):
                usage = meter.use_of(kind)
                usage.limit, usage.shadow_limit, usage.caps = limit, shadow, caps
        produce, fetch = limits.values()
        meter.limits = (produce, fetch)
        meter.name_bytes = sum(_json_bytes(name) for name in names if isinstance(name, str))

    def _limit_of(self, rule: AppliedRule | None) -> Limit:
        """Return a limit in force, its rule, and the names of its counter."""
        if rule is None or rule.enforced is None:
            return NO_LIMIT
        return rule.enforced, self._rule(rule.entity), rule.counter.user or None, rule.counter.client_id or None

    def _caps_of(self, rules: Sequence[AppliedRule]) -> str | None:
        """Return the caps in force as JSON."""
        limits = (self._limit_of(rule) for rule in rules if rule.enforced is not None)
        caps = [{"rule": rule, "limit": limit, "user": user, "client_id": name} for limit, rule, user, name in limits]
        return json.dumps(caps, ensure_ascii=False) if caps else None

    def _rule(self, entity: Entity) -> str:
        rule = self._rules.get(entity)
        if rule is None:
            terms = self._engine.policy.terms.get(entity)
            rule = self._rules[entity] = entity.describe(shared=terms is None or terms.shared)
        return rule


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

    __slots__ = ("_further", "name_bytes", "rows")

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.name_bytes = 0
        self._further: dict[tuple[str, ...], dict[int, Row]] = {}
        """Further columns: their names → row number → figures."""

    def add(self, row: Row, further: Figures, *, exempt: bool) -> None:
        """Add a row and its figures of further columns; ``exempt``: no quota applies."""
        if exempt:
            further[_EXEMPT] = (True,)
        for names, figures in further.items():
            self._further.setdefault(names, {})[len(self.rows)] = figures
        self.rows.append(row)

    def add_address(self, key: AddressKey, of_address: Row) -> None:
        """Add a row of an address."""
        figures = (key.ip, *of_address)
        self.add(_of_nobody(key.listener, key.broker), {_ADDRESS: figures}, exempt=key.exempt)
        names = (key.listener, *figures)
        self.name_bytes += sum(_json_bytes(name) for name in names if isinstance(name, str))

    def columns(self) -> Columns:
        """Return column name → values."""
        columns: Columns = dict(zip(COLUMNS, zip(*self.rows, strict=True), strict=True))
        for names, nothing in _NOTHING.items():
            if (further := self._further.get(names)) is not None:
                rows = [further.get(number, nothing) for number in range(len(self.rows))]
                columns.update(zip(names, zip(*rows, strict=True), strict=True))
        return columns

    @property
    def full(self) -> bool:
        return len(self.rows) >= MAX_ROWS or self.name_bytes >= MAX_NAME_BYTES


def _json_bytes(name: str) -> int:
    """Return an upper bound of a name's size in JSON: an escaped character takes up to six bytes."""
    return len(name) if name.isascii() and name.isprintable() else 6 * len(name)
