"""What is missing of the documents that an ingestion has come by: gaps in the numbers of each run of a proxy (boot).

Told as soon as a gap is seen; what comes late is taken off again. What an earlier ingestion stored is asked for, of the
hours in which a boot is first met, or of those before. What is numbered below all of that is never told as missing:
nobody here knows what is stored of it.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from analysis.ingest.known import Header, Hour

Boot = tuple[str, str]
"""Instance and boot."""
Stored = Callable[[Hour, Boot], Collection[int]]
"""Returns the numbers of a boot that are stored of an hour."""
_MOST_BOOTS: Final = 10_000
"""Remembered: proxies start anew seldom, and who writes forged ones does not fill the memory."""


@dataclass(slots=True)
class _Numbered:
    """What is known of a boot."""

    first: int
    last: int
    documents: int
    dropped: int

    @property
    def missing(self) -> int:
        return self.last - self.first + 1 - self.documents


class Gaps:
    """Counts what is missing, a batch at a time. ``stored`` says what is there of what no batch has brought."""

    def __init__(self, stored: Stored) -> None:
        self._stored = stored
        self._boots: OrderedDict[Boot, _Numbered] = OrderedDict()

    def count(self, dropped: Mapping[Header, int]) -> tuple[int, int]:
        """Return how many more are missing (below 0: came late), and how many more proxies say that they dropped.

        ``dropped`` is what each new document says, none of which is stored yet.
        """
        of_boot: defaultdict[Boot, list[Header]] = defaultdict(list)
        for header in dropped:
            of_boot[header.key[:2]].append(header)
        missing = more_dropped = 0
        for boot, headers in of_boot.items():
            headers.sort(key=lambda header: header.key.seq)
            known = self._boots.pop(boot, None) or self._met(boot, headers, dropped)
            before = known.missing
            known.last = max(known.last, headers[-1].key.seq)
            known.documents += sum(header.key.seq >= known.first for header in headers)
            missing += known.missing - before
            said = max(dropped[header] for header in headers)
            more_dropped += max(said - known.dropped, 0)
            known.dropped = max(said, known.dropped)
            self._boots[boot] = known
        while len(self._boots) > _MOST_BOOTS:
            self._boots.popitem(last=False)
        return missing, more_dropped

    def _met(self, boot: Boot, headers: Sequence[Header], dropped: Mapping[Header, int]) -> _Numbered:
        hours = {header.hour for header in headers}
        there = {seq for hour in hours for seq in self._stored(hour, boot) or self._stored(hour.before(), boot)}
        if there:
            new = [dropped[header] for header in headers if header.key.seq > max(there)]
            return _Numbered(min(there), max(there), len(there), new[0] if new else max(dropped.values()))
        first, said = headers[0].key.seq, dropped[headers[0]]
        if said >= first:  # the proxy dropped all that came before: nobody has any of it
            return _Numbered(0, -1, 0, 0)
        return _Numbered(first, first - 1, 0, said)
