"""Prints the answers of a running proxy about one client: throttled or not, its use, and its limits."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from proxy.checks.explain import ExplainedRow, LevelRow, RuleRow
from proxy.live.api import open_api
from proxy.live.tables import CLIENTS, THROTTLED


def show(config_path: Path | None, admin: str | None, user: str, client_id: str, output: str) -> None:
    """Print the answers about a client."""
    api = open_api(config_path=config_path, admin=admin, all_instances=False)
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
        levels = tuple(LevelRow(**level) for level in each["levels"])
        caps = tuple(RuleRow(**cap) for cap in each["caps"])
        yield from ExplainedRow(**each | {"levels": levels, "caps": caps}).lines()
