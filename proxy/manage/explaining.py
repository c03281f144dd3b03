"""An explanation of a client's limits in text: each limit, the levels that led to it, and who shares its counter."""

from collections.abc import Iterator

from config.settings import Quotas
from proxy.checks.explain import Explanation, KindVerdict, Level, Rule, amount, scope, written
from quotas.kinds import QuotaKind

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
