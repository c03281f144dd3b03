"""Prints what a running proxy lists, once, or line by line as it changes."""

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import click

from proxy.live.api import Api, ApiError, Item, instance_errors
from proxy.live.options import MOST_ROWS
from proxy.live.tables import ALL, THROTTLED, Table, as_listed
from proxy.runtime.clock import now_ms
from proxy.usage.lately import LAST_MINUTE_MS

_EVERY_S: Final = 2.0
_KEY: Final = ("instance", "kind", "user", "client_id", "broker", "rule")


class Throttled:
    """Remembers who was throttled. As in the log, a throttle has ended when the last minute had none."""

    def __init__(self) -> None:
        self._throttled: dict[tuple[str, ...], tuple[Item, int]] = {}
        """Each with its last row, and the time of that."""

    def look(self, items: Iterable[Item], now_ms: int) -> Iterator[tuple[str, Item]]:
        """Yield what has started and ended, with the last that is known of it."""
        for item in items:
            key = tuple(str(item.get(field)) for field in _KEY)
            if key not in self._throttled:
                yield "started", item
            self._throttled[key] = item, now_ms
        for key, (item, seen_ms) in list(self._throttled.items()):
            if now_ms - seen_ms >= LAST_MINUTE_MS:
                del self._throttled[key]
                yield "ended", item


def is_for_people() -> bool:
    return sys.stdout.isatty()


def show(api: Api, table: Table, output: str, wanted: Mapping[str, Any]) -> None:
    answer = _ask(api, table, wanted)
    if output == "json":
        click.echo(json.dumps(answer, indent=2))
        return
    items = answer["items"]
    for line in as_listed(table, api.all_instances).lines(items, for_people=is_for_people()):
        click.echo(line)
    if (more := answer["total"] - len(items)) > 0:
        click.echo(f"{more} more: use --limit or --filter", err=True)


def show_all(api: Api) -> None:
    for number, table in enumerate(ALL):
        click.echo(("\n" if number else "") + f"# {table.name}")
        show(api, table, "table", {})


def _ask(api: Api, table: Table, wanted: Mapping[str, Any]) -> Any:
    """Return the answer; say which instances have not answered."""
    sort = wanted.get("sort")
    answer = api.list(table.name, **{**wanted, "sort": None if sort is None else table.field(sort)})
    for error in instance_errors(answer):
        click.echo(f"warning: {error}", err=True)
    return answer


def watch(api: Api, output: str, wanted: Mapping[str, Any]) -> None:
    """Print lines until interrupted. Once it has begun, a proxy that does not answer is waited for."""
    wanted = {**wanted, "limit": MOST_ROWS}
    seen, answer = Throttled(), _ask(api, THROTTLED, wanted)
    while True:
        for event, item in seen.look(answer["items"], now_ms()):
            if output == "json":
                click.echo(json.dumps({"at": answer["as_of"], "event": event, **item}))
            else:
                click.echo("\t".join([answer["as_of"], event, *as_listed(THROTTLED, api.all_instances).values(item)]))
        time.sleep(_EVERY_S)
        try:
            answer = _ask(api, THROTTLED, wanted)
        except ApiError as error:
            click.echo(f"warning: {error.message}", err=True)
