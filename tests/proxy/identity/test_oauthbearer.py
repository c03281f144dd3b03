import json
from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.identity.mechanisms.mechanism import Claim
from proxy.identity.mechanisms.oauthbearer import Names, OAuthBearer, principal_name, token_in


def section(value: object) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(text).decode().rstrip("=")


def jwt(payload: object, algorithm: str = "RS256") -> str:
    return f"{section({'alg': algorithm})}.{section(payload)}.c2ln"


def message(token: str, authzid: str = "") -> bytes:
    gs2 = f"n,a={authzid}," if authzid else "n,,"
    return f"{gs2}\x01auth=Bearer {token}\x01\x01".encode()


@pytest.mark.parametrize(
    ("sent", "token", "authzid"),
    [
        (b"n,,\x01auth=Bearer abc\x01\x01", "abc", ""),
        (b"n,a=u=2C,\x01host=h\x01auth=bEARER   abc==\x01\x01", "abc==", "u=2C"),
        (b"n,,\x01auth=Basic x\x01auth=Bearer a-._~+/Z\x01\x01", "a-._~+/Z", ""),
    ],
)
def test_oauthbearer_first_message_gives_token_and_authorization_id(sent: bytes, token: str, authzid: str) -> None:
    assert token_in(sent) == (token, authzid)


@pytest.mark.parametrize(
    ("payload", "name"),
    [
        ({"user.info": {"id": "alice"}, "client_id": "app"}, "u-alice"),
        ({"client_id": "app"}, "service-app"),
        ({"user.info": {"id": 7}, "client_id": "app"}, None),
        ({"user.info": {"id": None}, "client_id": "app"}, None),
        ({"user.info": {"id": " "}, "client_id": "app"}, None),
        ({"user.info": "alice", "client_id": "app"}, "service-app"),
        ({"user.info": {"name": "alice"}, "client_id": "app"}, "service-app"),
        ({"sub": "alice"}, None),
    ],
)
def test_claims_within_others_and_one_instead(payload: object, name: str | None) -> None:
    names = Names(("user.info", "id"), "u-", ("client_id",), "service-")
    assert principal_name(jwt(payload), names) == name


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,\x01auth=Bearer abc\x01\x01\x01",
        b"n,,\x01\x01",
        b"n,,\x01Auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer\tabc\x01\x01",
        b"n,,\x01auth= Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer a=b\x01\x01",
        b"n,,\x01auth=Bearer abc\x01auth=Basic x\x01\x01",
        b"n,a==,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer \xc3\xbc\x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
    ],
)
def test_malformed_oauthbearer_first_message_has_no_token(sent: bytes) -> None:
    assert token_in(sent) is None


@pytest.mark.parametrize(
    ("payload", "name"),
    [
        ({"sub": "alice"}, "alice"),
        ({"sub": " alice\n"}, "alice"),
        ({"sub": "\u2003alice"}, "\u2003alice"),
        ({"sub": "a" * 32768}, "a" * 32768),
        ({"sub": "a/*+%<default>b\0c"}, "a/*+%<default>b\0c"),
        (b'{"sub": "alice", "sub": "\\ud83d\\ude00"}', "😀"),
        ({"sub": ""}, None),
        ({"sub": " \t"}, None),
        ({"sub": 7}, None),
        ({"sub": None}, None),
        ({"sub": ["alice"]}, None),
        ({"user": "alice"}, None),
        (b'{"sub": "\\ud83d"}', None),
        (b'{"sub": "al\xffice"}', None),
        ('{"sub": "alice"}'.encode("utf-16"), None),
        (b"[" * 100_000, None),
        (b'{"exp": %s, "sub": "alice"}' % (b"9" * 10_000), None),
        (["alice"], None),
        (b"", None),
    ],
)
def test_jwt_sub_claim_gives_trimmed_name_or_none(payload: object, name: str | None) -> None:
    assert principal_name(jwt(payload), Names()) == name


def test_an_unsecured_name_is_not_trimmed() -> None:
    assert principal_name(jwt({"sub": " alice "}, "none"), Names()) == " alice "
    assert principal_name(jwt({"sub": "  "}, "none"), Names()) is None


@pytest.mark.parametrize("token", ["", "opaque", "a.b", "a.b.c.d.e", "...", "a.b.c", f"x.{section({'sub': 'a'})}="])
def test_token_that_is_no_jwt_gives_no_name(token: str) -> None:
    assert principal_name(token, Names()) is None


def test_the_payload_alone_is_read_and_the_claim_can_be_another() -> None:
    assert principal_name(f"!.{section({'azp': 'svc', 'sub': 'alice'})}.", Names(("azp",))) == "svc"


@given(st.binary(max_size=80), st.text(max_size=20))
def test_any_bytes_and_any_payload_claim_something_or_nothing(token: bytes, payload: str) -> None:
    mechanism = OAuthBearer(Names())
    mechanism.from_client(token)
    assert mechanism.claim is None
    assert not mechanism.from_broker(b"{}")
    mechanism.from_client(message(f"e30.{section(payload.encode('utf-8', 'surrogatepass'))}.x"))
    assert mechanism.claim is None or mechanism.claim.name


@given(st.text(min_size=1))
def test_any_name_comes_through_its_token(name: str) -> None:
    expected = name.strip("".join(map(chr, range(33))))
    assert principal_name(jwt({"sub": name}), Names()) == (expected or None)


@pytest.mark.parametrize(("authzid", "claim"), [("", Claim("al")), ("al", Claim("al")), ("admin", None)])
def test_an_authorization_id_must_be_the_name(authzid: str, claim: Claim | None) -> None:
    mechanism = OAuthBearer(Names())
    mechanism.from_client(message(jwt({"sub": "al"}), authzid))
    assert mechanism.claim == claim


def test_success_is_an_empty_answer() -> None:
    mechanism = OAuthBearer(Names())
    mechanism.from_client(message(jwt({"sub": "alice"})))
    assert mechanism.from_broker(b"")
    assert mechanism.claim == Claim("alice")


def test_the_claim_of_a_refused_token_is_gone_when_another_follows() -> None:
    mechanism = OAuthBearer(Names())
    mechanism.from_client(message(jwt({"sub": "admin"})))
    assert not mechanism.from_broker(b'{"status":"invalid_token"}')
    mechanism.from_client(message(jwt({"sub": "mallory"})))
    assert mechanism.from_broker(b"")
    assert mechanism.claim == Claim("mallory")


def test_two_pipelined_oauthbearer_tokens_give_no_claim() -> None:
    mechanism = OAuthBearer(Names())
    mechanism.from_client(message(jwt({"sub": "mallory"})))
    mechanism.from_client(message(jwt({"sub": "admin"})))
    assert mechanism.from_broker(b"")
    assert mechanism.claim is None
