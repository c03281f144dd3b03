"""Clients whose mechanism shows a credential and no user: each has a counter, and none has one for each connection."""

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable

import pytest

from proxy.identity.credentials import KEPT_MS, MOST, Credentials
from proxy.identity.mechanisms.aws_msk_iam import access_key_of_url, claim_in
from proxy.identity.mechanisms.mechanism import Claim
from quotas.engine import Engine, Window
from quotas.entities import Default, Entity, Group
from quotas.networks import network_of_peer
from quotas.policy import Policy
from tests.proxy.playbook import (
    KIB,
    PRODUCER,
    FakeLoop,
    Play,
    authenticate,
    authenticate_answer,
    handshake,
    handshake_answer,
    produce,
    produce_answer,
    throttle_of,
)

IAM, BEARER = "AWS_MSK_IAM", "OAUTHBEARER"
KEY, OTHER_KEY = "AKIAIOSFODNN7EXAMPLE", "ASIAIOSFODNN7EXAMPLF"
SCOPE = "20201022/us-east-1/kafka-cluster/aws4_request"
SLOW = Policy({Entity(user=Default.DEFAULT): {PRODUCER: KIB}})
LARGE = 20 * KIB


def signed(key: str = KEY, **more: str) -> bytes:
    """What aws-msk-iam-auth sends."""
    said = {
        "version": "2020_10_22",
        "host": "b-1.example.kafka.us-east-1.amazonaws.com",
        "user-agent": "kafka-client",
        "action": "kafka-cluster:Connect",
        "x-amz-algorithm": "AWS4-HMAC-SHA256",
        "x-amz-credential": f"{key}/{SCOPE}",
        "x-amz-date": "20201022T000000Z",
        "x-amz-signedheaders": "host",
        "x-amz-expires": "900",
        "x-amz-signature": "0123",
    }
    return json.dumps(said | more).encode()


def signed_url(key: str = KEY, signature: str = "0123", more: str = "") -> str:
    """What aws-msk-iam-sasl-signer makes a bearer token of."""
    url = (
        "https://kafka.us-east-1.amazonaws.com/?Action=kafka-cluster%3AConnect&X-Amz-Algorithm=AWS4-HMAC-SHA256"
        f"&X-Amz-Credential={key}%2F{SCOPE.replace('/', '%2F')}&X-Amz-Date=20201022T000000Z&X-Amz-Expires=900"
        f"&X-Amz-SignedHeaders=host&X-Amz-Signature={signature}{more}&User-Agent=signer"
    )
    return urlsafe_b64encode(url.encode()).decode().rstrip("=")


def bearer(token: str) -> bytes:
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


def log_in(play: Play, mechanism: str, token: bytes, lifetime_ms: int = 0) -> str:
    play.from_client(handshake(1, mechanism))
    play.from_broker(handshake_answer(1))
    play.from_client(authenticate(2, token))
    play.from_broker(authenticate_answer(2, b"" if mechanism == BEARER else b"{}", lifetime_ms=lifetime_ms))
    return play.user


class Front:
    """Connections to one listener."""

    def __init__(self, most: int = 4, policy: Policy = SLOW) -> None:
        self.policy = policy
        self.engine = Engine(policy, Window())
        self.loop = FakeLoop()
        self.shared: list[tuple[str, bool]] = []
        self.credentials = Credentials(most, self.loop.clock, lambda *login: self.shared.append(login))

    def client(self, mechanism: str, token: bytes, peer: str = "10.0.0.1:5") -> Play:
        play = Play(
            authenticated=False, engine=self.engine, policy=self.policy, credentials=self.credentials, peer=peer
        )
        log_in(play, mechanism, token)
        return play


# --------------------------------------------------------------------------------------------------- what is read


def test_access_key_is_read_from_signed_token() -> None:
    assert claim_in(signed()) == Claim(KEY, is_credential=True)
    assert access_key_of_url(signed_url()) == KEY


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b'{"x-amz-credential": 1}',
        signed("short"),
        signed(f"{KEY}/x"),
        signed("akiaiosfodnn7example"),
        signed()[:-1] + f', "x-amz-credential": "{OTHER_KEY}/{SCOPE}"}}'.encode(),
        signed(**{"X-Amz-Credential": f"{OTHER_KEY}/{SCOPE}"}),
        b'[["x-amz-credential", "%s"]]' % f"{KEY}/{SCOPE}".encode(),
        b"[" * 60_000,
    ],
)
def test_ambiguous_signed_token_gives_no_access_key(message: bytes) -> None:
    assert claim_in(message) is None


@pytest.mark.parametrize(
    "token",
    [
        "",
        "opaque",
        "a.b.c",
        "\N{LATIN SMALL LETTER U WITH DIAERESIS}",
        signed_url(more=f"&X-Amz-Credential={OTHER_KEY}%2F{SCOPE}"),
        signed_url(more=f"&x-amz-credential={OTHER_KEY}%2F{SCOPE}"),
        urlsafe_b64encode(f"http://x/?X-Amz-Credential={KEY}/{SCOPE}".encode()).decode(),
        urlsafe_b64encode(b"https://[").decode(),
    ],
)
def test_bearer_token_without_signed_url_gives_no_access_key(token: str) -> None:
    assert access_key_of_url(token) is None


# ------------------------------------------------------------------------------------------------- whom it makes


@pytest.mark.parametrize(
    ("mechanism", "token", "user"),
    [
        (IAM, signed(), f"sluice:AWS_MSK_IAM:{KEY}"),
        (IAM, b"{}", "sluice:AWS_MSK_IAM"),
        (BEARER, bearer(signed_url()), f"sluice:OAUTHBEARER:{KEY}"),
        (BEARER, bearer("opaque"), "sluice:OAUTHBEARER:6d229884c1268bb0"),
        (BEARER, b"junk", "sluice:OAUTHBEARER"),
    ],
)
def test_client_user_is_mechanism_with_key_or_token_digest(mechanism: str, token: bytes, user: str) -> None:
    assert Front().client(mechanism, token).user == user


@pytest.mark.parametrize(("mechanism", "make"), [(IAM, signed), (BEARER, lambda key: bearer(signed_url(key)))])
def test_access_key_is_not_throttled_for_bytes_of_another_key(mechanism: str, make: Callable[[str], bytes]) -> None:
    front = Front()
    one, two = (front.client(mechanism, make(key)) for key in (KEY, OTHER_KEY))
    one.from_client(produce(3, LARGE))
    assert throttle_of(one.from_broker(produce_answer(3))) > 5000
    assert two.from_client(produce(3, 100)) == produce(3, 100)
    assert throttle_of(two.from_broker(produce_answer(3))) == 0
    again = front.client(mechanism, make(KEY))
    assert again.from_client(produce(3, 100)) == b"", "the same key on another connection"


def test_a_claim_that_the_broker_refuses_names_nobody() -> None:
    front = Front()
    play = Play(authenticated=False, engine=front.engine, policy=SLOW, credentials=front.credentials)
    play.from_client(handshake(1, IAM))
    play.from_broker(handshake_answer(1))
    play.from_client(authenticate(2, signed()))
    play.from_broker(authenticate_answer(2, error_code=58))
    assert (play.user, play.claimed, front.credentials._named) == ("ANONYMOUS", [None], {})


def test_a_token_for_each_connection_gains_little() -> None:
    """Four of an address have a counter of their own, and all others one together."""
    front = Front()
    users = set()
    passed = 0
    for number in range(50):
        play = front.client(BEARER, bearer(f"token-{number}"))
        users.add(play.user)
        passed += len(play.from_client(produce(3, LARGE)))
        play.session.close()
    assert len(users) == 5
    assert "sluice:OAUTHBEARER" in users
    assert passed == 5 * len(produce(3, LARGE))
    assert front.shared == [(BEARER, True)] * 46


def test_credential_limit_applies_to_each_address_separately() -> None:
    front = Front(most=1)
    assert front.client(BEARER, bearer("a"), "10.0.0.1:5").user != "sluice:OAUTHBEARER"
    assert front.client(BEARER, bearer("b"), "10.0.0.1:6").user == "sluice:OAUTHBEARER"
    assert front.client(BEARER, bearer("c"), "10.0.0.2:5").user != "sluice:OAUTHBEARER"
    assert front.client(BEARER, bearer("a"), "10.0.0.3:5").user == front.client(BEARER, bearer("a")).user
    nobody = Front(most=0)
    assert nobody.client(BEARER, bearer("a")).user == "sluice:OAUTHBEARER"


def test_a_place_is_free_again_an_hour_after_its_last_connection() -> None:
    front = Front(most=1)
    first = front.client(BEARER, bearer("a"))
    front.loop.advance(2 * KEPT_MS)
    assert front.client(BEARER, bearer("b")).user == "sluice:OAUTHBEARER", "the first one is there still"
    first.session.close()
    first.session.close()
    front.loop.advance(KEPT_MS)
    assert front.client(BEARER, bearer("b")).user == "sluice:OAUTHBEARER"
    front.loop.advance(1)
    assert front.client(BEARER, bearer("b")).user != "sluice:OAUTHBEARER"


def test_all_names_together_have_a_bound() -> None:
    front = Front()
    for number in range(MOST + 10):
        front.credentials.user(BEARER, str(number), f"10.0.{number // 256}.{number % 256}:5")
    assert len(front.credentials._named) == MOST
    assert front.shared == [(BEARER, True)] * 10


def test_a_reauthentication_with_another_token_is_the_same_client() -> None:
    """A broker refuses another user there (KIP-368): what is new is the token."""
    front = Front()
    play = Play(authenticated=False, engine=front.engine, policy=SLOW, credentials=front.credentials)
    user = log_in(play, BEARER, bearer("first"), lifetime_ms=60_000)
    assert log_in(play, BEARER, bearer("second"), lifetime_ms=60_000) == user
    assert len(front.credentials._named) == 1
    play.session.close()
    assert [named.connections for named in front.credentials._named.values()] == [0]


@pytest.mark.parametrize(
    "policy",
    [
        Policy({Entity(user="sluice:OAUTHBEARER"): {PRODUCER: KIB}}),
        Policy({Entity(user=Group("bearers")): {PRODUCER: KIB}}, groups={"bearers": ("sluice:OAUTHBEARER",)}),
    ],
    ids=["user", "group"],
)
def test_a_quota_for_all_of_a_mechanism_still_holds_all_of_them_together(policy: Policy) -> None:
    front = Front(policy=policy)
    one, two = (front.client(BEARER, bearer(token)) for token in ("a", "b"))
    assert one.user != two.user
    one.from_client(produce(3, LARGE))
    assert throttle_of(one.from_broker(produce_answer(3))) > 5000
    assert two.from_client(produce(3, 100)) == b""


def test_quota_for_single_credential_overrides_that_of_mechanism() -> None:
    front = Front()
    user = front.client(BEARER, bearer("a")).user
    front = Front(
        policy=Policy({Entity(user="sluice:OAUTHBEARER"): {PRODUCER: KIB}, Entity(user=user): {PRODUCER: 1e9}})
    )
    play = front.client(BEARER, bearer("a"))
    play.from_client(produce(3, LARGE))
    assert throttle_of(play.from_broker(produce_answer(3))) == 0


@pytest.mark.parametrize(
    ("peer", "network"),
    [
        ("10.0.0.1:5", "10.0.0.1"),
        ("[2001:db8:1:2:3::4]:5", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:3::4:5", "2001:db8:1:2::/64"),
        ("[::ffff:10.0.0.1]:5", "10.0.0.1"),
        ("[fe80::1%eth0]:5", "fe80::/64"),
        ("somewhere:5", "somewhere"),
    ],
)
def test_peer_address_is_mapped_to_its_network(peer: str, network: str) -> None:
    assert network_of_peer(peer) == network
