"""The rows of the state API: plain data, which crosses between processes. Their fields are those of the JSON items."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from proxy.usage.history import Series


class Moment(float):
    """Wall time in seconds; in JSON ISO 8601, in UTC."""

    __slots__ = ()


class ThrottledRow(NamedTuple):
    """A counter in debt, and the connections that are muted or wait for it; or an address over its connection rate."""

    kind: str
    user: str | None
    client_id: str | None
    broker: int | None
    listener: str | None
    """None: several, or unknown."""
    rule: str
    limit: float | None
    used: float
    ratio: float | None
    wanted: float | None
    owed_ms: int
    waiting: int
    until: Moment
    peers: tuple[str, ...]
    more_peers: int
    mode: str
    worker: int | None = None
    instance: str | None = None


class ClientRow(NamedTuple):
    """A client at one listener; ``kind`` to ``ratio`` are of the quota nearest to its limit, or furthest above."""

    listener: str
    user: str
    client_id: str | None
    connections: int
    is_throttled: bool
    bytes_in_per_s: float
    bytes_out_per_s: float
    kind: str | None
    broker: int | None
    rule: str | None
    used: float | None
    limit: float | None
    ratio: float | None
    throttled_share_1m: float
    worker: int | None = None
    instance: str | None = None


class WaitsFor(NamedTuple):
    """The reason why a connection is held."""

    kind: str
    rule: str | None
    owed_ms: int


class ConnectionRow(NamedTuple):
    """An open connection, from its first request on."""

    peer: str
    listener: str
    broker: int | None
    user: str
    authenticated: bool
    """The user was proved, by SASL or by a certificate; if not, it is ANONYMOUS."""
    mechanism: str | None
    """The SASL mechanism that the broker accepted; None without SASL."""
    client_id: str | None
    connected_at: Moment
    waits_for: WaitsFor | None
    """At this very moment; None: it is read."""
    worker: int | None = None
    instance: str | None = None


class Point(NamedTuple):
    """A minute of a client."""

    at: Moment
    bytes_in_per_s: float
    bytes_out_per_s: float
    ratio: float | None
    throttled_share: float


class UsageRow(NamedTuple):
    """The last hour of a client at one listener; ``bytes_per_s``: the last minutes count most."""

    user: str
    client_id: str | None
    listener: str
    bytes_per_s: float
    points: Series
    """In JSON a list of ``Point``."""
    worker: int | None = None
    instance: str | None = None


class BrokerRow(NamedTuple):
    """A broker, and who serves it."""

    node_id: int
    host: str
    port: int
    is_reachable: bool
    owner: str | None
    load_ms_per_s: float | None
    connections: int
    worker: int | None = None
    instance: str | None = None
    error: str | None = None
    """Which other node answers at its address."""


class QuotaRow(NamedTuple):
    """A limit in force. ``user`` and ``client_id`` are set if they are plain names."""

    entity: Mapping[str, Any]
    rule: str
    user: str | None
    client_id: str | None
    kind: str
    limit: float | None
    scope: str
    mode: str
    proposed: float | None
    source: str | None
    loaded_at: Moment
    changed_at: Moment | None
    changed_by: str | None
    instance: str | None = None


class ChangeRow(NamedTuple):
    """A change of a limit; None is no limit."""

    at: str
    who: str
    peer: str | None
    client_id: str | None
    store: str
    quota: str
    kind: str
    old: float | str | None
    new: float | str | None
    instance: str | None = None


class WorkerRow(NamedTuple):
    """A worker; without several, the process (``worker`` is None)."""

    worker: int | None
    is_up: bool
    restarts: int
    cpu_s: float
    connections: int
    instance: str | None = None


class InstanceRow(NamedTuple):
    """The instance that answers."""

    version: str
    build: str
    instance: str | None
    cluster: str
    mode: str
    mode_source: str
    started_at: Moment
    is_ready: bool
    reasons: tuple[str, ...]
    quotas_loaded_at: Moment | None


class OwnersRow(NamedTuple):
    """The owners of brokers as this instance knows them, and its place in the group that elects them, if any."""

    instance: str | None
    boot: int | None
    """Changes with each start."""
    state: str | None
    epoch: int | None
    """The generation of the owners, the same at all instances; -1 without any."""
    age_s: float | None
    """Since the group's coordinator last answered."""
    owners: Mapping[str, str]
    """Node id → instance."""
    others: Mapping[str, str | None]
    """Other instance → its admin port, if it is known."""
    error: str | None
    """Why it is not a member."""


class Page(NamedTuple):
    """The first rows of all that match, in order, and the number of all."""

    total: int
    rows: Sequence[Any]
