"""The broker thread time charged for each request under request_percentage: a table in microseconds, because a proxy
cannot see a broker's threads (docs/request-percentage.md).
"""

from typing import Final

from config.settings import RequestCosts as Prices
from protocol.first_batch import FirstBatch

PRODUCE: Final = 0
FETCH: Final = 1
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
SHARE_FETCH: Final = 78
_API_KEYS: Final = 128
_ZSTD: Final = 4

PERCENT_S_PER_US: Final = 1e-4
"""Percent-seconds in a microsecond: a second of one thread is 100 percent-seconds."""


class RequestCosts:
    """The cost table of a worker."""

    def __init__(self, prices: Prices = Prices()) -> None:  # noqa: B008  it never changes
        scale = prices.scale
        self.on = False
        """True if a request_percentage is configured: only then are requests charged."""
        self.exempt_us = 0
        """Total cost of exempt requests: Produce with acks=0."""
        self.of_request = [prices.other_us * scale] * _API_KEYS
        """Base cost of a request, by api key."""
        self.of_answer_byte = [0.0] * _API_KEYS
        """Cost of each response byte, by api key."""
        for api_key, request_us, kib_us in (
            (PRODUCE, prices.produce_us, 0.0),
            (FETCH, prices.fetch_us, prices.fetch_kib_us),
            (SHARE_FETCH, prices.fetch_us, prices.fetch_kib_us),
            (METADATA, prices.metadata_us, prices.metadata_kib_us),
            (OFFSET_COMMIT, prices.offset_commit_us, 0.0),
        ):
            self.of_request[api_key] = request_us * scale
            self.of_answer_byte[api_key] = kib_us * scale / 1024
        self.partition_us = prices.fetch_partition_us * scale
        self._produce_byte_us = prices.produce_kib_us * scale / 1024
        self._record_us = prices.produce_record_us * scale
        self._zstd_us = prices.produce_zstd_us * scale

    def of_produce(self, batch: FirstBatch) -> float:
        """Return the base cost of a Produce: a broker decompresses zstd to validate the records."""
        return self.of_request[PRODUCE] + (self._zstd_us if batch[2] == _ZSTD else 0.0)

    def of_produce_byte(self, batch: FirstBatch) -> float:
        """Return the cost of each byte of a Produce, estimated from the record density of its first batch."""
        records, size, _ = batch
        return self._produce_byte_us + (self._record_us * records / size if size else 0.0)
