"""``sluice explain``: a client's limits, the levels that led to each, and who shares its counter."""

import json
from collections.abc import Iterator
from typing import Any

import click

from config.settings import Quotas
from proxy.checks.explain import (
    ExplainedClient,
    Explainer,
    Explanation,
    KindVerdict,
    Level,
    Rule,
    amount,
    scope,
    written,
)
from proxy.live.options import admin_option
from proxy.manage.target import StoreCommand, load_target, settings_of, target_options
from quotas.entities import ANONYMOUS
from quotas.kinds import QuotaKind
from quotas.stores.alteration import canonical_ip

_NOTHING = "-"


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
    for verdict in explanation.verdicts:
        yield ""
        yield from _verdict(verdict)


def _verdict(verdict: KindVerdict) -> Iterator[str]:
    kind, winner = verdict.kind, verdict.winner
    if winner is None:
        yield f"{kind}: no quota ({verdict.why})"
    else:
        yield f"{kind}: {_limit(winner)}"
        yield f"  why: {verdict.why}"
        yield f"  counter: one for {winner.counted}"
        yield from _terms(kind, winner)
    if any(each.limit is not None for each in verdict.levels):
        yield from _table(verdict.levels)
    for cap in verdict.caps:
        yield f"  also: {_limit(cap)}"
        yield f"    counter: one for {cap.counted}"
        yield from (f"  {line}" for line in _terms(kind, cap))


def _limit(rule: Rule) -> str:
    at = _at(rule.entity.describe(), rule.where)
    return f"{amount(rule.kind, rule.limit)} {scope(rule.kind, rule.terms)}, of {at}"


def _terms(kind: QuotaKind, rule: Rule) -> Iterator[str]:
    terms = rule.terms
    if terms.shadow:
        yield "  mode: shadow: measured, not enforced"
    if terms.proposed is not None:
        yield f"  proposed: {amount(kind, terms.proposed)}: measured beside it, not enforced"
    if terms.burst_ms is not None:
        yield f"  burst: {terms.burst_ms} ms' worth at once"
    if terms.max_delay_ms is not None:
        yield f"  max_delay: no throttle is longer than {terms.max_delay_ms} ms"


def _table(levels: tuple[Level, ...]) -> Iterator[str]:
    """Yield a line for each level: its entity, its limit and where that is defined."""
    names = [level.entity.describe() for level in levels]
    limits = [_NOTHING if level.limit is None else written(level.limit) for level in levels]
    name_width, limit_width = max(map(len, names)), max(map(len, limits))
    won = False
    for level, name, limit in zip(levels, names, limits, strict=True):
        remark = ""
        if level.limit is not None:
            remark = "not reached" if not level.reached else "" if won else "wins"
            won = True
        line = f"    {name:<{name_width}}  {limit:>{limit_width}}  {remark:<11}  {level.where}"
        yield line.rstrip()


def _at(said: str, where: str) -> str:
    return f"{said} ({where})" if where else said


@click.command("explain", cls=StoreCommand, short_help="Show which limits apply to a client, and why.")
@target_options
@click.option("--user", metavar="NAME", help=f"The client's user. Default: {ANONYMOUS}.")
@click.option("--client-id", "--client", metavar="NAME", help="The client's client-id. Default: none.")
@click.option("--ip", metavar="ADDRESS", help="The client's IP address.")
@click.option("--live", is_flag=True, help="Ask a running proxy, and show what the client uses now.")
@admin_option
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def explain(
    user: str | None,
    client_id: str | None,
    ip: str | None,
    output: str,
    *,
    live: bool,
    admin: str | None,
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
    if user is None and client_id is None and ip is None:
        raise click.UsageError("name a client: --user, --client-id, --ip, or several of them")
    if user == "":
        raise click.UsageError(f"--user is empty: leave it out for {ANONYMOUS}")
    if live:
        config_path = target.pop("config_path")
        if ip is not None or any(target.values()):
            raise click.UsageError("--live takes --user, --client-id, and --admin or --config for the proxy to ask")
        from proxy.live import explaining

        explaining.show(config_path, admin, user or ANONYMOUS, client_id or "", output)
        return
    if admin is not None:
        raise click.UsageError("--admin is for --live")
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
