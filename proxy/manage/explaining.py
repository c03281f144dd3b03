"""``sluice explain``: a client's limits, the levels that led to each, and who shares its counter."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import click

from config.settings import Quotas
from proxy.checks.explain import ExplainedClient, ExplainedRow, Explainer, Explanation, LevelRow, RuleRow
from proxy.live.api import Api, ApiError, open_api
from proxy.live.options import admin_options
from proxy.live.tables import CLIENTS, THROTTLED
from proxy.manage.target import StoreCommand, load_target, settings_of, target_options, warn
from proxy.state.answers import as_json
from quotas.entities import ANONYMOUS
from quotas.networks import canonical_ip


def pages(explanation: Explanation, settings: Quotas | None) -> Iterator[str]:
    """Yield the lines of an explanation; ``settings``: those of the configuration, if known."""
    client = explanation.client
    yield explanation.title()
    if settings is not None and settings.mode != "enforce":
        yield f"quotas.mode is {settings.mode}: no client is limited"
    if settings is not None and settings.max_delay_ms is not None:
        yield f"quotas.max_delay: no throttle is longer than {settings.max_delay_ms} ms, unless a rule says so"
    if explanation.exempt:
        yield f"exempt by its {explanation.exempt} (quotas.exempt): none of the limits below applies"
    if not client.client_id:
        yield "without a client-id only the levels of users apply: not those of pairs or of the default client-id"
    for row in explanation.rows:
        yield ""
        yield from row.lines()


def _show_live(api: Api, client: Mapping[str, str], output: str) -> None:
    """Print a running proxy's answers about a client: whether it is throttled, its use, and its limits."""
    answers = {
        "throttled": api.list("throttled", **client)["items"],
        "clients": api.list("clients", **client)["items"],
        "limits": api.get("explain", **client)["items"],
    }
    try:
        lines = _lines_of(answers) if output == "text" else [json.dumps(answers, indent=2)]
        click.echo("\n".join(lines))
    except (LookupError, TypeError):
        raise ApiError(f"{api.url} answers with other fields: is it a Sluice of this version?") from None


def _lines_of(answers: Mapping[str, Any]) -> Iterator[str]:
    for table, none in ((THROTTLED, "not throttled now"), (CLIENTS, "not seen lately")):
        items = answers[table.name]
        yield from table.lines(items, for_people=True) if items else [none]
        yield ""
    for each in answers["limits"]:
        levels = tuple(LevelRow(**level) for level in each["levels"])
        caps = tuple(RuleRow(**cap) for cap in each["caps"])
        yield from ExplainedRow(**{**each, "levels": levels, "caps": caps}).lines()


@click.command("explain", cls=StoreCommand, short_help="Show which limits apply to a client, and why.")
@target_options
@click.option("--user", metavar="NAME", help=f"The client's user. Default: {ANONYMOUS}.")
@click.option("--client-id", "--client", metavar="NAME", help="The client's client-id. Default: none.")
@click.option("--ip", metavar="ADDRESS", help="The client's IP address.")
@click.option("--live", is_flag=True, help="Ask a running proxy, and show what the client uses now.")
@admin_options()
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def explain(
    user: str | None,
    client_id: str | None,
    ip: str | None,
    output: str,
    *,
    live: bool,
    **target: Any,
) -> None:
    """Print which limits apply to a client, and why.

    For each kind of quota: every level of precedence in order, its limit and where that is defined,
    which one wins, and who shares its counter. A proxy with these quotas decides by the same code.

    \b
    sluice quotas explain -c sluice.yaml --user alice --client-id web --ip 10.0.0.1
    sluice explain --live --user alice --client-id web

    Exit status: 0, or 1 if the quotas cannot be read, 2 for a wrong command line.
    """  # noqa: D301  \b is click's
    asking = {name: target.pop(name) for name in ("admin", "token_file", "ca")}
    if user is None and client_id is None and ip is None:
        raise click.UsageError("name a client: --user, --client-id, --ip, or several of them")
    if user == "":
        raise click.UsageError(f"--user is empty: leave it out for {ANONYMOUS}")
    if live:
        config_path = target.pop("config_path")
        if ip is not None or any(target.values()):
            raise click.UsageError("--live takes --user, --client-id, and --admin or --config for the proxy to ask")
        api = open_api(config_path, **asking, all_instances=False)
        _show_live(api, {"user": user or ANONYMOUS, "client_id": client_id or ""}, output)
        return
    for option, value in asking.items():
        if value is not None:
            raise click.UsageError(f"--{option.replace('_', '-')} is for --live")
    if ip is not None:
        try:
            ip = canonical_ip(ip)
        except ValueError:
            raise click.UsageError(f"--ip: {ip!r} is not an IP address; host names are not resolved") from None
    loaded, settings = load_target(**target), settings_of(target)
    warn(unread.problem for unread in loaded.unread)
    explainer = Explainer(loaded.policy, None if settings is None else settings.exempt, loaded.where)
    explanation = explainer.explain(ExplainedClient(user or ANONYMOUS, client_id or "", ip or ""))
    if output == "json":
        client = explanation.client
        data = {
            "user": client.user,
            "client_id": client.client_id,
            "ip": client.ip or None,
            "group": explanation.group,
            "exempt": explanation.exempt or None,
            "mode": settings and settings.mode,
            "items": as_json(explanation.rows),
        }
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        click.echo("\n".join(pages(explanation, settings)))
