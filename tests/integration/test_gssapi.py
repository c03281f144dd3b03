"""GSSAPI, with a real KDC: who the clients are is in their tickets, and counts when the broker has agreed."""

import base64
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from config.listener import Kerberos
from proxy.identity.kerberos.gssapi import UnreadableCause, acceptor
from proxy.identity.kerberos.token import is_ap_req
from proxy.identity.mechanisms.mechanism import Claim
from tests.harness import sasl
from tests.harness.broker import BrokerListener
from tests.harness.clients.kinds import JAVA_0, JAVA_1, JAVA_2, JAVA_4, KAFKA_PYTHON, ClientKind
from tests.harness.clients.tasks import Produce
from tests.harness.gssapi_client import GssapiClient, realm
from tests.harness.kafka import KafkaCluster
from tests.harness.kdc import REALM, Kdc
from tests.harness.load import produce_request
from tests.harness.measure import MEASURED_S, LogMeter, Series
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Connection
from tests.integration.conftest import fresh_name
from tests.integration.identity import ANONYMOUS, EVERYBODY, authentications, produce, taken_for
from tests.proxy.identity.kerberos import framed

pytestmark = [pytest.mark.integration, pytest.mark.slow]

NODE_ID = 7
HOST = "localhost"  # in the principal of the service, so clients must connect to it by this name
SERVICE = f"kafka/{HOST}"
UNREAD = "sluice:GSSAPI"
PROXY = "proxy"
PASSWORD = "the password of the proxy itself"
REAUTH_MS = 10_000
MB = 1_000_000
TOLERANCE = 0.05
RULES = ("RULE:[2:$1.$2](etl[.].*)s/^etl[.]/job-/", "RULE:[1:$1](.*-Caps)/U", "DEFAULT")
DURATION_S = MEASURED_S + 4.0
LEAST_SECRET_BYTES = 15  # a part of a key; in base64 it stands for itself wherever it begins at a multiple of three
PACE_BYTES_PER_S = 200_000
SLOW = 40_000
GREEDY = ((KAFKA_PYTHON, "gina"), (JAVA_4, "george"))

READ = "READ"
"""The listener of the proxy with the key of the service."""
BLIND = "BLIND"
"""With the key of another."""
REAUTH = "REAUTH"
"""In front of the broker's listener where a login holds ten seconds."""


@dataclass(frozen=True, slots=True)
class Realm:
    """A KDC, a broker that takes its tickets, and the proxy in front of it."""

    kdc: Kdc
    cluster: KafkaCluster
    sluice: SluiceProcess
    topic: str

    def connect(self, listener: str = READ) -> Connection:
        return Connection(self.sluice.listeners[listener].brokers[NODE_ID])

    def bootstrap(self, listener: str = READ) -> str:
        return f"{HOST}:{self.sluice.listeners[listener].address.port}"

    def client(self, user: str, host: str = HOST) -> GssapiClient:
        return GssapiClient(self.kdc.keytab(user), host)

    def produce(self, connection: Connection, client_id: str) -> None:
        produce(connection, self.topic, client_id)

    def taken_for(self, client_id: str) -> set[str]:
        return taken_for(self.sluice, client_id)


@pytest.fixture(scope="module")
def kdc() -> Iterator[Kdc]:
    with Kdc() as running, realm(running):
        yield running


@pytest.fixture(scope="module")
def kerberos(kdc: Kdc, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    folder = tmp_path_factory.mktemp("kerberos")
    keys = kdc.keytab(SERVICE)
    password = folder / "password"
    password.write_text(PASSWORD, encoding="utf-8")
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    accepting = kdc.broker_properties(keys) | {
        "sasl.enabled.mechanisms": "GSSAPI,SCRAM-SHA-512",
        "scram-sha-512.sasl.jaas.config": scram,
        "sasl.kerberos.principal.to.local.rules": ",".join(RULES),
    }
    brokers = KafkaCluster(
        node_ids=(NODE_ID,),
        listeners=[
            BrokerListener("KERBEROS", "SASL_PLAINTEXT", accepting),
            BrokerListener("REAUTH", "SASL_PLAINTEXT", accepting | {"connections.max.reauth.ms": str(REAUTH_MS)}),
        ],
        scram=[f"SCRAM-SHA-512=[name={PROXY},password={PASSWORD}]"],
        properties={"delegation.token.secret.key": "any secret will do"},
        java_options=kdc.java_options,
    )
    with brokers as cluster:
        topic = fresh_name("kerberos")
        cluster.create_topic(topic)

        def listener(keytab: Path, route: str) -> dict[str, object]:
            login = {"mechanism": "SCRAM-SHA-512", "username": PROXY, "password_file": str(password)}
            settings = {"keytab": str(keytab), "default_realm": REALM, "principal_to_local_rules": list(RULES)}
            return {
                "authentication": "sasl",
                "sasl": {"kerberos": settings},
                "cluster": {"bootstrap": cluster.bootstrap_of(route).split(","), "sasl": login},
            }

        listeners = {
            READ: listener(kdc.keytab(SERVICE, "kafka/elsewhere", file="both"), "KERBEROS"),
            BLIND: listener(kdc.keytab("kafka/elsewhere"), "KERBEROS"),
            REAUTH: listener(keys, "REAUTH"),
        }
        users = "".join(f"  - {{entity: {{user: {user}}}, producer_byte_rate: {MB}}}\n" for _, user in GREEDY)
        for user in (UNREAD, "greedy"):
            users += f'  - {{entity: {{user: "{user}", client-id: {{default: true}}}}, producer_byte_rate: {SLOW}}}\n'
        with SluiceProcess(
            cluster.bootstrap,
            cluster.node_ids,
            quotas=f"quotas:\n{EVERYBODY}{users}",
            advertise=HOST,
            listeners=listeners,
            settings={"log": {"level": "debug", "format": "json"}},
        ) as sluice:
            yield Realm(kdc, cluster, sluice, topic)


# ----------------------------------------------------------------------- what the library reads, without any broker


@pytest.fixture
def settings(kdc: Kdc, tmp_path: Path) -> Kerberos:
    """With a keytab of the test's own."""
    path = tmp_path / "kafka.keytab"
    path.write_bytes(kdc.keytab(SERVICE).read_bytes())
    return Kerberos(keytab=path, default_realm=REALM)


def test_token_names_its_principal(kdc: Kdc, settings: Kerberos) -> None:
    accept = acceptor(settings)
    for user, named in (("alice", "alice"), ("etl/h1", "etl")):
        token = GssapiClient(kdc.keytab(user)).first()
        assert accept(token) == Claim(named)
        assert accept(token) == Claim(named), "no replay cache"
    assert accept(GssapiClient(kdc.keytab("a/b/c")).first()) is None
    assert accept.unread == {UnreadableCause.NO_RULE: 1}


def test_keytab_that_changes_is_in_force_with_the_next_token(kdc: Kdc, settings: Kerberos) -> None:
    settings.keytab.write_bytes(kdc.keytab("kafka/elsewhere").read_bytes())
    accept = acceptor(settings)
    token = GssapiClient(kdc.keytab("alice")).first()
    assert accept(token) is None
    settings.keytab.write_bytes(kdc.keytab(SERVICE).read_bytes())
    assert accept(token) == Claim("alice")
    settings.keytab.unlink()
    assert accept(token) is None
    assert accept.unread == {UnreadableCause.NO_KEY: 2}


def test_ticket_under_another_key_version_is_unread(kdc: Kdc, settings: Kerberos) -> None:
    kdc.keytab("kafka/renewed")
    settings.keytab.write_bytes(kdc.keytab("kafka/renewed").read_bytes())
    kdc.change_key("kafka/renewed")
    accept = acceptor(settings)
    assert accept(GssapiClient(kdc.keytab("alice"), "renewed").first()) is None
    assert accept.unread == {UnreadableCause.NO_KEY: 1}


def test_token_that_was_changed_is_refused(kdc: Kdc, settings: Kerberos) -> None:
    accept = acceptor(settings)
    token = GssapiClient(kdc.keytab("alice")).first()
    assert accept(token[:-1] + bytes([token[-1] ^ 1])) is None
    assert accept.unread == {UnreadableCause.REFUSED: 1}
    assert accept(token) == Claim("alice")


def test_changed_byte_of_a_token_never_names_another_user(kdc: Kdc, settings: Kerberos) -> None:
    """Every byte of it, one after the other; those that say for which service the ticket is are nobody's secret."""
    accept = acceptor(settings)
    token = GssapiClient(kdc.keytab("alice")).first()
    changed = (token[:at] + bytes([token[at] ^ 1]) + token[at + 1 :] for at in range(len(token)))
    assert {accept(each) for each in changed} == {None, Claim("alice")}
    assert accept.unread.total() > len(token) * 0.8


def test_second_ap_req_behind_the_first_is_unread(kdc: Kdc, settings: Kerberos) -> None:
    """A second AP-REQ behind the first; and the control, the same by the same means with one."""
    accept = acceptor(settings)
    token = GssapiClient(kdc.keytab("alice")).first()
    request = token[token.index(b"\x01\x00\x6e") + 2 :]
    assert framed(request) == token
    assert accept(framed(request + request)) is None
    assert accept.unread == {UnreadableCause.NOT_KERBEROS: 1}


def test_other_mechanism_is_not_read(kdc: Kdc, settings: Kerberos) -> None:
    accept = acceptor(settings)
    assert accept(GssapiClient(kdc.keytab("alice"), spnego=True).first()) is None
    assert accept.unread == {UnreadableCause.NOT_KERBEROS: 1}


# ----------------------------------------------------------------------------------------- real brokers, real clients


def test_principal_is_the_user(kerberos: Realm) -> None:
    """By hand with mutual authentication, three answers; and an authorization id, which the broker does not look at."""
    name = fresh_name("by-hand")
    with kerberos.connect() as connection:
        answer = kerberos.client("alice").log_in(connection, authzid="bob")
        assert (answer.error_code, answer.token) == (sasl.SUCCESS, b"")
        kerberos.produce(connection, name)
    assert kerberos.taken_for(name) == {"alice"}


def _produces(kerberos: Realm, kind: ClientKind, user: str, listener: str = READ) -> set[str]:
    """Log in and write ten requests; whom the proxy took it for."""
    name = fresh_name("client")
    task = Produce(
        bootstrap=kerberos.bootstrap(listener),
        client_id=name,
        topic=kerberos.topic,
        records=10,
        rate_bytes_per_s=20_000,
        security=kerberos.kdc.login(user),
    )
    with kind.run(task) as client:
        result = client.result()
    assert (result.records, result.errors) == (10, ())
    return kerberos.taken_for(name)


def test_client_is_its_principal(kerberos: Realm) -> None:
    assert _produces(kerberos, KAFKA_PYTHON, "alice") == {"alice"}


@pytest.mark.matrix
@pytest.mark.parametrize("kind", [JAVA_1, JAVA_2, JAVA_4], ids=lambda kind: kind.name)
def test_java_client_is_its_principal(kerberos: Realm, kind: ClientKind) -> None:
    """Without mutual authentication: two answers."""
    assert _produces(kerberos, kind, "bob") == {"bob"}


@pytest.mark.matrix
def test_client_with_raw_tokens_is_its_principal(kerberos: Realm) -> None:
    """Before Kafka 1.0; the broker does not answer the last token, so it is asked whether it serves the client."""
    assert _produces(kerberos, JAVA_0, "bob") == {"bob"}


@pytest.mark.parametrize(
    ("principal", "user"),
    [("alice", "alice"), ("http/h1", "http"), ("etl/h1", "job-h1"), ("With-Caps", "WITH-CAPS"), ("pál", "pál")],
)
def test_user_is_whom_the_broker_sees(kerberos: Realm, principal: str, user: str) -> None:
    """Through the rules of both; the broker says it as the owner of a delegation token."""
    name = fresh_name("by-hand")
    with kerberos.connect() as connection:
        assert kerberos.client(principal).log_in(connection).error_code == sasl.SUCCESS
        kerberos.produce(connection, name)
        assert sasl.create_delegation_token(connection).owner == user
    assert kerberos.taken_for(name) == {user}


@pytest.mark.matrix
@pytest.mark.parametrize("kind", [KAFKA_PYTHON, JAVA_4], ids=lambda kind: kind.name)
def test_wrong_key_does_not_get_in(kerberos: Realm, kind: ClientKind) -> None:
    """It is the KDC that refuses: no token ever comes."""
    user = f"wrong-{kind.name}"
    stale = kerberos.kdc.keytab(user, file=f"{user}-stale")
    kerberos.kdc.change_key(user)
    name = fresh_name("client")
    task = Produce(
        bootstrap=kerberos.bootstrap(),
        client_id=name,
        topic=kerberos.topic,
        records=1,
        security=kerberos.kdc.login(user, stale),
    )
    with kind.run(task) as client:
        assert client.failure()
    assert kerberos.taken_for(name) <= {ANONYMOUS}


# ------------------------------------------------------------------------------------------ to be taken for another


def test_unreadable_gssapi_login_is_charged_to_unread_principal(kerberos: Realm) -> None:
    """The broker accepts, the proxy does not know whom: the documented class, and a line that says what is missing."""
    name = fresh_name("by-hand")
    with kerberos.connect(BLIND) as connection:
        assert kerberos.client("alice").log_in(connection).error_code == sasl.SUCCESS
        kerberos.produce(connection, name)
    assert kerberos.taken_for(name) == {UNREAD}
    metrics = kerberos.sluice.metrics()
    assert metrics.value("sluice_gssapi_unread_total", listener=BLIND) == 1
    assert metrics.value("sluice_gssapi_unread_total", listener=BLIND, cause="no_key") == 1
    (said,) = (line for line in kerberos.sluice.logs() if line["logger"] == "sluice.gssapi")
    assert f"kafka/{HOST}@{REALM}" in said["reason"]
    assert said["keys_of"] == f"kafka/elsewhere@{REALM}"


def test_stolen_token_without_its_key_fails_authentication(kerberos: Realm) -> None:
    """The token of another opens to his name, and whoever shows it cannot seal the next one."""
    name = fresh_name("attacker")
    stolen = kerberos.client("alice").first()
    with kerberos.connect() as connection:
        sasl.handshake(connection, "GSSAPI")
        assert sasl.authenticate(connection, stolen).error_code == sasl.SUCCESS
        sealed_by_nobody = struct.pack(">HH", 0x0504, 0x04FF) + bytes(28)
        connection.send(sasl.authenticate_request(b"") + sasl.authenticate_request(sealed_by_nobody))
        assert sasl.Answer.of(connection.receive()).error_code == sasl.SUCCESS
        assert sasl.Answer.of(connection.receive()).error_code == sasl.AUTHENTICATION_FAILED
        assert connection.is_closed_by_peer()
    assert kerberos.taken_for(name) <= {ANONYMOUS}


def test_requests_behind_stolen_token_are_not_charged_to_its_user(kerberos: Realm) -> None:
    """The broker is asked whether it serves the client, and does not."""
    name = fresh_name("attacker")
    succeeded = authentications(kerberos.sluice, "succeeded", READ)
    with kerberos.connect() as connection:
        sasl.handshake(connection, "GSSAPI")
        sasl.authenticate(connection, kerberos.client("alice").first())
        connection.send(produce_request(kerberos.topic, name, 400) * 3)
        connection.rest()
    assert authentications(kerberos.sluice, "succeeded", READ) == succeeded
    assert kerberos.taken_for(name) <= {ANONYMOUS}


def test_requests_behind_stolen_raw_token_are_charged_to_nobody(kerberos: Realm) -> None:
    name = fresh_name("attacker")
    with kerberos.connect() as connection:
        sasl.handshake(connection, "GSSAPI", version=0)
        connection.send(sasl.raw_token(kerberos.client("alice").first()))
        connection.receive()
        connection.send(sasl.raw_token(b""))
        connection.receive()
        sealed_by_nobody = struct.pack(">HH", 0x0504, 0x04FF) + bytes(28)
        connection.send(sasl.raw_token(sealed_by_nobody) + produce_request(kerberos.topic, name, 400) * 3)
        connection.rest()
    assert kerberos.taken_for(name) == set()


@pytest.mark.parametrize(("listener", "user"), [(BLIND, UNREAD), (READ, "greedy")])
def test_connection_with_raw_tokens_for_each_produce_gains_nothing(kerberos: Realm, listener: str, user: str) -> None:
    """Whose the first request is shows only when the broker has taken the last token, which gets no answer."""
    name = fresh_name("greedy")
    count, size = 7, 100_000
    began = time.monotonic()
    for _ in range(count):
        with Connection(kerberos.sluice.listeners[listener].brokers[NODE_ID], 60.0) as connection:
            kerberos.client("greedy").log_in_raw(connection)
            answer = connection.exchange(produce_request(kerberos.topic, name, size))
            assert struct.unpack_from(">h", answer, 22 + len(kerberos.topic)) == (0,)
    # Of eleven windows of a second ten seconds' worth go at once.
    assert time.monotonic() - began > (count * size - 10 * SLOW - 2 * size) / SLOW
    assert kerberos.taken_for(name) == {user}


def test_ticket_that_only_the_proxy_reads_fails_authentication(kerberos: Realm) -> None:
    """Its keytab may hold more keys than the broker's: what it reads counts for nothing by itself."""
    name = fresh_name("attacker")
    failed = authentications(kerberos.sluice, "failed", READ)
    with kerberos.connect() as connection:
        assert kerberos.client("alice", "elsewhere").log_in(connection).error_code == sasl.AUTHENTICATION_FAILED
        assert connection.is_closed_by_peer()
    assert authentications(kerberos.sluice, "failed", READ) == failed + 1
    assert kerberos.taken_for(name) == set()


def test_token_with_two_tickets_names_neither_user(kerberos: Realm) -> None:
    """Whichever of them the broker reads: the user is none of those."""
    name = fresh_name("attacker")
    mine, stolen = kerberos.client("bob"), kerberos.client("alice").first()
    token = mine.first()
    begin = token.index(b"\x01\x00\x6e") + 2
    two = framed(token[begin:] + stolen[begin:])
    assert not is_ap_req(two)
    with kerberos.connect() as connection:
        sasl.handshake(connection, "GSSAPI")
        answer = sasl.authenticate(connection, two)
        if answer.error_code == sasl.SUCCESS:
            assert mine.go_on(connection, answer).error_code == sasl.SUCCESS
            kerberos.produce(connection, name)
    assert kerberos.taken_for(name) <= {UNREAD}


@pytest.mark.parametrize("user", ["alice", "bob"])
def test_gssapi_reauthentication_as_another_user_is_refused(kerberos: Realm, user: str) -> None:
    """As the same user it succeeds; as another the broker refuses, and the user is never adopted."""
    name = fresh_name("attacker")
    with kerberos.connect(REAUTH) as connection:
        assert kerberos.client("alice").log_in(connection).session_lifetime_ms > 0
        kerberos.produce(connection, name)
        time.sleep(1.1)  # a broker refuses a second login sooner (KIP-368)
        answer = kerberos.client(user).log_in(connection)
        assert answer.error_code == (sasl.SUCCESS if user == "alice" else sasl.AUTHENTICATION_FAILED)
        if user == "alice":
            kerberos.produce(connection, name)
    assert kerberos.taken_for(name) == {"alice"}


def test_no_key_and_no_token_is_in_the_log(kerberos: Realm) -> None:
    """At debug level: nothing of the key of the service, nor of a ticket, in hex or in base64."""
    client = kerberos.client("alice")
    token = client.first()
    with kerberos.connect() as connection:
        sasl.handshake(connection, "GSSAPI")
        sasl.authenticate(connection, token)
    assert any(line["level"] == "debug" for line in kerberos.sluice.logs())
    said = kerberos.sluice.output()
    for secret in (kerberos.kdc.keytab(SERVICE).read_bytes(), token):
        for at in range(len(secret) - LEAST_SECRET_BYTES):
            part = secret[at : at + LEAST_SECRET_BYTES]
            assert part.hex() not in said.lower()
            assert base64.b64encode(part).decode() not in said


# ------------------------------------------------------------------------------------------------------------- rates


@pytest.mark.matrix
@pytest.mark.timeout(180)
def test_gssapi_users_are_held_to_their_quotas(kerberos: Realm) -> None:
    """While a third, who has none, authenticates again every nine seconds and loses no connection for it."""
    sluice = kerberos.sluice
    before = _logins(sluice)
    series: dict[str, Series] = {}
    with ExitStack() as stack:
        clients = {"rita": stack.enter_context(JAVA_4.run(_task(kerberos, "rita", REAUTH, PACE_BYTES_PER_S)))}
        for kind, user in GREEDY:
            clients[user] = stack.enter_context(kind.run(_task(kerberos, user, READ)))
            series[user] = stack.enter_context(LogMeter(kerberos.cluster.log_folder(user))).series
        results = {user: client.result(timeout_s=DURATION_S + 60) for user, client in clients.items()}
    assert all(result.errors == () for result in results.values())
    for measured in series.values():
        assert measured.steady_rate() == pytest.approx(MB, rel=TOLERANCE)
    assert results["rita"].bytes == pytest.approx(PACE_BYTES_PER_S * DURATION_S, rel=TOLERANCE)
    succeeded, failed, connections = (after - first for after, first in zip(_logins(sluice), before, strict=True))
    assert succeeded >= connections + DURATION_S * 1000 // REAUTH_MS
    assert (failed, connections) == (0, 2)


def _task(kerberos: Realm, user: str, listener: str, rate_bytes_per_s: int = 0) -> Produce:
    kerberos.cluster.create_topic(user)
    return Produce(
        bootstrap=kerberos.bootstrap(listener),
        client_id=user,
        topic=user,
        duration_s=DURATION_S,
        record_bytes=4_000,
        rate_bytes_per_s=rate_bytes_per_s,
        security=kerberos.kdc.login(user),
    )


def _logins(sluice: SluiceProcess) -> tuple[float, float, float]:
    """Those that succeeded and that failed, and the connections, of the listener where a login does not hold."""
    succeeded, failed = (authentications(sluice, outcome, REAUTH) for outcome in ("succeeded", "failed"))
    return succeeded, failed, sluice.metrics().value("sluice_connections_total", listener=REAUTH, outcome="accepted")
