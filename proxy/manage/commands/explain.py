"""``sluice quotas explain``: show which limits apply to a client, and why."""

import json
from typing import Any

import click

from proxy.checks.explain import ExplainedClient, Explainer
from proxy.live.options import admin_options
from proxy.manage.explaining import pages
from proxy.manage.target import target_options
from proxy.manage.target_store import load_target, settings_of
from quotas.entities import ANONYMOUS
from quotas.stores.alteration import canonical_ip


@click.command(short_help="Show which limits apply to a client, and why.")
@target_options
@click.option("--user", metavar="NAME", help=f"The client's user. Default: {ANONYMOUS}.")
@click.option("--client-id", "--client", metavar="NAME", help="The client's client-id. Default: none.")
@click.option("--ip", metavar="ADDRESS", help="The client's IP address.")
@click.option("--live", is_flag=True, help="Ask a running proxy, and show what the client uses now.")
@admin_options
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
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
        from proxy.live import listing
        from proxy.live.api import open_api

        api = open_api(config_path, **asking, all_instances=False)
        listing.explain(api, user or ANONYMOUS, client_id or "", output)
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
    for unread in loaded.unread:
        click.echo(f"warning: {unread.problem}", err=True)
    explainer = Explainer(loaded.policy, None if settings is None else settings.exempt, loaded.where)
    explanation = explainer.explain(ExplainedClient(user or ANONYMOUS, client_id or "", ip or ""))
    if output == "json":
        data = explanation.as_data() | {"mode": settings and settings.mode}
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        click.echo("\n".join(pages(explanation, settings)))
