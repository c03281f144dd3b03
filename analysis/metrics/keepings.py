"""What is kept of rows, and for whom: of days that are over, and for as long as a report is made."""

from analysis.metrics import addresses, caps, clients, comparison, headroom, loss, muted, period, rules, talkers
from analysis.metrics.period import Period
from analysis.table.reading import Keeping
from analysis.table.scan import UsageRows


def of_day(usage: UsageRows, found: Period) -> list[Keeping]:
    """Return all that a report can take of a day (``table.summaries``)."""
    return [
        *(period.keeping(), loss.keeping(usage), talkers.keeping(), comparison.keeping()),
        *_of_rules(found),
        *_of_limits(usage, found),
    ]


def of_report(usage: UsageRows, found: Period, *, is_compared: bool) -> list[Keeping]:
    """Return what a report needs of its period."""
    return [
        loss.keeping(usage, found),
        *_of_rules(found),
        *_of_limits(usage, found),
        *([talkers.keeping()] if talkers.are_of_hours(found.step_s) else []),
        *([comparison.keeping()] if is_compared else []),
    ]


def of_other(usage: UsageRows, found: Period) -> list[Keeping]:
    """Return what a report needs of the period that it is held against."""
    return [comparison.keeping(), *_of_limits(usage, found)]


def _of_rules(found: Period) -> list[Keeping]:
    return [rules.keeping(found.capped), muted.keeping(found.capped)]


def _of_limits(usage: UsageRows, found: Period) -> list[Keeping]:
    of_caps = [caps.keeping(found.capped)] if found.capped else []
    return [clients.keeping(), *of_caps, addresses.keeping(), headroom.keeping(usage, found)]
