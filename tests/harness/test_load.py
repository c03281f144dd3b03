import struct

import pytest

from tests.harness.load import Answer, Load, RefusedError, Shape, fetch_request, produce_request, record_batch
from tests.harness.wire import Address

AT = Address("127.0.0.1", 1)


def test_throttled_share_is_the_union_of_all_mutes() -> None:
    load = Load([[Answer(0.0, 1, 1000), Answer(5.0, 1, 0)], [Answer(0.5, 1, 1500), Answer(9.5, 1, 9000)]])
    assert load.throttled_share(0.0, 10.0) == pytest.approx((2.0 + 0.5) / 10)
    assert load.throttled_share(3.0, 4.0) == 0


def test_series_adds_all_connections_in_order_of_time() -> None:
    load = Load([[Answer(1.0, 10, 0), Answer(3.0, 10, 0)], [Answer(2.0, 5, 0)]])
    assert [load.series().bytes_at(at_s) for at_s in (1.0, 2.0, 3.0)] == [10, 15, 25]


def produced(error: int = 0) -> bytes:
    """Produce v7: of one partition of topic t."""
    return bytes(8) + struct.pack(">ih1siihqqqi", 1, 1, b"t", 1, 0, error, 0, -1, 0, 7)


def fetched(error: int = 0) -> bytes:
    """Fetch v11: of one partition of topic t, no data."""
    return bytes(8) + struct.pack(">ihiih1siihqqqiii", 9, 0, 0, 1, 1, b"t", 1, 0, error, 0, 0, 0, -1, -1, 0)


def test_load_reads_charged_bytes_and_throttle_time() -> None:
    """Kafka charges Produce by its request without the size field, Fetch by its response without the header."""
    produce = Shape(AT, produce_request("t", "c", 1000))
    told = produce.answer(produced(), 1.0)
    assert (told.charged_bytes, told.throttle_ms) == (len(produce.request) - 4, 7)
    fetch = Shape(AT, fetch_request("t", "c", 1000))
    told = fetch.answer(fetched(), 1.0)
    assert (told.charged_bytes, told.throttle_ms) == (len(fetched()) - 4, 9)


def test_fetch_that_a_broker_throttles_is_an_answer_without_topics() -> None:
    told = Shape(AT, fetch_request("t", "c", 1000)).answer(bytes(8) + struct.pack(">ihii", 9, 0, 0, 0), 1.0)
    assert (told.charged_bytes, told.throttle_ms) == (18, 9)


@pytest.mark.parametrize(
    ("request_", "response"),
    [(produce_request("t", "c", 1000), produced(6)), (fetch_request("t", "c", 1000), fetched(6))],
    ids=["produce", "fetch"],
)
def test_error_of_the_partition_is_no_answer(request_: bytes, response: bytes) -> None:
    with pytest.raises(RefusedError, match="error code 6 for t"):
        Shape(AT, request_).answer(response, 1.0)


@pytest.mark.parametrize("size", [400, 16_384, 1_000_000])
def test_record_batch_has_just_the_size_asked_for(size: int) -> None:
    assert len(record_batch(size)) == size


def test_asking_share_excludes_requests_that_were_held() -> None:
    """Ten of ten milliseconds, one that was held and not told, and one behind a throttle that was told."""
    moments = [(number / 100, 0) for number in range(11)] + [(0.6, 500), (1.1, 0)]
    load = Load([[Answer(at_s, 100, throttle_ms) for at_s, throttle_ms in moments]])
    assert load.asking_share(0.0, 2.0) == pytest.approx(11 * 0.01 / 2)
    assert load.asking_share(5.0, 6.0) == 0
