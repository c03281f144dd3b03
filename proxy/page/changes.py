"""Temporary limits and closing connections: made here, and by all other instances of the group."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog

from config.problems import InvalidValue
from config.units import parse_bytes, parse_duration_ms, parse_number
from proxy.admin.route import RefusedError
from proxy.control.temporary_limits import TemporaryLimits
from proxy.runtime.names import label
from quotas.entities import Entity
from quotas.kinds import BYTES, QuotaKind
from quotas.stores.alteration import Change, Refusal, check

if TYPE_CHECKING:
    from proxy.owners.messages import ChangeMessage

log = structlog.get_logger("sluice.admin")

_NAMES: Final = {"user": "user", "client_id": "client-id"}
"""Fields of forms → parts of an entity."""

Form = Mapping[str, str]
Close = Callable[[str | None, str | None, str | None], Awaitable[int]]
"""Closes the connections of a user, client-id and peer (None: of any), and returns how many."""


class Group(Protocol):
    async def tell(self, what: str, form: Form, who: str, source: str) -> Mapping[str, str | None]:
        """Have them all make a change; return each with why it did not, None if it did."""
        ...

    def hear(self, data: bytes) -> "ChangeMessage":
        """Return a change that another one tells. Raises RefusedError."""
        ...


@dataclass(eq=False)
class Changes:
    """``what``: ``limit`` or ``close``, as ``form`` says; ``who``, from the address ``source``, is logged."""

    temporary: TemporaryLimits
    _close: Close
    _group: Group

    async def make(self, what: str, form: Form, who: str, source: str) -> dict[str, Any]:
        """Make a change here, and have all others make it; return what there is to say. Raises RefusedError."""
        made = await self._make(what, form, who, source)
        others = await self._group.tell(what, form, who, source)
        if made.get("ended") is False and not others:
            raise RefusedError(404, "there is no such temporary limit")
        instances = [{"instance": name, "error": error} for name, error in others.items()]
        return made | ({"instances": instances} if instances else {})

    async def hear(self, data: bytes) -> None:
        """Make a change that another instance tells. Raises RefusedError."""
        told = self._group.hear(data)
        await self._make(told.what, told.form, told.who, f"{told.source} by {told.instance}")

    async def _make(self, what: str, form: Form, who: str, source: str) -> dict[str, Any]:
        match what:
            case "limit":
                return await self._limit(form, who, source)
            case "close":
                return await self._close_connections(form, who, source)
        raise RefusedError(400, f"{what[:64]!a} is no change that this version knows")

    async def _limit(self, form: Form, who: str, source: str) -> dict[str, Any]:
        entity, kind, limit, for_ms = _wanted(form)
        if for_ms == 0:
            ended = await self.temporary.end(entity, kind, who, source)
            return {"limits": shown(self.temporary), "ended": ended}
        try:
            await self.temporary.set(entity, kind, limit, for_ms, who, source)
        except ValueError as error:
            raise RefusedError(400, str(error)) from None
        return {"limits": shown(self.temporary)}

    async def _close_connections(self, form: Form, who: str, source: str) -> dict[str, Any]:
        user, client_id, peer = form.get("user"), form.get("client_id"), form.get("peer")
        if not user and not peer:
            raise RefusedError(400, "user: name whose connections to close: user, user and client_id, or peer")
        closed = await self._close(user, client_id, peer)
        named = {name: label(value) for name, value in form.items() if name in ("user", "client_id", "peer")}
        log.warning("connections closed", connections=closed, of=named, who=who, source=source)
        return {"closed": closed}


def shown(limits: TemporaryLimits) -> list[dict[str, Any]]:
    """Return the temporary limits, as data."""
    return [
        {
            "entity": {"user": entity.user, "client-id": entity.client_id},
            "rule": label(entity.describe()),
            "kind": kind.value,
            "limit": each.limit,
            "until": datetime.fromtimestamp(each.until_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "who": each.who,
        }
        for (entity, kind), each in limits.limits.items()
    ]


def _wanted(form: Form) -> tuple[Entity, QuotaKind, float, int]:
    """Return the limit that a form is for: 0 ms end it. Raises RefusedError."""
    try:
        for_ms = parse_duration_ms(form.get("for", ""))
    except InvalidValue as error:
        raise RefusedError(400, f"for: {error}") from None
    try:
        kind = QuotaKind(form.get("kind", ""))
    except ValueError:
        raise RefusedError(400, f"kind: write one of {', '.join(QuotaKind)}") from None
    named = {part: form[field] for field, part in _NAMES.items() if form.get(field)}
    try:
        said = form.get("limit", "")
        limit = 1.0 if not for_ms else parse_bytes(said) if kind.row.unit is BYTES else parse_number(said)
    except InvalidValue as error:
        raise RefusedError(400, f"limit: {error}") from None
    checked = check(Change(named, ((kind.value, limit),)))
    if isinstance(checked, Refusal):
        raise RefusedError(400, str(checked))
    return checked[0], kind, limit, for_ms
