"""A token that two libraries could read differently is not read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.identity.kerberos.token import is_ap_req
from tests.proxy.identity.kerberos import ENCRYPTED, ap_req, element, field, framed, request, ticket

TOKEN = ap_req()
KERBEROS_BY_MICROSOFT = bytes.fromhex("2a864882f712010202")
SPNEGO = bytes.fromhex("2b0601050502")


def test_complete_ap_req_token_is_recognized() -> None:
    assert is_ap_req(TOKEN)


def test_version_of_a_key_is_optional() -> None:
    assert is_ap_req(ap_req(authenticator=element(0x30, field(0, b"\x02\x01\x12"), field(2, b"\x04\x02ab"))))


@pytest.mark.parametrize("length", [0x7F, 0x80, 0xFF, 0x100, 0xFFFF, 0x10000])
def test_ap_req_of_any_length_is_recognized(length: int) -> None:
    sealed = element(0x30, field(0, b"\x02\x01\x12"), field(2, element(0x04, bytes(length))))
    assert is_ap_req(ap_req(authenticator=sealed))


@pytest.mark.parametrize(
    "token",
    [
        pytest.param(b"", id="empty"),
        pytest.param(TOKEN + b"\0", id="a byte behind it"),
        pytest.param(framed(request() + request()), id="a second AP-REQ"),
        pytest.param(request(), id="AP-REQ without a frame, as in DCE style"),
        pytest.param(framed(request(), mechanism=SPNEGO), id="SPNEGO"),
        pytest.param(framed(request(), mechanism=KERBEROS_BY_MICROSOFT), id="Microsoft's mechanism"),
        pytest.param(framed(request(), token_id=b"\x02\x00"), id="AP-REP"),
        pytest.param(framed(request(), token_id=b"\x01\x01\x00"), id="a token id with a content"),
        pytest.param(framed(request(ticket(), ticket())), id="two tickets"),
        pytest.param(framed(request(ticket() + ticket())), id="two tickets in one field"),
        pytest.param(framed(request(ticket(ENCRYPTED + ENCRYPTED))), id="two encrypted parts in one field"),
        pytest.param(framed(request(element(0x62, ticket()))), id="not a ticket"),
        pytest.param(ap_req(authenticator=element(0x30, field(2, b"\x04\0"), field(2, b"\x04\0"))), id="two ciphers"),
        pytest.param(b"\x60\x81" + TOKEN[1:], id="a length of too many bytes"),
        pytest.param(b"\x60\x80" + TOKEN[2:] + b"\0\0", id="a length that is not said (BER)"),
    ],
)
def test_other_tokens_are_not_recognized_as_ap_req(token: bytes) -> None:
    assert not is_ap_req(token)


@given(cut=st.integers(0, len(TOKEN) - 1))
def test_truncated_ap_req_is_not_recognized(cut: int) -> None:
    assert not is_ap_req(TOKEN[:cut])


@given(st.binary(max_size=80))
def test_any_bytes_have_an_answer(token: bytes) -> None:
    assert not is_ap_req(token)


@given(at=st.integers(0, len(TOKEN) - 1), value=st.integers(0, 255))
def test_any_byte_may_be_wrong(at: int, value: int) -> None:
    """No exception, and no change of what says where the parts are."""
    changed = TOKEN[:at] + bytes([value]) + TOKEN[at + 1 :]
    assert not is_ap_req(changed) or len(changed) == len(TOKEN)
