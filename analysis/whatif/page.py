"""The result of what-if as one self-contained page, for the owners of the clients."""

from typing import Final

from analysis.page import words
from analysis.page.html import page
from analysis.whatif import comparison
from analysis.whatif.job import WhatIf
from quotas import texts

_ROWS: Final = 500
_HEADS: Final = (
    ("clients", "user / client-id that share the counter"),
    ("", "producing or consuming"),
    ("rule", "the proposed quota that holds"),
    ("limit", "on one broker"),
    ("where", "broker, and proxy where several had it at a time"),
    ("before", "throttled while recorded"),
    ("after", "under the proposed quotas, or between what"),
    ("episodes", "throttles with a second without one between them"),
    ("throttle p99", "throttle time that requests would be given"),
    ("delay p50", "how long bytes would wait"),
    ("p95", "how long bytes would wait"),
    ("p99", "how long bytes would wait, or between what"),
    ("served", "of the recorded bytes, within the period"),
    ("known", "exact; interval: held up while recorded, the truth lies within; unknown: until the recording ended"),
)


def render(found: WhatIf) -> str:
    circumstances = found.circumstances
    title = f"{words.from_to(circumstances.begin, circumstances.end)} UTC"
    names = [scenario.name for scenario in found.scenarios]
    left_out = [f"{name}: {each}" for name in names for each in comparison.left_out(found, name)]
    content = {
        "title": title,
        "heads": _HEADS,
        "notes": [*circumstances.notes(), *left_out],
        "scenarios": [
            (texts.shown(name), comparison.totals(found, name), comparison.touched(found, name, _ROWS))
            for name in names
        ],
    }
    own = {name: getattr(comparison, name) for name in ("who", "where", "limit", "after", "delay_p99", "served")}
    return page("whatif/whatif.html.j2", content, **own)
