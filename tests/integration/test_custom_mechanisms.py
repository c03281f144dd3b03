"""Logins that the proxy cannot follow, or sees no name in, at a real broker: all is charged, and nobody is shut out."""

import json
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import tests.harness
from tests.harness import sasl
from tests.harness.broker import BrokerListener
from tests.harness.kafka import KafkaCluster
from tests.harness.load import produce_request
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Connection
from tests.integration.conftest import fresh_name
from tests.integration.identity import ANONYMOUS, EVERYBODY, produce, taken_for

pytestmark = [pytest.mark.slow, pytest.mark.integration]

NODE_ID = 7
LISTENER = "CUSTOM"
TWO_ROUNDS = "TWO-ROUNDS"
IAM = "AWS_MSK_IAM"
UNREAD = f"sluice:{TWO_ROUNDS}"
PROXY, PASSWORD = "proxy", "the password of the proxy itself"
LIMIT_BYTES_PER_S = 40_000
AUTHENTICATION_TIMEOUT_S = 2.0
LARGE_BYTES = 900_000  # more than limits.request_before_authentication, less than message.max.bytes
COUNT, SIZE = 7, 100_000
TIMEOUT_S = 60.0
KEYS = ("AKIAIOSFODNN7EXAMPLE", "AKIAI44QH8DHBEXAMPLE")


@dataclass(frozen=True, slots=True)
class Stage:
    sluice: SluiceProcess
    topic: str

    def connect(self) -> Connection:
        return Connection(self.sluice.listeners[LISTENER].brokers[NODE_ID], TIMEOUT_S)

    def taken_for(self, client_id: str) -> set[str]:
        return taken_for(self.sluice, client_id)

    def write(self, connection: Connection, client_id: str, size: int) -> int:
        """The error code of the partition."""
        answer = connection.exchange(produce_request(self.topic, client_id, size))
        (code,) = struct.unpack_from(">h", answer, 22 + len(self.topic))
        return int(code)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("custom")
    password = folder / "password"
    password.write_text(PASSWORD, encoding="utf-8")
    plain = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{PROXY}="{PASSWORD}";'
    accepting = {
        "sasl.enabled.mechanisms": f"PLAIN,{TWO_ROUNDS},{IAM}",
        "plain.sasl.jaas.config": plain,
        **{f"{mechanism.lower()}.sasl.jaas.config": "CustomSasl required;" for mechanism in (TWO_ROUNDS, IAM)},
    }
    brokers = KafkaCluster(
        node_ids=(NODE_ID,),
        listeners=[BrokerListener(LISTENER, "SASL_PLAINTEXT", accepting)],
        java_options=[f"-Xbootclasspath/a:{_compiled(folder)}"],
    )
    with brokers as cluster:
        topic = fresh_name("custom")
        cluster.create_topic(topic)
        login = {"mechanism": "PLAIN", "username": PROXY, "password_file": str(password)}
        route = {"bootstrap": cluster.bootstrap_of(LISTENER).split(","), "sasl": login}
        with SluiceProcess(
            cluster.bootstrap,
            cluster.node_ids,
            quotas=_quotas(),
            listeners={LISTENER: {"authentication": "sasl", "cluster": route}},
            settings={"limits": {"authentication_timeout": f"{AUTHENTICATION_TIMEOUT_S:g}s"}},
        ) as sluice:
            yield Stage(sluice, topic)


def _compiled(folder: Path) -> Path:
    source = Path(tests.harness.__file__).with_name("CustomSasl.java")
    subprocess.run(["javac", "-d", str(folder), str(source)], check=True, capture_output=True, timeout=TIMEOUT_S)
    return folder


def _quotas() -> str:
    names = (UNREAD, *(f"sluice:{IAM}:{key}" for key in KEYS))
    return f"quotas:\n{EVERYBODY}" + "".join(
        f'  - {{entity: {{user: "{name}", client-id: {{default: true}}}}, producer_byte_rate: {LIMIT_BYTES_PER_S}}}\n'
        for name in names
    )


def _log_in(connection: Connection, name: str = "nora", word: str = "") -> sasl.Answer:
    sasl.handshake(connection, TWO_ROUNDS)
    assert sasl.authenticate(connection, name.encode()).token == b"and the word?"
    return sasl.authenticate(connection, (word or f"word of {name}").encode())


def _log_in_by_key(connection: Connection, key: str = KEYS[0]) -> sasl.Answer:
    sasl.handshake(connection, IAM)
    credential = f"{key}/20261125/eu-west-1/kafka-cluster/aws4_request"
    return sasl.authenticate(connection, json.dumps({"version": "2020_10_22", "x-amz-credential": credential}).encode())


LOGINS = pytest.mark.parametrize(
    ("log_in", "user"), [(_log_in, UNREAD), (_log_in_by_key, f"sluice:{IAM}:{KEYS[0]}")], ids=[TWO_ROUNDS, IAM]
)


@LOGINS
def test_the_first_request_is_charged_to_the_pseudo_principal(
    stage: Stage, log_in: Callable[[Connection], sasl.Answer], user: str
) -> None:
    name = fresh_name("custom")
    with stage.connect() as connection:
        assert log_in(connection).error_code == sasl.SUCCESS
        produce(connection, stage.topic, name)
        assert stage.taken_for(name) == {user}


@LOGINS
def test_the_first_request_may_be_large(stage: Stage, log_in: Callable[[Connection], sasl.Answer], user: str) -> None:
    name = fresh_name("custom")
    with stage.connect() as connection:
        log_in(connection)
        assert stage.write(connection, name, LARGE_BYTES) == 0
        assert stage.taken_for(name) == {user}


@LOGINS
def test_connection_sending_only_acks_0_outlives_authentication_timeout(
    stage: Stage, log_in: Callable[[Connection], sasl.Answer], user: str
) -> None:
    name = fresh_name("custom")
    with stage.connect() as connection:
        log_in(connection)
        until_s = time.monotonic() + 2 * AUTHENTICATION_TIMEOUT_S
        while time.monotonic() < until_s:
            connection.send(produce_request(stage.topic, name, 200, acks=0))
            time.sleep(AUTHENTICATION_TIMEOUT_S / 10)
        assert stage.write(connection, name, 200) == 0
        assert stage.taken_for(name) == {user}


@LOGINS
def test_idle_connection_after_login_outlives_authentication_timeout(
    stage: Stage, log_in: Callable[[Connection], sasl.Answer], user: str
) -> None:
    name = fresh_name("custom")
    with stage.connect() as connection:
        log_in(connection)
        time.sleep(2 * AUTHENTICATION_TIMEOUT_S)
        assert stage.write(connection, name, 200) == 0
        assert stage.taken_for(name) == {user}


def test_connection_stopping_mid_login_is_closed_at_authentication_timeout(stage: Stage) -> None:
    with stage.connect() as connection:
        sasl.handshake(connection, TWO_ROUNDS)
        sasl.authenticate(connection, b"nora")
        assert connection.is_closed_by_peer()


def test_wrong_word_of_custom_mechanism_is_refused_and_closed(stage: Stage) -> None:
    name = fresh_name("custom")
    with stage.connect() as connection:
        assert _log_in(connection, word="a guess").error_code != sasl.SUCCESS
        assert connection.is_closed_by_peer()
    assert stage.taken_for(name) == set()


def test_requests_behind_half_a_login_are_charged_to_nobody_s_quota(stage: Stage) -> None:
    """The broker has accepted the first round: the proxy asks whether it serves the client, which ends it."""
    name = fresh_name("custom")
    with stage.connect() as connection:
        sasl.handshake(connection, TWO_ROUNDS)
        sasl.authenticate(connection, b"nora")
        connection.send(produce_request(stage.topic, name, 400) * 3)
        assert connection.rest() == b""
    assert stage.taken_for(name) <= {ANONYMOUS}


@LOGINS
@pytest.mark.timeout(120)
def test_a_connection_for_each_produce_gains_nothing(
    stage: Stage, log_in: Callable[[Connection], sasl.Answer], user: str
) -> None:
    name = fresh_name("custom")
    began_s = time.monotonic()
    for _ in range(COUNT):
        with stage.connect() as connection:
            assert log_in(connection).error_code == sasl.SUCCESS
            assert stage.write(connection, name, SIZE) == 0
    # Of eleven windows of a second ten seconds' worth go at once.
    assert time.monotonic() - began_s > (COUNT * SIZE - 10 * LIMIT_BYTES_PER_S - 2 * SIZE) / LIMIT_BYTES_PER_S
    assert stage.taken_for(name) == {user}


@pytest.mark.timeout(120)
def test_client_of_one_iam_key_is_not_throttled_for_another(stage: Stage) -> None:
    name = fresh_name("custom")
    with stage.connect() as greedy, stage.connect() as other:
        _log_in_by_key(greedy, KEYS[0])
        _log_in_by_key(other, KEYS[1])
        stage.write(greedy, name, LARGE_BYTES)
        answer = other.exchange(produce_request(stage.topic, name, 400))
        assert struct.unpack(">i", answer[-4:]) == (0,)
    assert stage.taken_for(name) == {f"sluice:{IAM}:{key}" for key in KEYS}
