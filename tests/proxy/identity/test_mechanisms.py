import gc
from types import FunctionType

import pytest

from proxy.identity.mechanisms.mechanism import Claim, Mechanism
from proxy.identity.mechanisms.oauthbearer import Names
from proxy.identity.mechanisms.registry import NAMING, Mechanisms
from tests.proxy.identity.test_oauthbearer import jwt, message


@pytest.mark.parametrize("name", [*sorted(NAMING), "GSSAPI"])
def test_supported_mechanism_begins_new_exchange_each_time(name: str) -> None:
    mechanisms = Mechanisms()
    first, second = mechanisms.begin(name), mechanisms.begin(name)
    assert first is not None
    assert first is not second


@pytest.mark.parametrize("name", ["", "plain", "SCRAM-SHA-1", "AWS_MSK_IAM2", "GSSAPI "])
def test_unsupported_mechanism_name_begins_no_exchange(name: str) -> None:
    assert Mechanisms().begin(name) is None


def test_oauthbearer_user_is_read_from_configured_claim() -> None:
    mechanism = Mechanisms(Names(("azp",))).begin("OAUTHBEARER")
    assert mechanism is not None
    mechanism.from_client(message(jwt({"sub": "alice", "azp": "svc"})))
    assert mechanism.claim == Claim("svc")


@pytest.mark.parametrize("answers", [[b"\x60", b"\x60", b"\x60"], [b"\x60", b"\x60", b""], [b""]])
def test_gssapi_without_one_is_over_at_the_third_answer_or_an_empty_one(answers: list[bytes]) -> None:
    mechanism = Mechanisms().begin("GSSAPI")
    assert mechanism is not None
    mechanism.from_client(b"\x60\x82")
    assert [mechanism.from_broker(answer) for answer in answers] == [False] * (len(answers) - 1) + [True]
    assert mechanism.claim is None


CANARY = "canary-7c1f"
SECRETS = {
    "PLAIN": [f"\0alice\0{CANARY}".encode()],
    "SCRAM-SHA-256": [f"n,,n=alice,r={CANARY}".encode(), f"c=biws,r={CANARY},p={CANARY}".encode()],
    "OAUTHBEARER": [message(jwt({"sub": "alice", "jti": CANARY}) + CANARY)],
    "GSSAPI": [CANARY.encode()],
}


@pytest.mark.parametrize("name", SECRETS)
def test_no_secret_is_kept(name: str) -> None:
    mechanism = Mechanisms().begin(name)
    assert mechanism is not None
    for token in SECRETS[name]:
        mechanism.from_client(token)
        mechanism.from_broker(CANARY.encode())
    assert CANARY not in kept_by(mechanism)


def kept_by(mechanism: Mechanism) -> str:
    """Everything that can be reached from it, its classes and modules excepted, and how it prints itself."""
    seen: list[object] = [mechanism]
    for value in seen:
        found = value.__closure__ or () if isinstance(value, FunctionType) else gc.get_referents(value)
        if not isinstance(value, type):
            seen += [held for held in found if not any(held is known for known in seen)]
    return repr([value for value in seen if isinstance(value, str | bytes)]) + repr(mechanism) + repr(mechanism.claim)
