"""The resources of the state API, one table: routes, checks of parameters and the OpenAPI document come from it."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, get_args, get_type_hints

from proxy.checks.explain import ExplainedRow
from proxy.state import rows

FILTERS: Final = ("user", "client_id", "kind", "listener", "broker", "peer")
"""Fields that are filters too, where a row has them."""
SEARCHED: Final = ("user", "client_id", "peer", "peers")
"""Fields that ``q`` is looked for in."""
_SORTED: Final = frozenset((str, int, float, bool, rows.Moment, type(None)))


@dataclass(frozen=True)
class Resource:
    """A resource. ``row`` has its fields; ``sort`` is the default, "" if there is one order only."""

    summary: str
    row: type
    sort: str = ""
    only: tuple[str, ...] | None = None
    """Its parameters, if it is not a list with pages."""

    @cached_property
    def fields(self) -> dict[str, Any]:
        """Field → type."""
        return get_type_hints(self.row)

    @cached_property
    def sorts(self) -> tuple[str, ...]:
        plain = (name for name, hint in self.fields.items() if set(get_args(hint) or (hint,)) <= _SORTED)
        return tuple(plain) if self.sort else ()

    @property
    def is_list(self) -> bool:
        return self.only != ()

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        if self.only is not None:
            return self.only
        filters = [name for name in FILTERS if name in self.fields]
        search = ["q"] * any(name in self.fields for name in SEARCHED)
        return ("limit", "offset", *["sort"] * bool(self.sort), *filters, *search, "all")


RESOURCES: Final = {
    "throttled": Resource("Who is throttled now, by which rule, and until when", rows.ThrottledRow, "-owed_ms"),
    "clients": Resource("Clients, and the quota that is nearest to its limit", rows.ClientRow, "-ratio"),
    "connections": Resource("Open connections, and what they wait for", rows.ConnectionRow, "connected_at"),
    "brokers": Resource("Brokers, and who serves them", rows.BrokerRow, "node_id"),
    "quotas": Resource("Limits in force, and where they are defined", rows.QuotaRow, "rule"),
    "changes": Resource("The last changes of quotas", rows.ChangeRow, "-at"),
    "workers": Resource("Worker processes", rows.WorkerRow, "worker"),
    "usage": Resource("The last hour of the busiest clients, a point a minute", rows.UsageRow, "-bytes_per_s"),
    "explain": Resource("Which limits apply to a client, and why", ExplainedRow, only=("user", "client_id", "peer")),
    "instance": Resource("The instance that answers", rows.InstanceRow, only=()),
    "owners": Resource("The owners of brokers that the group of instances has elected", rows.OwnersRow, only=()),
}
