import struct

import pytest

from tests.harness.load import Answer, Load, Shape, fetch_request, produce_request, record_batch
from tests.harness.wire import Address

AT = Address("127.0.0.1", 1)


def test_throttled_share_is_the_union_of_all_mutes() -> None:
    load = Load([[Answer(0.0, 1, 1000), Answer(5.0, 1, 0)], [Answer(0.5, 1, 1500), Answer(9.5, 1, 9000)]])
    assert load.throttled_share(0.0, 10.0) == pytest.approx((2.0 + 0.5) / 10)
    assert load.throttled_share(3.0, 4.0) == 0


def test_series_adds_all_connections_in_order_of_time() -> None:
    load = Load([[Answer(1.0, 10, 0), Answer(3.0, 10, 0)], [Answer(2.0, 5, 0)]])
    assert [load.series().bytes_at(at_s) for at_s in (1.0, 2.0, 3.0)] == [10, 15, 25]


def test_what_is_charged_and_told() -> None:
    """Kafka charges Produce by its request without the size field, Fetch by its response without the header."""
    produce = Shape(AT, produce_request("t", "c", 1000))
    told = produce.answer(b"\0" * 20 + struct.pack(">i", 7), 1.0)
    assert (told.charged_bytes, told.throttle_ms) == (len(produce.request) - 4, 7)
    fetch = Shape(AT, fetch_request("t", "c", 1000))
    told = fetch.answer(b"\0" * 8 + struct.pack(">i", 9) + b"\0" * 10, 1.0)
    assert (told.charged_bytes, told.throttle_ms) == (18, 9)


@pytest.mark.parametrize("size", [400, 16_384, 1_000_000])
def test_record_batch_has_just_the_size_asked_for(size: int) -> None:
    assert len(record_batch(size)) == size
