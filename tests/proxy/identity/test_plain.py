import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.identity.mechanisms.mechanism import Claim, Mechanism
from proxy.identity.mechanisms.plain import claim_in


@pytest.mark.parametrize(
    ("token", "user"),
    [
        (b"\0alice\0secret", "alice"),
        (b"alice\0alice\0secret", "alice"),
        ("\0grüße/*+%\0secret".encode(), "grüße/*+%"),
        (b"\0<default>\0secret", "<default>"),
        (b"\0" + b"a" * 32768 + b"\0secret", "a" * 32768),
        (b"\0alice\0\xff", "alice"),
        (b"admin\0alice\0secret", None),
        (b"\0alice", None),
        (b"alice\0secret", None),
        (b"\0alice\0secret\0", None),
        (b"\0alice\0secret\0admin", None),
        (b"\0\0secret", None),
        (b"\0alice\0", None),
        (b"\0al\xffice\0secret", None),
        (b"", None),
    ],
)
def test_plain_token_gives_user_or_none_when_malformed(token: bytes, user: str | None) -> None:
    assert claim_in(token) == (None if user is None else Claim(user))


@given(st.binary(max_size=40))
def test_any_bytes_name_a_user_or_nobody(token: bytes) -> None:
    claim = claim_in(token)
    assert claim is None or (claim.name and claim.name.encode() in token)


def test_plain_claim_is_first_token_and_any_answer_succeeds() -> None:
    mechanism = Mechanism(claim_in)
    assert mechanism.claim is None
    mechanism.from_client(b"\0alice\0secret")
    mechanism.from_client(b"\0admin\0secret")
    assert mechanism.claim == Claim("alice")
    assert mechanism.from_broker(b"")


def test_after_a_token_that_names_nobody_none_is_looked_at() -> None:
    mechanism = Mechanism(claim_in)
    mechanism.from_client(b"\0a\0b\0c")
    mechanism.from_client(b"\0admin\0secret")
    assert mechanism.claim is None
