from collections.abc import Callable
from typing import Any

import pytest

from protocol.answers import Token, read_authentication, read_handshake, read_tokens
from protocol.errors import Cause, ProtocolError
from protocol.requests import WHICH_TOKENS, Request, sasl_authenticate, sasl_handshake
from tests.protocol.encode import encode_frame

HMAC = b"a secret that nobody needs"
TOKENS: dict[str, Any] = {
    "tokens": [
        {
            "principal_type": "User",
            "principal_name": owner,
            "issue_timestamp": 1,
            "expiry_timestamp": 1_700_000_000_000,
            "max_timestamp": 3,
            "token_id": f"id of {owner}",
            "hmac": HMAC,
            "renewers": [{"principal_type": "User", "principal_name": name} for name in renewers],
        }
        for owner, renewers in (("alice", []), ("żółw", ["bob", "carol"]))
    ]
}
ANSWERS: list[tuple[Callable[[bytes], object], bytes]] = [
    (read_handshake, encode_frame(sasl_handshake("X").spec, {"error_code": 33, "mechanisms": ["PLAIN", "GSSAPI"]})),
    (read_authentication, encode_frame(sasl_authenticate(b"").spec, {"error_message": "no", "auth_bytes": b"v=x"})),
    (read_tokens, encode_frame(WHICH_TOKENS.spec, TOKENS)),
]


def answer(request: Request, **values: Any) -> bytes:
    return encode_frame(request.spec, values)


def test_sasl_handshake_response_gives_error_and_mechanisms() -> None:
    assert read_handshake(answer(sasl_handshake("PLAIN"))) == (0, [])
    assert read_handshake(ANSWERS[0][1]) == (33, ["PLAIN", "GSSAPI"])


def test_sasl_authenticate_response_gives_error_message_and_token() -> None:
    frame = answer(sasl_authenticate(b""), error_code=58, error_message=None, auth_bytes=b"")
    assert read_authentication(frame) == (58, "", b"")
    assert read_authentication(ANSWERS[1][1]) == (0, "no", b"v=x")


def test_delegation_tokens_are_read_without_their_hmac() -> None:
    read = read_tokens(answer(WHICH_TOKENS, **TOKENS))
    assert read.tokens == [
        Token("id of alice", "User", "alice"),
        Token("id of żółw", "User", "żółw"),
    ]
    assert HMAC.decode() not in repr(read)
    assert read_tokens(answer(WHICH_TOKENS, error_code=64)) == (64, [])


@pytest.mark.parametrize(("read", "frame"), ANSWERS, ids=[read.__name__ for read, _ in ANSWERS])
def test_answers_that_end_too_early_are_refused(read: Callable[[bytes], object], frame: bytes) -> None:
    needed = len(frame) - (4 if read is read_tokens else 0)  # throttle_time_ms behind the tokens is not read
    for end in range(8, needed):
        with pytest.raises(ProtocolError, match="has a field of") as refused:
            read(frame[:end])
        assert refused.value.cause is Cause.BAD_BODY


@pytest.mark.parametrize("count", [2**31 - 1, 1000])
def test_a_claimed_count_takes_neither_memory_nor_time(count: int) -> None:
    frame = answer(sasl_handshake("X"), mechanisms=["PLAIN"])
    with pytest.raises(ProtocolError):
        read_handshake(frame[:10] + count.to_bytes(4, "big") + frame[14:])
    assert read_handshake(frame[:10] + b"\xff\xff\xff\xff") == (0, [])
