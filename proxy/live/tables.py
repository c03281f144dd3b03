"""The tables of a running proxy: their columns, and how values are shown to people and to programs."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from proxy.live.api import Item
from quotas import texts
from quotas.texts import aligned, shown


def plain(value: object) -> str:
    """Return a value as a program reads it: "-" for none, escaped if it is not printable."""
    match value:
        case None | "" | []:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.0f}" if abs(value) >= 100 else f"{value:.4g}"
        case list():
            return ",".join(map(plain, value))
    return shown(str(value))


def _number(value: float | str) -> str:
    return plain(value) if isinstance(value, str) else f"{value:.6g}"


def _time(value: str) -> str:
    """The time of day, to the second, in UTC."""
    return value[11:19]


class Column(NamedTuple):
    """A column: its title, its field in the answers, and how a value is shown to people: an amount by its kind."""

    title: str
    field: str
    show: Callable[..., str] = plain
    width: int = 0
    """In ``sluice top``; 0: a name, which takes what the others leave."""

    @property
    def is_right(self) -> bool:
        return self.show in {_number, texts.rate, texts.amount, texts.share, texts.duration_of_ms}

    def text(self, item: Item) -> str:
        value = item.get(self.field)
        if value is None:
            return plain(value)
        return self.show(value, item["kind"]) if self.show is texts.amount else self.show(value)


class Table(NamedTuple):
    """The list at ``/api/v1/{name}``."""

    name: str
    sort: str
    """The field that it is sorted by, with - in front for the largest first."""
    columns: tuple[Column, ...]

    @property
    def has_clients(self) -> bool:
        """Whether its rows are of clients, and can be filtered by their names."""
        return self.name in {"throttled", "clients"}

    def field(self, sort: str) -> str:
        """Return the parameter ``sort`` for a column's title, with - in front for the largest first."""
        name = sort.removeprefix("-")
        field = next((each.field for each in self.columns if each.title == name), name)
        return f"-{field}" if sort.startswith("-") else field

    def lines(self, items: Sequence[Item], *, for_people: bool) -> Iterator[str]:
        """Yield a header and a line for each item: aligned for people, else separated by tabs with plain values."""
        rows = [[each.title for each in self.columns]]
        if for_people:
            rows += [[each.text(item) for each in self.columns] for item in items]
            yield from aligned(rows, right=frozenset(each.title for each in self.columns if each.is_right))
        else:
            yield from map("\t".join, [*rows, *(self.values(item) for item in items)])

    def values(self, item: Item) -> list[str]:
        """Return the values of a row as a program reads them."""
        return [plain(item.get(each.field)) for each in self.columns]


_COLUMNS: Final = {
    each.field: each
    for each in (
        Column("user", "user"),
        Column("client-id", "client_id"),
        Column("host", "host"),
        Column("instance", "instance", width=10),
        Column("listener", "listener", width=10),
        Column("rule", "rule", width=24),
        Column("mode", "mode", width=7),
        Column("peers", "peers", width=21),
        Column("owner", "owner", width=12),
        Column("up", "is_up", width=3),
        Column("reachable", "is_reachable", width=9),
        Column("throttled", "is_throttled", width=9),
        Column("kind", "kind", texts.kind_word, 8),
        Column("until", "until", _time, 8),
        Column("used", "used", texts.amount, 10),
        Column("limit", "limit", texts.amount, 10),
        Column("wanted", "wanted", texts.amount, 10),
        Column("in", "bytes_in_per_s", texts.rate, 10),
        Column("out", "bytes_out_per_s", texts.rate, 10),
        Column("ratio", "ratio", texts.share, 6),
        Column("1m", "throttled_share_1m", texts.share, 6),
        Column("owed", "owed_ms", texts.duration_of_ms, 11),
        Column("waiting", "waiting", _number, 7),
        Column("broker", "broker", _number, 6),
        Column("broker", "node_id", _number, 6),
        Column("port", "port", _number, 5),
        Column("worker", "worker", _number, 6),
        Column("connections", "connections", _number, 11),
        Column("load", "load_ms_per_s", _number, 8),
        Column("restarts", "restarts", _number, 8),
        Column("cpu_s", "cpu_s", _number, 9),
    )
}


def _table(name: str, sort: str, fields: str) -> Table:
    return Table(name, sort, tuple(_COLUMNS[field] for field in fields.split()))


THROTTLED: Final = _table(
    "throttled",
    "-owed_ms",
    "user client_id kind broker used limit wanted until owed_ms waiting rule mode listener peers",
)
CLIENTS: Final = _table(
    "clients",
    "-ratio",
    "user client_id kind used limit ratio throttled_share_1m bytes_in_per_s "
    "bytes_out_per_s is_throttled broker connections rule listener",
)
BROKERS: Final = _table("brokers", "node_id", "node_id host port is_reachable owner worker load_ms_per_s connections")
WORKERS: Final = _table("workers", "worker", "worker is_up restarts cpu_s connections")
ALL: Final = (THROTTLED, CLIENTS, BROKERS, WORKERS)


def as_listed(table: Table, all_instances: bool) -> Table:
    """Return the table, with the instance in front where it lists all."""
    return table._replace(columns=(_COLUMNS["instance"], *table.columns)) if all_instances else table
