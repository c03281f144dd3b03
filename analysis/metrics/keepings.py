"""What is kept of days that are over."""

from analysis.metrics import addresses, caps, clients, comparison, headroom, loss, muted, period, rules, talkers
from analysis.metrics.period import Period
from analysis.table.reading import Keeping
from analysis.table.scan import UsageRows


def of_day(usage: UsageRows, found: Period) -> list[Keeping]:
    """Return all that a report can take of a day (``table.summaries``)."""
    return [
        *(period.keeping(), loss.keeping(usage), talkers.keeping(), comparison.keeping()),
        *(rules.keeping(found.capped), muted.keeping(found.capped), clients.keeping()),
        *([caps.keeping(found.capped)] if found.capped else []),
        *(addresses.keeping(), headroom.keeping(usage, found)),
    ]
