"""What may come first, and what may not: nothing is spent on it before it is known for a request."""

import pytest

from protocol.errors import Cause, ProtocolError
from proxy.edge.arriving import is_request
from tests.proxy.playbook import Play, list_offsets, produce, request

RULES = Play().worker


@pytest.mark.parametrize("first", [list_offsets(1), produce(1, 500_000), request(18, 0, 1), request(18, 99, 1)])
def test_first_request_is_recognized_by_its_first_14_bytes(first: bytes) -> None:
    assert [is_request(first[:end], RULES, authenticated=True) for end in (0, 3, 13, 14, len(first))] == [
        False,
        False,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("first", "cause"),
    [
        (b"\x16\x03\x01\x02", Cause.TLS_ON_PLAINTEXT),
        (b"GET / HTTP/1.1\r\n", Cause.NOT_KAFKA),
        (b"\0\0\0\1", Cause.FRAME_TOO_SHORT),
        (request(99, 0, 1), Cause.UNKNOWN_API),
        (request(0, 99, 1), Cause.UNSUPPORTED_VERSION),
        (b"\0\0\0\x20\x60\x1e" + bytes(30), Cause.UNKNOWN_API),
    ],
)
def test_first_bytes_that_are_no_request_are_refused_with_cause(first: bytes, cause: Cause) -> None:
    with pytest.raises(ProtocolError) as refused:
        is_request(first, RULES, authenticated=True)
    assert refused.value.cause is cause


def test_sasl_listener_takes_first_token_and_refuses_large_request() -> None:
    assert is_request(b"\0\0\0\x20\x60\x1e" + bytes(30), RULES, authenticated=False)
    with pytest.raises(ProtocolError) as refused:
        is_request(produce(1, 2000), RULES, authenticated=False)
    assert refused.value.cause is Cause.FRAME_TOO_LARGE
