"""What a running proxy says of one client: whether it is throttled, what it uses, and which limits apply."""

from collections.abc import Iterator
from typing import Any

from proxy.checks.explain import amount, written
from proxy.live.api import Api
from proxy.live.tables import CLIENTS, THROTTLED, aligned
from proxy.runtime.names import shown
from quotas.kinds import QuotaKind


def ask(api: Api, user: str, client_id: str) -> dict[str, Any]:
    """Return the answers about a client. Raises ApiError."""
    client = {"user": user, "client_id": client_id}
    return {
        "throttled": api.list("throttled", **client)["items"],
        "clients": api.list("clients", **client)["items"],
        "limits": api.get("explain", **client),
    }


def pages(answers: dict[str, Any]) -> Iterator[str]:
    """Yield them as lines."""
    for table, none in ((THROTTLED, "not throttled now"), (CLIENTS, "not seen lately")):
        items = answers[table.name]
        yield from table.lines(items, for_people=True) if items else [none]
        yield ""
    for each in answers["limits"]:
        kind = QuotaKind(each["kind"])
        if each["rule"] is None:
            yield f"{kind}: no quota"
        else:
            yield f"{kind}: {_limit(kind, each)}"
            yield f"  why: {each['why']}"
            yield from aligned([_level(level) for level in each["levels"]])
        yield from (f"  also: {_limit(kind, cap)}" for cap in each["caps"])


def _limit(kind: QuotaKind, rule: dict[str, Any]) -> str:
    where = f" ({shown(rule['source'])})" if rule["source"] else ""
    return f"{amount(kind, rule['limit'])}, of {shown(rule['rule'])}{where}"


def _level(level: dict[str, Any]) -> tuple[str, str, str]:
    limit = level["limit"]
    return f"    {shown(level['rule'])}", "-" if limit is None else written(limit), "wins" if level["wins"] else ""
