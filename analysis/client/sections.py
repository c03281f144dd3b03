"""Who the client is, when it was throttled and with whom, who was busy, and the period before."""

from collections.abc import Iterator, Sequence

from analysis.client.findings import Busy, ClientFindings, OneEpisode, Sums
from analysis.metrics.broker_moments import MOMENT_S, PEAK_OVER_AVERAGE
from analysis.metrics.neighbours import CHANCE, COINCIDES, TOO_FEW
from analysis.page import words
from analysis.page.html import Cell, empty, rule, section, table
from quotas.kinds import BYTES, QuotaKind

_KINDS = {kind.row.word: kind for kind in QuotaKind}
_NAMED = 12
_COMPARED = (
    ("bytes to brokers", "bytes_in"),
    ("bytes from brokers", "bytes_out"),
    ("requests", "requests"),
    ("connections opened", "connections_opened"),
    ("attempts to connect", "attempts"),
)


def used(kind: str, amount: float) -> str:
    """Return what was used of a kind, as records count it."""
    unit = _KINDS[kind].row.unit
    if unit is BYTES:
        return words.size(amount)
    if unit.used == "thread_us":
        return f"{words.duration(amount / 1e6)} of threads"
    return f"{words.count(amount)} {unit.used}"


def who(found: ClientFindings) -> str:
    facts = found.facts
    clients = [words.client(user, client_id) for user, client_id in facts.clients]
    lines = {
        "Cluster": _listed(facts.clusters, len(facts.clusters)),
        "Clients": _listed(clients, facts.how_many_clients),
        "Proxies": _listed(facts.instances, len(facts.instances)),
        "Listeners": _listed(facts.listeners, len(facts.listeners)),
        "Brokers": _listed([str(each) for each in sorted(facts.brokers)], len(facts.brokers)),
        "Addresses": words.name(found.asked.names["ip"])
        if found.asked.of_address
        else "not known: records have users and addresses in rows of their own (--client ip=&hellip; shows an address)",
        "Seen": f"{words.moment(facts.first)} to {words.moment(facts.last)}, UTC",
        "Mode": _listed(facts.modes, len(facts.modes)),
    }
    if found.asked.of_address:
        del lines["Clients"], lines["Brokers"]
    items = "".join(f"<dt>{name}</dt><dd>{html}</dd>" for name, html in lines.items())
    says = f"All rows of records with {words.name(found.asked.describe(), 80)} in the period. The largest is first."
    return section("who", "Who it is, and where", says, f"<dl>{items}</dl>")


def _listed(names: Sequence[str], of: int) -> str:
    shown = ", ".join(words.name(name) for name in names[:_NAMED])
    return f"{shown} and {of - _NAMED:,} more" if of > _NAMED else shown or "none"


def episodes(found: ClientFindings) -> str:
    title = "When it was throttled" if not found.shadow else "When it would have been throttled"
    if not found.episodes:
        return empty("episodes", title, "Never: in this period none of its connections was muted.")
    heads = [
        ("from", "UTC"),
        ("lasted", "from its first muted interval to the end of its last"),
        ("muted", "time in which at least one connection was muted; instances of the proxy are added"),
        ("by which rule", "the quota that was exceeded"),
        ("limit", "the lowest that was in force"),
        ("broker", "node id; -1: counted for all"),
        ("requests", "that were given a throttle time"),
        ("used", "by this client"),
        ("with whom", "others who were charged to the same counter while it lasted, and what they used"),
    ]
    shown, all_of_them = len(found.episodes), found.sums.episodes
    which = "All of them" if shown == all_of_them else f"The {shown} longest of {all_of_them:,}"
    says = f"{which}, gaps up to {words.duration(found.gap_ms / 1000)} joined. All are in the table episodes."
    return section("episodes", title, says, table(heads, (_episode(found, each) for each in found.episodes)))


def _episode(found: ClientFindings, each: OneEpisode) -> Sequence[Cell]:
    lasted_s = (each.end - each.begin).total_seconds()
    name = words.client(each.user, each.client_id) if found.facts.how_many_clients > 1 else ""
    mode = "" if each.mode == "enforce" else f", {words.name(each.mode)}"
    return (
        Cell(words.moment(each.begin), each.begin.timestamp()),
        Cell(words.duration(lasted_s), lasted_s),
        Cell(words.duration(each.muted_ms / 1000), each.muted_ms),
        Cell(f"{rule(each.rule or '')} <small>{each.kind}{mode}{f', {words.name(name)}' if name else ''}</small>"),
        Cell(words.limit(each.kind, each.limit) if each.limit else "&ndash;", each.limit or 0),
        Cell(str(each.broker), each.broker),
        Cell(words.count(each.throttled), each.throttled),
        Cell(used(each.kind, each.used), each.used),
        Cell(_company(each)),
    )


def _company(each: OneEpisode) -> str:
    if not each.companions:
        return "nobody"
    named = ", ".join(
        f"{words.name(words.client(one.user, one.client_id), 30)} {used(each.kind, one.used)}"
        for one in each.companions
    )
    more = each.how_many_companions - len(each.companions)
    return f"{named}{f' and {more:,} more' if more > 0 else ''}"


def neighbours(found: ClientFindings) -> str:
    title = "Who was busy while it was throttled"
    if not found.sums.muted_ms:
        return empty("neighbours", title, "It was never throttled in this period.")
    if not found.busy:
        return empty("neighbours", title, "Nobody else moved anything on its brokers while it was throttled.")
    says = (
        f"Others on its brokers, of those that move most there, in the {MOMENT_S} s in which it was throttled. Whether "
        "its throttled time is in their peaks more than chance would put it there, is held against what is usual of "
        "the client in the same hour, and corrected for how many were looked at. It is where to look first: a quota "
        "throttles its own clients, whoever else is busy."
    )
    heads = [
        ("client", "user / client-id"),
        ("broker", "node id"),
        ("then", "bytes in and out per second, while this client was throttled"),
        ("on average", "in all of the period"),
        ("share then", "of all bytes of the broker, while this client was throttled"),
        ("peaks", f"{MOMENT_S} s in which it moved {PEAK_OVER_AVERAGE:g} times its own average or more"),
        ("in its peaks", "the part of the throttled time that is there beyond what is expected"),
        ("what it is worth", ""),
    ]
    return section("neighbours", title, says, table(heads, map(_busy, found.busy)))


def _busy(each: Busy) -> Sequence[Cell]:
    said = {
        COINCIDES: "<b>coincides</b>: by chance in less than one such page of twenty",
        CHANCE: "no more than by chance",
        TOO_FEW: "it peaked too seldom to say",
    }[each.verdict]
    return (
        Cell(words.name(words.client(each.user, each.client_id))),
        Cell(str(each.broker), each.broker),
        Cell(words.rate(each.bytes_per_s_then), each.bytes_per_s_then),
        Cell(words.rate(each.bytes_per_s), each.bytes_per_s),
        Cell(words.percent(each.share_then), each.share_then),
        Cell(f"{each.peaks:,}", each.peaks),
        Cell("&ndash;" if each.score is None else f"{round(each.score * 100):+,} %", each.score or 0.0),
        Cell(said),
    )


def before(found: ClientFindings) -> str:
    title = "Against the period before"
    earlier = found.before
    when = words.from_to(earlier.begin, found.begin)
    if earlier.sums is None:
        return empty("before", title, f"{when} UTC is not stored: {earlier.note}.")
    if not earlier.sums.rows:
        return empty("before", title, f"It has no records in {when} UTC{f'; {earlier.note}' if earlier.note else ''}.")
    heads = [("", ""), ("before", when), ("now", ""), ("change", "of what it was before")]
    says = f"{when} UTC, as long as this one.{f' Its {earlier.note}.' if earlier.note else ''}"
    return section("before", title, says, table(heads, _compared(found, earlier.sums)))


def _compared(found: ClientFindings, was: Sums) -> Iterator[Sequence[Cell]]:
    now = found.sums
    for said, name in _COMPARED:
        one, other = getattr(was, name), getattr(now, name)
        if one or other:
            write = words.size if name.startswith("bytes") else words.count
            yield _line(said, one, other, write(one), write(other))
    if was.requests and now.requests:
        means = [each.request_time_ms / each.requests for each in (was, now)]
        yield _line("mean time of a request", means[0], means[1], f"{means[0]:.1f} ms", f"{means[1]:.1f} ms")
    yield _line("episodes", was.episodes, now.episodes, f"{was.episodes:,}", f"{now.episodes:,}")
    yield _line(
        "throttled requests", was.throttled, now.throttled, words.count(was.throttled), words.count(now.throttled)
    )
    muted = found.before.muted_ms_by_kind
    for kind in _KINDS:
        here = sum(each.muted_ms for each in found.counters if each.kind == kind)
        if muted.get(kind) or here:
            there = muted.get(kind, 0)
            said = f"throttled {words.doing(kind)}"
            yield _line(said, there, here, words.duration(there / 1000), words.duration(here / 1000))


def _line(said: str, was: float, now: float, was_said: str, now_said: str) -> Sequence[Cell]:
    change = "new" if not was and now else "&ndash;" if not was else f"{(now - was) / was * 100:+,.0f} %"
    return Cell(said), Cell(was_said, was), Cell(now_said, now), Cell(change, (now - was) / was if was else 0.0)
