"""Error codes in responses, by API: of those that are read anyway, and of the proxy's own refusals.

A response to a Produce or a Fetch is not read for it (docs/metrics.md lists which are).
"""

from collections.abc import Mapping
from typing import Final

from protocol.error_codes import ERROR_NAMES, NONE

UNNAMED: Final = -2
"""For codes that Kafka's list does not have: a broker's bytes make no series."""


class ResponseErrors:
    """How often each API was answered with which error."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[tuple[int, int], int] = {}

    def count(self, api_key: int, error_code: int, times: int = 1) -> None:
        """Count an error; no error is none."""
        if error_code == NONE or not times:
            return
        key = (api_key, error_code if error_code in ERROR_NAMES else UNNAMED)
        self._counts[key] = self._counts.get(key, 0) + times

    def snapshot(self) -> Mapping[tuple[int, int], int]:
        return dict(self._counts)
