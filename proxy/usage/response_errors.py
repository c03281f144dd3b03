"""Error codes in responses, by API: of those that are read anyway, and of the proxy's own refusals.

A response to a Produce or a Fetch is not read for it (docs/metrics.md lists which are).
"""

from collections import Counter
from typing import Final

from protocol.error_codes import ERROR_NAMES, NONE

UNNAMED: Final = -2
"""For codes that Kafka's list does not have: a broker's bytes make no series."""


class ResponseErrors:
    """How often each API was answered with which error."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[int, int]] = Counter()
        """By api key and error code."""

    def count(self, api_key: int, error_code: int, times: int = 1) -> None:
        """Count an error; no error is none."""
        if error_code != NONE and times:
            self.counts[api_key, error_code if error_code in ERROR_NAMES else UNNAMED] += times
