import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.identity.mechanisms.mechanism import Claim, Mechanism
from proxy.identity.mechanisms.scram import claim_in, is_success


@pytest.mark.parametrize(
    ("message", "claim"),
    [
        (b"n,,n=alice,r=abc", Claim("alice")),
        (b"n,,n=a=2Cb=3Dc,r=abc", Claim("a,b=c")),
        (b"n,,n==3D2C,r=z", Claim("=2C")),
        (b"n,a=bob,n=bob,r=abc", Claim("bob")),
        (b"n,a=bob=2C,n=bob,r=abc", None),
        (b"n,,m=x=y,n=alice,r=abc,z=1", Claim("alice")),
        (b"n,,n=id,r=abc,tokenauth=TRUE", Claim("id", is_token=True)),
        (b"n,,n=id,r=abc,tokenauth=true,tokenauth=false", Claim("id")),
        (b"n,,n=id,r=abc,TokenAuth=true", Claim("id")),
        (b"n,,n=id,r=abc,tokenauth=true=", Claim("id")),
        (b"n,,n=" + b"x" * 32768 + b",r=a", Claim("x" * 32768)),
    ],
)
def test_scram_first_message_claims_a_name_or_a_token(message: bytes, claim: Claim | None) -> None:
    assert claim_in(message) == claim


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,n=a=2cb,r=abc",
        b"n,,n=a=,r=abc",
        b"n,a==2,n=a,r=abc",
        b"n,,n=a\0b,r=abc",
        b"n,,n=a\xc3\xbc,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=a,r=",
        b"n,,n=a,r=a b",
        b"n,,n=a,r=abc,tokenauth",
        b"n,,n=a,r=abc,=true",
        b"n,,n=a,r=abc,",
        b"N,,n=a,r=abc",
        b"y,,n=a,r=abc",
        b"n,,n=a,r=abc\n",
        b"n,,r=abc,n=a",
    ],
)
def test_malformed_scram_first_message_claims_nothing(message: bytes) -> None:
    assert claim_in(message) is None


@given(st.text(st.characters(min_codepoint=1, max_codepoint=127), min_size=1))
def test_any_ascii_name_comes_back(name: str) -> None:
    escaped = name.replace("=", "=3D").replace(",", "=2C").encode()
    assert claim_in(b"n,,n=" + escaped + b",r=x") == Claim(name)


@given(st.binary(max_size=60))
def test_any_bytes_claim_something_or_nothing(token: bytes) -> None:
    mechanism = Mechanism(claim_in, is_success)
    mechanism.from_client(token)
    mechanism.from_client(b"n,," + token + b"r=x")
    assert mechanism.claim is None or mechanism.claim.name


@pytest.mark.parametrize(
    ("message", "claim"),
    [
        (b"n,,n=alice,r=abc", Claim("alice")),
        (b"n,a=alice,n=alice,r=abc", Claim("alice")),
        (b"n,a=a=3Db,n=a=3Db,r=abc", None),
        (b"n,a=admin,n=alice,r=abc", None),
        (b"n,,n=admin,r=abc,tokenauth=True", Claim("admin", is_token=True)),
        (b"y,,n=alice,r=abc", None),
    ],
)
def test_scram_claim_needs_equal_authzid_and_no_channel_binding(message: bytes, claim: Claim | None) -> None:
    mechanism = Mechanism(claim_in, is_success)
    mechanism.from_client(message)
    assert mechanism.claim == claim


def test_success_is_the_signature_in_the_second_answer() -> None:
    mechanism = Mechanism(claim_in, is_success)
    mechanism.from_client(b"n,,n=alice,r=abc")
    assert not mechanism.from_broker(b"v=c2ln")
    mechanism.from_client(b"n,,n=admin,r=abc")
    assert mechanism.claim == Claim("alice")
    assert mechanism.from_broker(b"v=c2ln")
    assert not mechanism.from_broker(b"v=c2ln")


@pytest.mark.parametrize("last", [b"", b"e=invalid-proof", b"r=abc,s=c2FsdA==,i=4096", b" v=c2ln"])
def test_scram_answer_without_signature_is_no_success(last: bytes) -> None:
    mechanism = Mechanism(claim_in, is_success)
    mechanism.from_client(b"n,,n=alice,r=abc")
    assert not mechanism.from_broker(b"r=abcd,s=c2FsdA==,i=4096")
    assert not mechanism.from_broker(last)
