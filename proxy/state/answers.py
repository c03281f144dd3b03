"""The answers of the state API: from rows to JSON data."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Protocol

from config.settings import Exempt, Settings
from config.units import Address
from proxy import __version__, build
from proxy.checks.explain import ExplainedClient, ExplainedRow, Explainer
from proxy.runtime.clock import wall_s
from proxy.runtime.http_get import Get, get_unsigned
from proxy.runtime.names import label
from proxy.state.instances import Others, ask_all
from proxy.state.paging import NotFoundError, Query, cut, first, parse
from proxy.state.resources import RESOURCES
from proxy.state.rows import ChangeRow, InstanceRow, Moment, OwnersRow, Page, Point, QuotaRow
from proxy.usage.history import Series
from quotas.entities import ANONYMOUS, Entity
from quotas.kinds import QuotaKind
from quotas.policy import PLAIN, Policy

if TYPE_CHECKING:
    from proxy.owners.membership import Status

_OF_WORKERS: Final = ("throttled", "clients", "connections", "brokers", "workers", "usage")


class Processes(Protocol):
    """The processes of this instance: ``Worker`` or ``Workers``."""

    def page(self, resource: str, query: Query) -> Awaitable[Page]: ...


class Changes(Protocol):
    def last(self) -> Sequence[Mapping[str, Any]]: ...


class Quotas(Protocol):
    """The part of ``proxy.control.quotas.QuotasInForce`` that is shown."""

    policy: Policy
    loaded_at_s: float

    @property
    def changes(self) -> Changes: ...
    def where(self, entity: Entity, kind: QuotaKind) -> str | None: ...


class Mode(Protocol):
    """The part of ``proxy.control.mode.ModeSwitch`` that is shown."""

    source: str

    @property
    def mode(self) -> str: ...


class State:
    """Answers for one instance."""

    def __init__(
        self,
        settings: Settings,
        processes: Processes,
        quotas: Quotas,
        mode: Mode,
        not_ready: Callable[[], Awaitable[list[str]]],
        others: Others = dict,
        membership: Callable[[], "Status | None"] = lambda: None,
        get: Get = get_unsigned,
    ) -> None:
        """``others``: the other instances, which ``get`` asks; ``membership``: of this one in their group."""
        self._get = get
        self._settings = settings
        self._instance = None if settings.owners is None else settings.owners.instance
        self._processes = processes
        self._quotas = quotas
        self._mode = mode
        self._not_ready = not_ready
        self._others = others
        self._membership = membership
        self._started_at = Moment(wall_s())
        self._explainer: tuple[Policy, Explainer] | None = None

    async def ask(self, resource: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        """Return the answer of a resource (a key of ``RESOURCES``). Raises BadParameterError and
        NotFoundError.
        """
        table = RESOURCES[resource]
        query = parse(table, parameters)
        if parameters.get("all") == "1":
            return await self._ask_all(resource, parameters, query)
        if resource == "owners":
            return dict(as_json(self._describe_owners()))  # nobody is waited for: others ask whether this one is alive
        if resource == "instance":
            return await asyncio.to_thread(as_json, await self._describe())
        if resource == "explain":
            page = await self._explain(parameters)
        elif resource in _OF_WORKERS:
            page = await self._processes.page(resource, query)
        else:
            rows = self._quota_rows if resource == "quotas" else self._change_rows
            page = await asyncio.to_thread(lambda: first(rows(), query, table.row))
        return await asyncio.to_thread(self._answer, page, query)

    async def _ask_all(self, resource: str, parameters: Mapping[str, str], query: Query) -> dict[str, Any]:
        """Return the page of all instances: each answers its own first items."""
        told = {name: value for name, value in parameters.items() if name != "all"}
        told |= {"offset": "0", "limit": str(query.most)}
        own, others = await asyncio.gather(self.ask(resource, told), ask_all(self._others, self._get, resource, told))
        items = [*own["items"], *(item for each in others for item in each.items)]
        found = await asyncio.to_thread(cut, items, query, lambda item: item.get(query.sort))
        return {
            "as_of": own["as_of"],
            "total": own["total"] + sum(each.total for each in others),
            "offset": query.offset,
            "items": found[query.offset :],
            "instances": [
                {"instance": self._instance, "error": None},
                *({"instance": each.instance, "error": each.error} for each in others),
            ],
        }

    def _answer(self, page: Page, query: Query) -> dict[str, Any]:
        items = [as_json(row) for row in page.rows[query.offset : query.most]]
        for item in items:
            if "instance" in item:
                item["instance"] = self._instance
        return {"as_of": as_json(Moment(wall_s())), "total": page.total, "offset": query.offset, "items": items}

    async def _describe(self) -> InstanceRow:
        reasons, loaded_at_s = await self._not_ready(), self._quotas.loaded_at_s
        return InstanceRow(
            __version__,
            build(),
            self._instance,
            self._settings.cluster.name,
            self._mode.mode,
            self._mode.source,
            self._started_at,
            not reasons,
            tuple(reasons),
            Moment(loaded_at_s) if loaded_at_s else None,
        )

    def _describe_owners(self) -> OwnersRow:
        if (status := self._membership()) is None:
            return OwnersRow(self._instance, None, None, None, None, {}, {}, None)
        return OwnersRow(
            status.instance,
            status.boot,
            status.state.value,
            status.epoch,
            round(status.heartbeat_age_s, 1),
            {str(node_id): owner for node_id, owner in sorted(status.owners.items())},
            {name: None if at is None else str(Address(*at)) for name, at in sorted(self._others().items())},
            status.error,
        )

    # ------------------------------------------------------------------------------------------------- the quotas

    def _quota_rows(self) -> list[QuotaRow]:
        """Return a row for each limit. For a thread: a policy does not change."""
        policy, loaded_at = self._quotas.policy, Moment(self._quotas.loaded_at_s)
        changes = {(each["quota"], each["kind"]): each for each in reversed(self._quotas.changes.last())}
        rows = []
        for entity, limits in policy.limits.items():
            rule, user, client_id = entity.describe(), _name(entity.user), _name(entity.client_id)
            for kind, limit in limits.items():
                terms = policy.book(kind, cap=entity.cap).terms.get((entity.user, entity.client_id), PLAIN)
                change = changes.get((label(rule), kind.value))
                row = QuotaRow(
                    entity.as_data(),
                    rule,
                    user,
                    client_id,
                    kind.value,
                    limit,
                    "cluster" if kind.row.of_cluster or terms.of_cluster else "broker",
                    "shadow" if terms.shadow else "enforce",
                    terms.proposed.get(kind),
                    self._quotas.where(entity, kind),
                    loaded_at,
                    None if change is None else _parsed(change["at"]),
                    None if change is None else change["who"],
                )
                rows.append(row)
        return rows

    def _change_rows(self) -> list[ChangeRow]:
        return [
            ChangeRow(
                as_json(_parsed(each["at"])),
                each["who"],
                each.get("peer"),
                each.get("client_id"),
                *(each[name] for name in ("store", "quota", "kind", "old", "new")),
            )
            for each in self._quotas.changes.last()
        ]

    async def _explain(self, parameters: Mapping[str, str]) -> Page:
        client = ExplainedClient(parameters.get("user") or ANONYMOUS, parameters.get("client_id", ""))
        if (peer := parameters.get("peer")) is not None:
            query = parse(RESOURCES["connections"], {"peer": peer, "limit": "1"})
            found = await self._processes.page("connections", query)
            if not found.rows:
                raise NotFoundError(
                    f"peer: there is no connection from {peer[:64]!a}; give HOST:PORT as it is seen here"
                )
            row = found.rows[0]
            host = peer.rpartition(":")[0].removeprefix("[").removesuffix("]")
            client = ExplainedClient(row.user, row.client_id or "", host)
        rows = await asyncio.to_thread(self._explained, client, self._quotas.policy)
        return Page(len(rows), rows)

    def _explained(self, client: ExplainedClient, policy: Policy) -> list[ExplainedRow]:
        if self._explainer is None or self._explainer[0] is not policy:
            self._explainer = policy, Explainer(policy, self._exempt, lambda *each: self._quotas.where(*each) or "")
        return list(self._explainer[1].explain(client).rows)

    @property
    def _exempt(self) -> Exempt:
        return self._settings.quotas.exempt


def _name(name: object) -> str | None:
    return name if isinstance(name, str) else None


def _parsed(at: str) -> Moment:
    return Moment(datetime.fromisoformat(at).timestamp())


def as_json(value: Any) -> Any:
    """Return a value of a row as JSON data. A lone surrogate, which UTF-8 has not, becomes its escape."""
    if isinstance(value, Moment):
        return f"{datetime.fromtimestamp(value, UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Series):
        return [as_json(Point._make((Moment(at_s), *point))) for at_s, *point in zip(*value, strict=True)]
    if hasattr(value, "_asdict"):
        return {name: as_json(each) for name, each in zip(value._fields, value, strict=True)}
    if isinstance(value, Mapping):
        return {as_json(name): as_json(each) for name, each in value.items()}
    return [as_json(each) for each in value] if isinstance(value, tuple | list) else value
