"""Prints the answers of a running proxy about one client: throttled or not, its use, and its limits."""

import json
from collections.abc import Iterator
from typing import Any

import click

from proxy.checks.explain import amount, written
from proxy.live.api import Api
from proxy.live.tables import CLIENTS, THROTTLED
from quotas.kinds import QuotaKind
from quotas.texts import aligned, shown


def show(api: Api, user: str, client_id: str, output: str) -> None:
    """Print the answers about a client."""
    client = {"user": user, "client_id": client_id}
    answers = {
        "throttled": api.list("throttled", **client)["items"],
        "clients": api.list("clients", **client)["items"],
        "limits": api.get("explain", **client)["items"],
    }
    click.echo(json.dumps(answers, indent=2) if output == "json" else "\n".join(_lines(answers)))


def _lines(answers: dict[str, Any]) -> Iterator[str]:
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
    limit = "no limit" if rule["limit"] is None else amount(kind, rule["limit"])
    return f"{limit}, of {shown(rule['rule'])}{where}"


def _level(level: dict[str, Any]) -> tuple[str, str, str]:
    limit = level["limit"]
    return f"    {shown(level['rule'])}", "-" if limit is None else written(limit), "wins" if level["wins"] else ""
