"""The sections of the page about quotas by their kind, and about who connected. What nobody has is not there."""

from collections.abc import Iterator, Sequence

from analysis.page import words
from analysis.page.html import Cell, empty, rule, section, table
from analysis.report.findings import Connected, OfRule, ReportFindings
from quotas.kinds import BYTES, QuotaKind, Whose

_WORDS = {kind.row.word: kind for kind in QuotaKind}


def kinds(found: ReportFindings) -> str:
    title = "What each quota did"
    in_use = [kind for kind in QuotaKind if any(_tells(each) for each in found.rules if each.kind == kind.row.word)]
    if not in_use:
        return empty("kinds", title, "No quota of any kind was in force.")
    says = "Of each kind: its unit, the limits, what was used under them, and who was throttled by which."
    if any(each.is_cap for each in found.rules):
        says += " A cap holds besides the quota that wins: what is charged to it stands in a line of a quota too."
    return section("kinds", title, says, *(_kind(kind, found) for kind in in_use))


def _tells(each: OfRule) -> bool:
    return bool(each.rule or each.shadow or each.exempt or each.throttled)


def _kind(kind: QuotaKind, found: ReportFindings) -> str:
    row = kind.row
    of_ip = row.whose is Whose.IP
    where = "for the whole cluster" if row.of_cluster else "of one address" if of_ip else "per broker"
    unit = row.unit.rate.replace("_per_second", "/s")
    heads = [
        ("rule", "the quota, or why there is none"),
        ("limit", f"{unit} {where}; the lowest and the highest where it changed"),
        ("used", "in the period, by all that it held, on all brokers and proxies"),
        ("refused" if of_ip else "throttled", "how often"),
        ("muted", "time in which at least one connection was held, clients and instances added"),
        ("what it was", ""),
    ]
    mine = [each for each in found.rules if each.kind == row.word]
    return f"<h3>{kind.value}: {row.doing}, {unit} {where}</h3>{table(heads, map(_rule, mine))}"


def _rule(each: OfRule) -> Sequence[Cell]:
    least, most = each.least_limit, each.most_limit
    limit = "&ndash;"
    if least is not None and most is not None:
        limit = words.limit(each.kind, least)
        limit += f" to {words.limit(each.kind, most)}" if most > least else ""
    name = rule(each.rule) if each.rule else "exempt" if each.exempt else "in shadow" if each.shadow else "no limit"
    return (
        Cell(f"{name}{_most(each)}"),
        Cell(limit, most or 0),
        Cell(_used(each), each.used),
        Cell(words.count(each.throttled), each.throttled),
        Cell(words.duration(each.muted_ms / 1000), each.muted_ms),
        Cell(_how(each)),
    )


def _most(each: OfRule) -> str:
    """Return who used most of a cap."""
    if not each.is_cap:
        return ""
    named = [
        f"{words.name(words.client(one.user, one.client_id), 30)} {words.percent(one.used / max(each.used, 1))}"
        f"{f', muted {words.duration(one.muted_ms / 1000)}' if one.muted_ms else ''}"
        for one in each.most
    ]
    more = each.clients - len(each.most)
    return f"<br><small>{'; '.join(named)}{f'; and {more:,} more' if more > 0 else ''}</small>"


def _used(each: OfRule) -> str:
    unit = _WORDS[each.kind].row.unit
    if unit is BYTES:
        return words.size(each.used)
    if unit.used == "thread_us":
        return f"{words.duration(each.used / 1e6)} of threads"
    return f"{words.count(each.used)} {unit.used}"


def _how(each: OfRule) -> str:
    if each.exempt:
        return "held by no quota (quotas.exempt)"
    if each.shadow:
        return "measured: it would have been throttled so"
    if not each.rule:
        return "held by no quota: unlimited, or under caps alone"
    return "enforced" if each.mode == "enforce" else f"mode {words.name(each.mode)}: nobody was held"


def connections(found: ReportFindings) -> str:
    """Return the section, or nothing where records say nothing of connections."""
    if not found.connected:
        return ""
    heads = [
        ("address", "other: those beyond usage.max_addresses"),
        ("listener", ""),
        ("attempts", "to connect"),
        ("refused", "because the address came too often"),
        ("why", "the quota that was exceeded"),
        ("limit", "the lowest that was in force"),
        ("held", "time in which at least one connection was held unread before it was closed"),
    ]
    sums = found.totals
    says = (
        f"<b>{words.count(sums.attempts)}</b> attempts to connect, <b>{words.count(sums.attempts_refused)}</b> refused "
        "for the rate of their address. Those that were refused most, then those that came most."
    )
    waits = "".join(_waits(each) for each in found.connected if each.waits)
    return section("connections", "Who connected", says, waits, table(heads, _connected(found.connected)))


def _waits(each: Connected) -> str:
    return (
        f"<p>Accepting at {words.name(each.listener)} waited {words.counted(each.waits, 'time')}, for "
        f"{words.duration(each.wait_ms / 1000)} in all (connection_rate of the listener or of the proxy).</p>"
    )


def _connected(found: Sequence[Connected]) -> Iterator[Sequence[Cell]]:
    for each in found:
        if each.ip is not None:
            why = rule(each.rule) if each.rule else "exempt" if each.exempt else "no limit"
            yield (
                Cell(words.name(each.ip)),
                Cell(words.name(each.listener)),
                Cell(words.count(each.attempts), each.attempts),
                Cell(words.count(each.refused), each.refused),
                Cell(why if each.mode == "enforce" else f"{why}, mode {words.name(each.mode)}"),
                Cell(words.limit("connection", each.limit) if each.limit else "&ndash;", each.limit or 0),
                Cell(words.duration(each.held_ms / 1000), each.held_ms),
            )
