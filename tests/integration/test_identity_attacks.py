"""Ways to be taken for somebody else, tried at a real broker. Those that need none: tests/proxy/identity."""

import time
from collections.abc import Callable, Iterator
from threading import Thread

import pytest
from kafka.admin import KafkaAdminClient, ScramMechanism, UserScramCredentialUpsertion

from quotas.names import counted_as
from tests.harness import sasl
from tests.harness.clients.kinds import AIOKAFKA
from tests.harness.clients.tasks import Administer
from tests.harness.guarded import Guarded, guarded_sluice
from tests.harness.load import produce_request
from tests.harness.polling import wait_until
from tests.harness.secure import REAUTH, SASL, SIGNED, SecureCluster
from tests.harness.sluice import SluiceProcess
from tests.harness.tokens import forged, unsecured_token
from tests.harness.wire import API_VERSIONS, Address, Connection, frame
from tests.integration.conftest import fresh_name
from tests.integration.identity import ANONYMOUS, EVERYBODY, authentications, produce, taken_for

pytestmark = pytest.mark.integration

TIMEOUT_S = 20.0
NAMESAKES_PASSWORD = "password of the namesake"
REFUSED = b'{"status":"invalid_token"}'
ONE_LOGIN_A_SECOND_S = 1.1  # a broker refuses a second one sooner (KIP-368)


class Stage:
    """The proxy in front of the secure cluster, a topic, and a client-id of the test's own."""

    def __init__(self, secure: SecureCluster, sluice: SluiceProcess, topic: str) -> None:
        self.secure = secure
        self.sluice = sluice
        self.topic = topic
        self.client_id = fresh_name("attacker")

    def connect(self, listener: str = SASL) -> Connection:
        return Connection(self.address(listener), TIMEOUT_S)

    def address(self, listener: str = SASL) -> Address:
        return self.sluice.listeners[listener].brokers[self.secure.cluster.node_ids[0]]

    def password(self, user: str) -> str:
        return self.secure.passwords[user]

    def produce(self, connection: Connection) -> None:
        produce(connection, self.topic, self.client_id)

    def request(self) -> bytes:
        return produce_request(self.topic, self.client_id, 400)

    def taken_for(self) -> set[str]:
        return taken_for(self.sluice, self.client_id)


@pytest.fixture(scope="module")
def guarded(secure_cluster: SecureCluster) -> Iterator[Guarded]:
    listeners = secure_cluster.listeners()
    with guarded_sluice(secure_cluster.cluster, quotas=f"quotas:\n{EVERYBODY}", listeners=listeners) as running:
        yield running


@pytest.fixture(scope="module")
def topic(secure_cluster: SecureCluster) -> str:
    name = fresh_name("attacked")
    secure_cluster.cluster.create_topic(name)
    return name


@pytest.fixture
def stage(secure_cluster: SecureCluster, guarded: Guarded, topic: str) -> Stage:
    return Stage(secure_cluster, guarded.sluice, topic)


def test_sasl_plain_login_is_charged_to_its_user(stage: Stage) -> None:
    """Who logs in is seen as himself."""
    with stage.connect() as connection:
        assert sasl.log_in_plain(connection, "alice", stage.password("alice")).error_code == sasl.SUCCESS
        stage.produce(connection)
    assert stage.taken_for() == {"alice"}


@pytest.mark.parametrize("log_in", [sasl.log_in_plain, sasl.log_in_scram], ids=["PLAIN", "SCRAM"])
def test_failed_login_is_closed_and_charged_to_nobody(
    stage: Stage, log_in: Callable[[Connection, str, str], sasl.Answer]
) -> None:
    failed = authentications(stage.sluice, "failed")
    with stage.connect() as connection:
        assert log_in(connection, "alice", "a guess").error_code == sasl.AUTHENTICATION_FAILED
        assert connection.is_closed_by_peer()
    assert authentications(stage.sluice, "failed") == failed + 1
    assert stage.taken_for() == set()


def test_requests_behind_failed_login_are_not_charged_to_the_user(stage: Stage) -> None:
    with stage.connect() as connection:
        sasl.handshake(connection, "PLAIN")
        token = sasl.authenticate_request(sasl.plain_token("alice", "a guess"))
        connection.send(token + stage.request() * 3)
        assert sasl.Answer.of(connection.receive()).error_code == sasl.AUTHENTICATION_FAILED
        assert connection.is_closed_by_peer()
    assert stage.taken_for() <= {ANONYMOUS}


def test_refused_token_with_error_code_0_is_a_failed_login(stage: Stage) -> None:
    """OAUTHBEARER refuses with error 0 and a JSON token, and waits for the client to admit it."""
    failed = authentications(stage.sluice, "failed", SIGNED)
    with stage.connect(SIGNED) as connection:
        answer = sasl.log_in_bearer(connection, stage.secure.stranger.token("alice"))
        assert (answer.error_code, answer.token) == (sasl.SUCCESS, REFUSED)
        assert sasl.authenticate(connection, b"\x01").error_code == sasl.AUTHENTICATION_FAILED
        assert connection.is_closed_by_peer()
    assert authentications(stage.sluice, "failed", SIGNED) == failed + 1
    assert stage.taken_for() == set()


def test_request_after_refused_token_is_never_authenticated(stage: Stage) -> None:
    """A request instead of that: a broker answers it, with error 34 in every partition, and closes then; the proxy asks
    whether the broker serves the client, and closes.
    """
    succeeded = authentications(stage.sluice, "succeeded", SIGNED)
    with stage.connect(SIGNED) as connection:
        assert sasl.log_in_bearer(connection, stage.secure.stranger.token("alice")).token == REFUSED
        refused = stage.sluice.metrics().value("sluice_frames_rejected_total", cause="not_authenticated")
        connection.send(stage.request() * 3)
        assert connection.rest() == b""
    assert stage.sluice.metrics().value("sluice_frames_rejected_total", cause="not_authenticated") == refused + 1
    assert authentications(stage.sluice, "succeeded", SIGNED) == succeeded
    assert stage.taken_for() <= {ANONYMOUS}


def test_client_ignoring_a_refused_token_is_never_authenticated(stage: Stage) -> None:
    """Such a one is aiokafka 0.14: it goes on with ordinary requests.

    Whether that counts as failed depends on who closes first, the client or the broker: it never asks for the refusal.
    """
    succeeded = authentications(stage.sluice, "succeeded", SIGNED)
    task = Administer(
        bootstrap=stage.sluice.listeners[SIGNED].bootstrap,
        client_id=stage.client_id,
        topic=fresh_name("never"),
        security=stage.secure.signed(stage.secure.stranger.token("alice")),
    )
    with AIOKAFKA.run(task) as client:
        assert "Error" in client.failure()
    assert authentications(stage.sluice, "succeeded", SIGNED) == succeeded


def test_delegation_token_id_and_namesake_user_stay_apart(stage: Stage) -> None:
    """A token of bob's; and a user who has the token's id as his name. Each is who he is, and neither the other."""
    with stage.connect() as connection:
        sasl.log_in_plain(connection, "bob", stage.password("bob"))
        token = sasl.create_delegation_token(connection)
    _create_user(stage, token.token_id, NAMESAKES_PASSWORD)
    with _connect_by_token(stage, token) as connection:
        stage.produce(connection)
    assert stage.taken_for() <= {"bob", f"sluice:token:{token.token_id}"}
    namesake = Stage(stage.secure, stage.sluice, stage.topic)
    with namesake.connect() as connection:
        assert sasl.log_in_scram(connection, token.token_id, NAMESAKES_PASSWORD).error_code == sasl.SUCCESS
        namesake.produce(connection)
    assert namesake.taken_for() == {token.token_id}
    for password, extensions in (
        (NAMESAKES_PASSWORD, "tokenauth=true"),
        (token.secret, ""),
    ):  # neither with the other's
        with stage.connect() as connection:
            answer = sasl.Scram(token.token_id, password, extensions).log_in(connection)
            assert answer.error_code == sasl.AUTHENTICATION_FAILED


def test_delegation_token_login_is_charged_to_its_owner(stage: Stage) -> None:
    with stage.connect() as connection:
        sasl.log_in_plain(connection, "bob", stage.password("bob"))
        token = sasl.create_delegation_token(connection)
    with _connect_by_token(stage, token) as connection:
        wait_until(lambda: _produces_as(stage, connection, "bob"), "the owner known to the proxy")
    assert stage.taken_for() <= {"bob", f"sluice:token:{token.token_id}"}


def test_token_with_forged_subject_is_refused(stage: Stage) -> None:
    token = forged(stage.secure.issuer.token("bob"), "alice")
    with stage.connect(SIGNED) as connection:
        assert sasl.log_in_bearer(connection, token).token == REFUSED
        connection.send(sasl.authenticate_request(b"\x01") + stage.request())
        assert sasl.Answer.of(connection.receive()).error_code == sasl.AUTHENTICATION_FAILED
        assert connection.is_closed_by_peer()
    with stage.connect(SIGNED) as connection:
        assert sasl.log_in_bearer(connection, stage.secure.issuer.token("bob")).token == b""
        stage.produce(connection)
    assert stage.taken_for() <= {ANONYMOUS, "bob"}


@pytest.mark.parametrize("password", ["right", "wrong"])
def test_reauthentication_as_another_user_is_refused_and_closed(stage: Stage, password: str) -> None:
    said = stage.password("bob") if password == "right" else "a guess"
    with stage.connect(REAUTH) as connection:
        assert sasl.log_in_plain(connection, "alice", stage.password("alice")).session_lifetime_ms > 0
        stage.produce(connection)
        time.sleep(ONE_LOGIN_A_SECOND_S)
        sasl.handshake(connection, "PLAIN")
        connection.send(sasl.authenticate_request(sasl.plain_token("bob", said)) + stage.request() * 3)
        assert sasl.Answer.of(connection.receive()).error_code == sasl.AUTHENTICATION_FAILED
        assert connection.is_closed_by_peer()
    assert "alice" in stage.taken_for() <= {ANONYMOUS, "alice"}


def test_reauthentication_as_the_same_user_succeeds(stage: Stage) -> None:
    """What the attack rests on: the same with the right name goes well, and the requests between are alice's."""
    with stage.connect(REAUTH) as connection:
        sasl.log_in_plain(connection, "alice", stage.password("alice"))
        time.sleep(ONE_LOGIN_A_SECOND_S)
        sasl.handshake(connection, "PLAIN")
        token = sasl.plain_token("alice", stage.password("alice"))
        connection.send(sasl.authenticate_request(token) + stage.request())
        assert sasl.Answer.of(connection.receive()).error_code == sasl.SUCCESS
        connection.receive()
    assert stage.taken_for() == {"alice"}


def test_requests_behind_raw_token_are_charged_to_its_user(stage: Stage) -> None:
    """After SaslHandshake v0 tokens have no headers; requests that come with the token are held until it is judged."""
    with stage.connect() as connection:
        assert sasl.handshake(connection, "PLAIN", version=0) == 0
        token = sasl.plain_token("alice", stage.password("alice"))
        connection.send(sasl.raw_token(token) + stage.request())
        assert connection.receive() == b"\0\0\0\0"
        connection.receive()
    assert stage.taken_for() == {"alice"}


@pytest.mark.parametrize("what", ["wrong password", "request instead of a token", "request before the token"])
def test_forged_raw_frames_are_never_charged_to_the_user(stage: Stage, what: str) -> None:
    wrong = sasl.raw_token(sasl.plain_token("alice", "a guess"))
    right = sasl.raw_token(sasl.plain_token("alice", stage.password("alice")))
    sent = {
        "wrong password": wrong + stage.request(),
        "request instead of a token": stage.request(),
        "request before the token": stage.request() + right,
    }
    with stage.connect() as connection:
        assert sasl.handshake(connection, "PLAIN", version=0) == 0
        connection.send(sent[what])
        assert connection.is_closed_by_peer()
    assert stage.taken_for() <= {ANONYMOUS}


def test_raw_token_that_reads_as_a_request_is_refused(stage: Stage) -> None:
    """A user name that is an ApiVersions request: a token is a token, whatever it looks like."""
    token = frame(API_VERSIONS, 0, 1, stage.client_id, b"")[4:]
    with stage.connect() as connection:
        sasl.handshake(connection, "PLAIN", version=0)
        connection.send(sasl.raw_token(token))
        assert connection.is_closed_by_peer()
    assert stage.taken_for() == set()


@pytest.mark.parametrize(
    "token", ["\0bob\0{bob}\0", "\0alice\0\0{bob}", "alice\0bob\0{bob}", "\0\0alice\0{bob}", "bob\0{bob}", "\0\0"]
)
def test_plain_token_with_extra_nuls_is_refused(stage: Stage, token: str) -> None:
    said = token.format(bob=stage.password("bob")).encode()
    with stage.connect() as connection:
        sasl.handshake(connection, "PLAIN")
        connection.send(sasl.authenticate_request(said) + stage.request())
        assert sasl.Answer.of(connection.receive()).error_code == sasl.AUTHENTICATION_FAILED
        assert connection.is_closed_by_peer()
    assert stage.taken_for() <= {ANONYMOUS}


@pytest.mark.parametrize(
    "name",
    ["<default>", "/ * + %", "alice\0", "alice,CN=bob", "=2C=3D", "x" * 32_768, "User:alice", "\u212a"],
    ids=["default", "signs", "NUL", "comma", "escapes", "32-KiB", "with-its-type", "kelvin"],
)
def test_odd_user_names_are_each_charged_to_that_user(stage: Stage, name: str) -> None:
    """Each is a user of that name, and no other; a long one is known by its beginning and digest."""
    with stage.connect() as connection:
        assert sasl.log_in_bearer(connection, unsecured_token(name)).token == b""
        stage.produce(connection)
    assert stage.taken_for() == {counted_as(name)}


def test_login_with_empty_user_name_is_refused(stage: Stage) -> None:
    with stage.connect() as connection:
        assert sasl.log_in_bearer(connection, unsecured_token("")).token == REFUSED
        connection.send(stage.request())
        connection.rest()
    assert stage.taken_for() <= {ANONYMOUS}


@pytest.mark.parametrize("name", ["sluice:GSSAPI", "sluice:token:x", "sluice:"])
def test_user_named_as_pseudo_principal_is_charged_to_reserved_name(stage: Stage, name: str) -> None:
    with stage.connect() as connection:
        sasl.log_in_bearer(connection, unsecured_token(name))
        stage.produce(connection)
    assert stage.taken_for() == {"sluice:reserved"}


def test_interleaved_logins_are_each_charged_to_their_user(stage: Stage) -> None:
    """Logins of four users, each step of all of them before the next step of any, again and again."""
    users = ["alice", "bob", "carol", "dave"]
    client_ids = {user: fresh_name(f"racing-{user}") for user in users}

    def run() -> None:
        for _ in range(10):
            connections = {user: stage.connect() for user in users}
            for connection in connections.values():
                connection.send(sasl.handshake_request("PLAIN"))
            for user, connection in reversed(connections.items()):
                connection.receive()
                connection.send(sasl.authenticate_request(sasl.plain_token(user, stage.password(user))))
            for user, connection in connections.items():
                connection.send(produce_request(stage.topic, client_ids[user], 400))
            for connection in reversed(connections.values()):
                assert sasl.Answer.of(connection.receive()).error_code == sasl.SUCCESS
                connection.receive()
                connection.close()

    threads = [Thread(target=run, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
    assert {user: taken_for(stage.sluice, client_id) for user, client_id in client_ids.items()} == {
        user: {user} for user in users
    }


def test_clients_of_all_attacks_never_bypass_the_proxy(guarded: Guarded) -> None:
    assert guarded.watch.escapes == []


def _create_user(stage: Stage, name: str, password: str) -> None:
    """In force when it returns: the broker comes to know it a little later."""
    admin = KafkaAdminClient(bootstrap_servers=stage.secure.cluster.bootstrap.split(","))
    try:
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion(name, ScramMechanism.SCRAM_SHA_512, password)])
    finally:
        admin.close()

    def is_known() -> bool:
        with Connection(Address.parse(stage.secure.cluster.bootstrap_of(SASL))) as broker:
            return sasl.log_in_scram(broker, name, password).error_code == sasl.SUCCESS

    wait_until(is_known, f"user {name} known to the broker")


def _connect_by_token(stage: Stage, token: sasl.DelegationToken) -> Connection:
    """As soon as the broker knows the token, a little after its making."""

    def connect() -> Connection | None:
        connection = stage.connect()
        if sasl.Scram(token.token_id, token.secret, "tokenauth=true").log_in(connection).error_code == sasl.SUCCESS:
            return connection
        connection.close()
        return None

    connection = wait_until(connect, "the delegation token accepted")
    assert connection is not None
    return connection


def _produces_as(stage: Stage, connection: Connection, user: str) -> bool:
    stage.produce(connection)
    return user in stage.taken_for()
