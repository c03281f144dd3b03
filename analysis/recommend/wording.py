"""Needs in words."""

from functools import partial

from analysis.page.words import limit, plain
from analysis.recommend.needs import Need
from quotas.kinds import BYTES


def needs(need: Need) -> str:
    """Return what is needed, and what it is found from."""
    if not need.needed:
        return "needs less than the least quota"
    rate = _rate if need.kind.row.unit is BYTES else partial(limit, need.kind)
    where = f"broker {need.unit.broker}" + (f", {plain(need.unit.instance)}" if need.unit.instance else "")
    return (
        f"needs {rate(need.needed)} ({where}); recorded "
        f"p99 {rate(need.p99)}, most {rate(need.most)} in a second and {rate(need.surge)} over the window"
    )


def trust(need: Need) -> str:
    """Return how far a need can be trusted."""
    doubt = "" if need.answer == "exact" else f" (held up while recorded: {need.answer}, sized for the most)"
    return f"confidence {need.confidence}{doubt}"


def of_caps(need: Need) -> str:
    """Say what caps meant: who was held by a cap alone needs no other quota for that."""
    if need.by_caps:
        whom = "by these alone, not by a quota" if need.by_caps_alone else "by these among others"
        return f"; held by caps while recorded, {whom}: a quota above them changes nothing"
    return "; under caps besides, which held nobody" if need.capped else ""


def _rate(bytes_per_s: float) -> str:
    for unit, most in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if bytes_per_s >= most:
            return f"{bytes_per_s / most:.3g} {unit}/s"
    return f"{bytes_per_s:.0f} B/s"
