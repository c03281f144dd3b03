"""The ways to be taken for someone else, each tried at a session between two fake wires; none may escalate.

Charges are read from the engine, so that what counts is whom the bytes were charged to, not what an attribute says.
The same against real brokers: tests/integration/test_identity_attacks.py.
"""

import base64
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.identity.principal import RESERVED, UNNAMED, of_mechanism, token_holder
from proxy.identity.sasl import LoginState
from quotas.engine import Engine, Window
from quotas.entities import ANONYMOUS, Default, Entity
from quotas.names import counted_as
from quotas.policy import Policy
from tests.proxy.playbook import (
    PRODUCER,
    QUESTION,
    FakeWire,
    Play,
    authenticate,
    authenticate_answer,
    frame,
    handshake,
    handshake_answer,
    list_offsets,
    list_offsets_answer,
    produce,
    produce_answer,
    serves,
)

EVERY_USER = Policy({Entity(user=Default.DEFAULT): {PRODUCER: 1e12}})
PLAIN, SCRAM, OAUTHBEARER, GSSAPI = "PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI"
ALICE = b"\0alice\0alice-secret"
BAD_PASSWORD, ILLEGAL_SASL_STATE, UNSUPPORTED_MECHANISM = 58, 34, 33
SERVER_FIRST = b"r=abcdef,s=c2FsdA==,i=4096"
SERVER_FINAL = b"v=c2lnbmF0dXJl"


def stranger(**options: object) -> Play:
    """A client that nobody knows yet, on a listener that demands SASL."""
    return Play(authenticated=False, policy=EVERY_USER, **options)  # type: ignore[arg-type]  # options of Play


def accepted(mechanism: str, version: int = 1, **options: object) -> Play:
    """One whose mechanism the broker has accepted."""
    play = stranger(**options)
    play.from_client(handshake(1, mechanism, version))
    play.from_broker(handshake_answer(1))
    return play


def known_as_alice(lifetime_ms: int = 0) -> Play:
    play = accepted(PLAIN)
    play.from_client(authenticate(2, ALICE))
    play.from_broker(authenticate_answer(2, lifetime_ms=lifetime_ms))
    assert play.user == "alice"
    return play


def charged(play: Play) -> dict[str, float]:
    return {usage.user: usage.charged_total for usage in play.engine.usage(play.loop.now_ms) if usage.charged_total}


def size(request: bytes) -> int:
    return len(request) - 4


def jwt(**claims: object) -> bytes:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    return b"n,,\1auth=Bearer " + f"{part({'alg': 'none'})}.{part(claims)}.".encode() + b"\1\1"


def scram_first(name: str, extensions: str = "", authzid: str = "") -> bytes:
    return f"n,{f'a={authzid}' if authzid else ''},n={name},r=abc{extensions}".encode()


def scram(first: bytes, final: bytes = SERVER_FINAL) -> Play:
    """A whole exchange that the broker accepts with ``final``."""
    play = accepted(SCRAM)
    play.from_client(authenticate(2, first))
    play.from_broker(authenticate_answer(2, SERVER_FIRST))
    assert play.user == ANONYMOUS
    play.from_client(authenticate(3, b"c=biws,r=abcdef,p=cHJvb2Y="))
    assert play.user == ANONYMOUS
    play.from_broker(authenticate_answer(3, final))
    return play


class TestOnePipelined:
    """1: what stands behind SaslAuthenticate counts for nobody new until the success has passed."""

    def test_ordinary_requests_wait_for_the_success_and_then_are_charged_to_the_new_user(self) -> None:
        play = accepted(PLAIN)
        login, record = authenticate(2, ALICE), produce(3, 100)
        assert play.from_client(login + record) == login
        assert (play.user, charged(play)) == (ANONYMOUS, {})
        play.from_broker(authenticate_answer(2))
        assert play.broker.take() == record
        assert charged(play) == {"alice": size(record)}

    def test_pipelined_produce_is_not_charged_to_refused_user(self) -> None:
        play = accepted(PLAIN)
        record = produce(3, 100)
        play.from_client(authenticate(2, b"\0admin\0guess") + record)
        play.from_broker(authenticate_answer(2, error_code=BAD_PASSWORD))
        assert charged(play) == {}

    def test_a_second_token_is_not_answered_by_the_success_of_the_first(self) -> None:
        play = accepted(PLAIN)
        play.from_client(authenticate(2, ALICE) + authenticate(3, b"\0admin\0guess"))
        play.from_broker(authenticate_answer(2))
        assert play.user == "alice"
        play.from_broker(authenticate_answer(3, error_code=ILLEGAL_SASL_STATE))
        assert play.user == "alice"

    def test_produce_sent_before_reauthentication_stays_charged_to_old_user(self) -> None:
        play = known_as_alice(lifetime_ms=60_000)
        record = produce(3, 100)
        play.from_client(record + handshake(4, PLAIN))
        play.from_broker(produce_answer(3) + handshake_answer(4))
        play.from_client(authenticate(5, b"\0bob\0secret") + record)
        assert charged(play) == {"alice": size(record)}


class TestTwoRefused:
    """2: an answer that is not a success adopts nobody."""

    @pytest.mark.parametrize("error_code", [BAD_PASSWORD, ILLEGAL_SASL_STATE, UNSUPPORTED_MECHANISM, -1])
    def test_plain_login_with_error_code_stays_anonymous(self, error_code: int) -> None:
        play = accepted(PLAIN)
        play.from_client(authenticate(2, ALICE))
        play.from_broker(authenticate_answer(2, error_code=error_code))
        assert (play.user, play.session.sasl.state) == (ANONYMOUS, LoginState.FAILED)
        assert play.outcomes == [(PLAIN, False)]

    def test_oauthbearer_refuses_with_error_0_and_a_json_token(self) -> None:
        play = accepted(OAUTHBEARER)
        play.from_client(authenticate(2, jwt(sub="admin")))
        play.from_broker(authenticate_answer(2, b'{"status":"invalid_token"}'))
        assert (play.user, play.session.authenticated) == (ANONYMOUS, False)
        play.from_client(authenticate(3, b"\1"))
        play.from_broker(authenticate_answer(3, error_code=BAD_PASSWORD))
        assert (play.user, play.outcomes) == (ANONYMOUS, [(OAUTHBEARER, False)])

    @pytest.mark.parametrize("mechanism", [PLAIN, "SCRAM-SHA-512", "OAUTHBEARER", GSSAPI, "CUSTOM"])
    def test_an_answer_to_an_ordinary_request_is_no_success_where_the_broker_has_refused(self, mechanism: str) -> None:
        """A broker answers it, with error 34, also when it has refused: before it closes."""
        play = accepted(mechanism)
        if mechanism == "OAUTHBEARER":
            play.from_client(authenticate(2, jwt(sub="admin")))
            play.from_broker(authenticate_answer(2, b'{"status":"invalid_token"}'))
        assert play.from_client(produce(3, 100)) == QUESTION
        assert serves(play, authenticated=False) == b""
        assert play.session.closed
        assert [error.cause for _, error in play.rejected] == ["not_authenticated"]
        assert charged(play) == {}
        assert (play.user, play.session.authenticated) == (ANONYMOUS, False)

    def test_scram_login_with_error_token_stays_anonymous(self) -> None:
        assert scram(scram_first("admin"), final=b"e=other-error").user == ANONYMOUS

    def test_scram_is_not_over_with_the_first_answer(self) -> None:
        play = accepted(SCRAM)
        play.from_client(authenticate(2, scram_first("admin")))
        play.from_broker(authenticate_answer(2, SERVER_FINAL))
        assert play.user == ANONYMOUS

    def test_token_without_accepted_mechanism_is_charged_to_anonymous(self) -> None:
        """On a listener without SASL: the broker says so with error 34, and then serves the client as anonymous."""
        play = Play(policy=EVERY_USER)
        play.from_client(handshake(1, PLAIN))
        play.from_broker(handshake_answer(1, ILLEGAL_SASL_STATE))
        play.from_client(authenticate(2, b"\0admin\0x"))
        play.from_broker(authenticate_answer(2, error_code=ILLEGAL_SASL_STATE))
        assert play.from_client(produce(4, 100)) == QUESTION
        assert serves(play) == produce(4, 100)
        assert list(charged(play)) == [ANONYMOUS]
        assert play.session.authenticated

    def test_connection_closed_before_login_answer_stays_anonymous(self) -> None:
        play = accepted(PLAIN)
        play.from_client(authenticate(2, ALICE))
        play.session.close()
        assert play.user == ANONYMOUS


class TestThreeScramNames:
    """3: the name is what the broker makes of it."""

    @pytest.mark.parametrize(
        ("written", "name"), [("a=2Cb", "a,b"), ("a=3Db", "a=b"), ("a=3D2C", "a=2C"), ("=3D3D", "=3D")]
    )
    def test_escaped_scram_name_is_decoded_once(self, written: str, name: str) -> None:
        assert scram(scram_first(written)).user == name

    @pytest.mark.parametrize("first", [scram_first("bob", authzid="admin"), scram_first("a=2cb"), b"y,,n=a,r=b", b""])
    def test_malformed_name_is_charged_to_the_mechanism(self, first: bytes) -> None:
        assert scram(first).user == of_mechanism(SCRAM)


class TestFourDelegationToken:
    """4: the id of a delegation token is no user, whatever it is called."""

    def test_token_id_equal_to_user_name_is_not_that_user(self) -> None:
        play = scram(scram_first("admin", ",tokenauth=true"))
        assert play.user == token_holder("admin") != "admin"

    def test_delegation_token_is_charged_to_owner_named_by_cluster(self) -> None:
        play = scram(scram_first("id", ",tokenauth=TRUE"))
        [(token_id, then)] = play.asked_for
        then("carol")
        assert (token_id, play.user) == ("id", "carol")

    def test_delegation_token_owner_is_not_looked_up_without_success(self) -> None:
        assert not scram(scram_first("id", ",tokenauth=true"), final=b"e=no").asked_for

    def test_an_owner_who_is_named_too_late_is_not_adopted(self) -> None:
        play = scram(scram_first("id", ",tokenauth=true"))
        [(_, then)] = play.asked_for
        play.session.sasl.session_lifetime_ms = 1
        play.from_client(handshake(4, SCRAM))
        play.from_broker(handshake_answer(4, BAD_PASSWORD))
        then("carol")
        assert play.user == ANONYMOUS


class TestFiveForgedToken:
    """5: what a bearer token says of its holder counts when the broker has accepted the token."""

    def test_forged_sub_claim_refused_by_broker_stays_anonymous(self) -> None:
        play = accepted(OAUTHBEARER)
        play.from_client(authenticate(2, jwt(sub="admin")))
        assert play.user == ANONYMOUS
        play.from_broker(authenticate_answer(2, error_code=BAD_PASSWORD))
        assert play.user == ANONYMOUS

    def test_configured_sub_claim_names_user_instead_of_sub(self) -> None:
        play = accepted(OAUTHBEARER, sub_claim="email")
        play.from_client(authenticate(2, jwt(sub="admin", email="bob@example.com")))
        play.from_broker(authenticate_answer(2))
        assert play.user == "bob@example.com"


class TestSixUnreadable:
    """6: who is authenticated in a way that does not show his name is nobody's namesake."""

    def test_gssapi_login_without_keytab_is_charged_to_the_mechanism(self) -> None:
        play = accepted(GSSAPI)
        for number, token in ((2, b"\x60\x82ticket"), (3, b""), (4, b"admin")):
            play.from_client(authenticate(number, token))
            assert play.user == ANONYMOUS
            play.from_broker(authenticate_answer(number, b"" if number == 4 else b"token"))
        assert (play.user, play.session.authenticated) == (of_mechanism(GSSAPI), True)

    def test_unknown_mechanism_is_charged_to_it_after_answered_request(self) -> None:
        play = accepted("CUSTOM")
        play.from_client(authenticate(2, b'{"user":"admin"}'))
        play.from_broker(authenticate_answer(2))
        assert (play.user, play.session.authenticated) == (ANONYMOUS, False)
        assert play.from_client(list_offsets(3)) == QUESTION
        assert (serves(play), play.session.authenticated) == (list_offsets(3), True)
        assert (play.user, play.outcomes) == (of_mechanism("CUSTOM"), [("CUSTOM", True)])

    @pytest.mark.parametrize("user", ["", "alice"])
    def test_empty_user_name_is_charged_as_unnamed(self, user: str) -> None:
        """Whoever says so, a user without a name has one: to the quotas, an empty user is none at all."""
        play = known_as_alice()
        play.session.identified(user)
        play.from_client(produce(3, 100))
        assert charged(play) == {user or UNNAMED: size(produce(3, 100))}

    def test_a_user_who_calls_himself_as_they_are_called(self) -> None:
        play = accepted(PLAIN)
        play.from_client(authenticate(2, f"\0{of_mechanism(GSSAPI)}\0x".encode()))
        play.from_broker(authenticate_answer(2))
        assert play.user == RESERVED


class TestEightReauthentication:
    """8: another user's name is not adopted at a re-authentication before the broker has agreed, and it never does."""

    def test_the_old_user_stays_until_the_answer(self) -> None:
        play = known_as_alice(lifetime_ms=60_000)
        play.from_client(handshake(3, PLAIN))
        play.from_broker(handshake_answer(3))
        play.from_client(authenticate(4, b"\0admin\0x"))
        assert play.user == "alice"
        play.from_broker(authenticate_answer(4, error_code=BAD_PASSWORD))
        assert (play.user, play.session.sasl.state) == (ANONYMOUS, LoginState.FAILED)

    def test_an_ordinary_answer_proves_nothing_meanwhile(self) -> None:
        play = known_as_alice(lifetime_ms=60_000)
        play.from_client(handshake(3, PLAIN))
        play.from_broker(handshake_answer(3))
        play.from_client(list_offsets(4) + authenticate(5, b"\0admin\0x"))
        play.from_broker(list_offsets_answer(4))
        assert play.user == "alice"

    def test_a_second_handshake_without_a_lifetime_changes_nothing(self) -> None:
        play = known_as_alice()
        play.from_client(handshake(3, PLAIN))
        play.from_broker(handshake_answer(3, ILLEGAL_SASL_STATE))
        assert (play.user, play.session.sasl.state) == ("alice", LoginState.AUTHENTICATED)


class TestNineRawFrames:
    """9: after SaslHandshake v0 tokens have no header, and a token is no request."""

    def test_a_token_that_looks_like_a_request_is_a_token(self) -> None:
        play = accepted(PLAIN, version=0)
        disguised = produce(7, 100)
        assert play.from_client(disguised) == disguised
        assert (charged(play), play.user) == ({}, ANONYMOUS)

    def test_requests_behind_the_token_wait_and_are_charged_to_the_new_user(self) -> None:
        play = accepted(PLAIN, version=0)
        record = produce(2, 100)
        assert play.from_client(frame(ALICE) + record) == frame(ALICE)
        assert play.user == ANONYMOUS
        assert play.from_broker(frame(b"")) == frame(b"")
        assert (play.user, play.broker.take()) == ("alice", record)
        assert charged(play) == {"alice": size(record)}
        assert play.from_broker(produce_answer(2)) == produce_answer(2)

    @pytest.mark.parametrize("cut", [lambda data: [data[i : i + 1] for i in range(len(data))], lambda data: [data]])
    def test_raw_scram_frames_in_any_pieces_authenticate_the_user(self, cut: Callable[[bytes], list[bytes]]) -> None:
        play = accepted(SCRAM, version=0)
        for client, broker in ((scram_first("bob"), SERVER_FIRST), (b"c=biws,r=abcdef,p=eA==", SERVER_FINAL)):
            assert b"".join(play.from_client(piece) for piece in cut(frame(client))) == frame(client)
            assert play.user == ANONYMOUS
            assert b"".join(play.from_broker(piece) for piece in cut(frame(broker))) == frame(broker)
        assert play.user == "bob"
        assert play.from_client(list_offsets(2)) == list_offsets(2)
        assert play.from_broker(list_offsets_answer(2)) == list_offsets_answer(2)

    def test_the_last_token_of_gssapi_is_not_answered_and_the_next_request_ends_the_exchange(self) -> None:
        play = accepted(GSSAPI, version=0)
        play.from_client(frame(b"\x60\x82ticket"))
        play.from_broker(frame(b"token"))
        last = frame(b"\5\4last")
        assert play.from_client(last + list_offsets(2)) == last + QUESTION
        assert play.session.sasl.raw is False
        assert play.user == ANONYMOUS
        assert serves(play) == list_offsets(2)
        assert (play.user, play.session.authenticated) == (of_mechanism(GSSAPI), True)

    def test_tokens_without_end_close_the_connection(self) -> None:
        play = accepted("X", version=0)
        for _ in range(40):
            play.from_client(frame(b"more"))
            play.from_broker(frame(b"more"))
        assert play.session.closed

    def test_a_token_of_a_gigabyte_closes_the_connection(self) -> None:
        play = accepted(PLAIN, version=0)
        play.from_client(b"\x40\0\0\0")
        assert play.session.closed

    def test_a_raw_answer_that_nobody_asked_for_closes_the_connection(self) -> None:
        play = accepted(PLAIN, version=0)
        play.from_broker(frame(b""))
        assert (play.session.closed, play.user) == (True, ANONYMOUS)


class TestTenPlain:
    """10: exactly three parts."""

    @pytest.mark.parametrize(
        "token",
        [b"\0alice\0x\0", b"\0\0alice\0x", b"alice\0x", b"alice", b"", b"\0\0\0", b"admin\0alice\0x", b"\0al\xffce\0x"],
    )
    def test_malformed_plain_token_is_charged_to_the_mechanism(self, token: bytes) -> None:
        play = accepted(PLAIN)
        play.from_client(authenticate(2, token))
        play.from_broker(authenticate_answer(2))
        assert play.user == of_mechanism(PLAIN)


class TestElevenNames:
    """11: a name is a name, whatever is in it."""

    @pytest.mark.parametrize("name", ["<default>", "/", "*", "+", "%", "a/b", "User:alice", ANONYMOUS, "ä" * 16_000])
    def test_unusual_user_names_are_charged_to_their_own_counter(self, name: str) -> None:
        play = accepted(PLAIN)
        play.worker.unauthenticated_request_limit = play.session.requests.splitter.limit = 100_000
        play.from_client(authenticate(2, f"\0{name}\0x".encode()))
        play.from_broker(authenticate_answer(2))
        assert play.user == counted_as(name)
        record = produce(3, 10)
        play.from_client(record)
        assert charged(play) == {counted_as(name): size(record)}

    def test_the_user_called_default_has_not_the_quota_of_the_default_user(self) -> None:
        policy = Policy({Entity(user=Default.DEFAULT): {PRODUCER: 1.0}, Entity(user="<default>"): {PRODUCER: 1e12}})
        engine = Engine(policy, Window())
        assert engine.resolve("<default>", "app", PRODUCER, 1).limit == 1e12
        assert engine.resolve("default", "app", PRODUCER, 1).limit == 1.0

    @pytest.mark.parametrize("name", ["", "\0", "a\0b", "\ud800"])
    def test_unusual_bearer_names_are_kept_or_charged_to_mechanism(self, name: str) -> None:
        play = accepted(OAUTHBEARER)
        play.from_client(authenticate(2, jwt(sub=name)))
        play.from_broker(authenticate_answer(2))
        assert play.user == name or play.user.startswith(f"{of_mechanism(OAUTHBEARER)}:")
        assert play.user.encode()


class TestTwelveRacing:
    """12: a connection has its own user, whatever is going on beside it."""

    @given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40))
    def test_interleaved_logins_sharing_an_engine_keep_users_apart(self, turns: list[tuple[int, bool]]) -> None:
        engine = Engine(EVERY_USER, Window())
        plays = [stranger(engine=engine) for _ in range(4)]
        scripts = [conversation(f"user{number}") for number in range(len(plays))]
        for number, _ in [*turns, *((number, True) for number in range(len(plays)) for _ in range(5))]:
            for side, data in scripts[number][:1]:
                del scripts[number][:1]
                (plays[number].from_client if side == "client" else plays[number].from_broker)(data)
            assert plays[number].user in {ANONYMOUS, f"user{number}"}
        record = size(produce(3, 100))
        assert {play.user for play in plays} == {f"user{number}" for number in range(len(plays))}
        assert charged(plays[0]) == {f"user{number}": record for number in range(len(plays))}


def conversation(user: str) -> list[tuple[str, bytes]]:
    return [
        ("client", handshake(1, PLAIN)),
        ("broker", handshake_answer(1)),
        ("client", authenticate(2, f"\0{user}\0x".encode())),
        ("broker", authenticate_answer(2)),
        ("client", produce(3, 100)),
    ]


def test_no_wire_is_written_to_by_what_is_only_observed() -> None:
    play = known_as_alice()
    assert isinstance(play.client, FakeWire)
    assert (play.client.take(), play.broker.take()) == (b"", b"")
